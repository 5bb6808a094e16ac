//! Facts about retries.

use super::*;

#[test]
fn what_the_client_did_wrong_is_not_retried() {
    for status in [400u16, 401, 404, 413, 422, 501] {
        assert!(!is_retriable(http::StatusCode::from_u16(status).unwrap()));
    }
}
