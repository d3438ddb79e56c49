//! Records of the table's stream.

use model::mutate::{Corpus, Fuzz};
use serde_json::Value;
use shared::cascade::{Record, read};

/// A record that is read as a removed token is a removal by TTL, in this table, with the token's key in both places.
#[test]
fn accepts_only_records_of_tokens_that_ttl_removed() {
    let fuzz = Fuzz::start("stream records", 40_000);
    let mut corpus = Corpus::of(include_str!("corpus/records.txt"), fuzz.seed);
    let (mut removals, mut parsed) = (0, 0);
    for _ in 0..fuzz.rounds {
        let text = corpus.next_text();
        let Ok(record) = serde_json::from_str::<Value>(&text) else { continue };
        parsed += 1;
        let Record::RemovedToken(removal) = read(&record, "app_attributes") else { continue };
        removals += 1;
        let at = |pointer: &str| record.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        assert_eq!(at("/eventName"), "REMOVE", "{text}");
        assert_eq!(at("/userIdentity/principalId"), "dynamodb.amazonaws.com", "{text}");
        for key in ["/dynamodb/Keys", "/dynamodb/OldImage"] {
            assert_eq!(at(&format!("{key}/id/S")), removal.token.owner, "{text}");
            assert_eq!(at(&format!("{key}/bucket_name/S")), removal.token.sort, "{text}");
        }
        assert_eq!(at("/dynamodb/OldImage/bucket/S"), removal.bucket.name, "{text}");
        assert!(["mcp_tokens", "mcp_refresh_tokens", "mcp_auth_codes"].contains(&removal.bucket.name), "{text}");
        assert!(removal.token.sort.starts_with(&removal.bucket.sort_prefix()), "{text}");
        assert!(removal.provider.is_none_or(|key| key.owner == removal.token.owner), "{text}");
        assert!(!removal.sequence.is_empty());
        corpus.keep(text);
    }
    assert!(removals > 100 && parsed > removals, "{removals} of {parsed}: the corpus is too far from a record");
    fuzz.end();
}
