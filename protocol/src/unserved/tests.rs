//! Which reason a path has.

use super::*;
use std::collections::HashSet;

#[test]
fn a_path_has_one_row() {
    let mut seen = HashSet::new();
    for path in UNSERVED.iter().flat_map(|unserved| unserved.paths) {
        assert!(path.starts_with('/') && seen.insert(path), "{path}");
    }
}

#[test]
fn nothing_that_is_served_is_in_the_table() {
    for path in SERVED
        .split([',', ' '])
        .filter(|word| word.starts_with('/'))
    {
        assert!(why_not(path).starts_with("served are"), "{path}");
    }
}

#[test]
fn the_reason_is_that_of_the_path_or_of_one_above_it() {
    for (path, because) in [
        ("/v1/embeddings", NO_VECTORS),
        ("/v1/audio/speech", TEXT_ONLY),
        ("/v1/images/generations", TEXT_ONLY),
        ("/v1/files/file-1/content", NOTHING_STORED),
        ("/v1/responses/resp_1/cancel", WHOLE_CHATS),
        ("/chat/completions", BELOW_V1),
        ("/v1/v1/models", BELOW_V1),
    ] {
        assert_eq!(why_not(path), format!("{because}; served are {SERVED}"));
    }
    for path in ["/", "/v1/embeddingsx", "/v1/audio", "/v1/other"] {
        assert_eq!(why_not(path), format!("served are {SERVED}"));
    }
}
