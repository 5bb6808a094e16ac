//! What a file's content must hash to. The hub says SHA-256 of large files and Git's own hash of small ones.

use ring::digest::{self, Context};
use std::fmt;

/// The hash of a file, by which it is also named in a cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileHash {
    /// Of a file in large-file storage: 64 hexadecimal digits.
    Sha256(String),
    /// Of a file in the Git repository itself, over `blob SIZE\0` and its content: 40 hexadecimal digits.
    Git(String),
}

/// Hashes a file as it comes.
pub(crate) struct Hasher(Context);

// === impl FileHash ===

impl FileHash {
    /// Nothing where the text is no SHA-256.
    #[must_use]
    pub fn sha256(text: &str) -> Option<Self> {
        is_hex(text, 64).then(|| Self::Sha256(text.to_owned()))
    }

    /// Nothing where the text is no hash of Git's.
    #[must_use]
    pub fn git(text: &str) -> Option<Self> {
        is_hex(text, 40).then(|| Self::Git(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Sha256(text) | Self::Git(text) => text,
        }
    }

    /// Begins to hash a file of a size.
    pub(crate) fn hasher(&self, size: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher(Context::new(&digest::SHA256)),
            Self::Git(_) => {
                let mut context = Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {size}\0").as_bytes());
                Hasher(context)
            }
        }
    }
}

impl fmt::Display for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Hasher ===

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> String {
        let digest = self.0.finish();
        let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }
}

/// Whether a text is so many hexadecimal digits, as the hub writes them.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    //! Facts about hashes.

    use super::*;

    #[test]
    fn hashes_are_those_of_sha256sum_and_of_git() {
        // `printf hello | sha256sum` and `printf hello | git hash-object --stdin`.
        for hash in [
            FileHash::sha256("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"),
            FileHash::git("b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"),
        ] {
            let hash = hash.expect("a hash");
            let mut hasher = hash.hasher(5);
            hasher.update(b"hel");
            hasher.update(b"lo");
            assert_eq!(hasher.finish(), hash.as_str());
        }
    }
}
