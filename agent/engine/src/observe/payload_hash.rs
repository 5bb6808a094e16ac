//! `PayloadHash`: a digest of KV or state, for comparison.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;

/// The first 128 bits of SHA-256 over the bytes in the order (group, layer, head, key or value, token), or (tensor,
/// layer, head) of a state: equal for equal contents, however cuts and ranks divide them. As text, 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadHash(u128);

/// Makes a [`PayloadHash`] of bytes that come in pieces.
#[derive(Default)]
pub(crate) struct PayloadHasher(Sha256);

// === impl PayloadHasher ===

impl PayloadHasher {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> PayloadHash {
        let digest = self.0.finalize();
        let half = digest[..16].try_into().expect("SHA-256 has 32 bytes");
        PayloadHash(u128::from_be_bytes(half))
    }
}

// === impl PayloadHash ===

impl fmt::Display for PayloadHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for PayloadHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for PayloadHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PayloadHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = u128::from_str_radix(&text, 16).ok();
        let hash = hash.filter(|_| text.len() == 32);
        hash.map(Self)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no hash of 32 hex digits")))
    }
}
