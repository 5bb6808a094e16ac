//! A string that is compared, never shown: keys and tokens.

use sha2::{Digest, Sha256};
use std::fmt;

/// An API key or admin token. `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

// === impl Secret ===

impl Secret {
    /// Whether `candidate` is this secret, in a time that tells nothing about how much of it was
    /// right: digests are compared, and a digest's prefix says nothing of its input's.
    pub(crate) fn matches(&self, candidate: &str) -> bool {
        Sha256::digest(self.0.as_bytes()) == Sha256::digest(candidate.as_bytes())
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
