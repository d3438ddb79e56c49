//! Which buckets the cascade acts on.

use shared::bucket::BUCKETS;
use shared::index::leaves_rows_behind;

/// The cascade takes its buckets from the table of buckets; the template's filter is compared with the same.
#[test]
fn only_tokens_and_codes_leave_rows_behind() {
    let names: Vec<&str> =
        BUCKETS.iter().filter(|bucket| leaves_rows_behind(bucket)).map(|bucket| bucket.name).collect();
    assert_eq!(names, ["mcp_auth_codes", "mcp_tokens", "mcp_refresh_tokens"]);
}
