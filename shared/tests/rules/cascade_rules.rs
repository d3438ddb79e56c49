//! What the cascade acts on, as far as it is a decision of its own.

use shared::bucket::BUCKETS;
use shared::index::leaves_rows_behind;

/// The buckets that the cascade acts on are read off the one table; the template's filter is held against the same.
#[test]
fn the_buckets_with_something_hanging_on_their_rows_are_these() {
    let names: Vec<&str> =
        BUCKETS.iter().filter(|bucket| leaves_rows_behind(bucket)).map(|bucket| bucket.name).collect();
    assert_eq!(names, ["mcp_auth_codes", "mcp_tokens", "mcp_refresh_tokens"]);
}
