//! The keys of a deployment, from a file with one a line. The first signs and all verify, so that a key is replaced
//! without an outage: add the new one as second everywhere, move it first everywhere, remove the old one.

use crate::certificates::Authority;
use ring::hkdf::{HKDF_SHA256, Salt};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// Names what is derived and how. Another version of it is another authority for the same key.
const AUTHORITY_LABEL: &[u8] = b"pdserve identity v1: Ed25519 seed of the certificate authority";
/// 32 characters of base64 are 192 bits.
const KEY_LEN_MIN: usize = 32;
const KEY_LEN_MAX: usize = 512;
/// A rotation needs two keys; each costs a handshake one more authority to try.
pub const KEYS_MAX: usize = 8;
/// Eight keys of the greatest length, and three times as much for comments.
const FILE_BYTES_MAX: usize = 16 << 10;

/// The keys of a key file. It holds what it derives from them, not their text, and wipes that when it is dropped.
pub struct Keyring {
    /// At least one. The first signs.
    keys: Vec<Key>,
}

struct Key {
    seed: Zeroizing<[u8; 32]>,
    id: KeyId,
}

/// Names a key without revealing it: 16 hex digits, of a hash of its authority's public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub(crate) [u8; 8]);

/// What a process does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyUse {
    /// Signs this process's certificate and verifies those of peers.
    Signs,
    Verifies,
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error(
        "cannot read {file}: {source}; give a file of deployment keys that this process may read"
    )]
    Unreadable { file: String, source: io::Error },
    #[error(
        "{file} is longer than {FILE_BYTES_MAX} bytes; give a file of deployment keys, one a line"
    )]
    TooLong { file: String },
    #[error(
        "{file} holds no key; write one into a line of its own, such as `openssl rand -base64 32` prints"
    )]
    NoKey { file: String },
    #[error("{file}, line {line}: {fault}")]
    Line {
        file: String,
        line: usize,
        fault: LineFault,
    },
}

/// What is wrong with a line of a key file. None shows the line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    #[error(
        "a key of {len} characters; give {KEY_LEN_MIN} to {KEY_LEN_MAX}, such as `openssl rand -base64 32` prints"
    )]
    Length { len: usize },
    #[error(
        "a character that is a space or not printable ASCII; write one key a line, and comments into lines of their own"
    )]
    Character,
    #[error("the key of line {first} again; remove one of both")]
    Duplicate { first: usize },
    #[error("a key more than {KEYS_MAX}; remove those that no process signs with any more")]
    TooMany,
}

// === impl Keyring ===

impl Keyring {
    /// # Errors
    /// What cannot be read or is no key file, and what to do.
    pub fn read(file: &Path) -> Result<Self, KeyFileError> {
        let name = file.display().to_string();
        // Holds the file whole, so that it does not move and leave a copy behind.
        let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
        let most = u64::try_from(FILE_BYTES_MAX + 1).unwrap_or(u64::MAX);
        let read = File::open(file).and_then(|file| file.take(most).read_to_end(&mut text));
        match read {
            Ok(_) => Self::parse(&name, &text),
            Err(source) => Err(KeyFileError::Unreadable { file: name, source }),
        }
    }

    /// Reads the text of a key file; `name` is what errors call it.
    ///
    /// # Errors
    /// What is wrong with which line, and what to do.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, KeyFileError> {
        let file = || name.to_owned();
        if text.len() > FILE_BYTES_MAX {
            return Err(KeyFileError::TooLong { file: file() });
        }
        let mut keys: Vec<Key> = Vec::new();
        let mut lines = Vec::new();
        for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let text = text.trim_ascii();
            if text.is_empty() || text.starts_with(b"#") {
                continue;
            }
            let key = read_key(text).and_then(|key| {
                match keys.iter().position(|other| other.id == key.id) {
                    Some(at) => Err(LineFault::Duplicate { first: lines[at] }),
                    None if keys.len() == KEYS_MAX => Err(LineFault::TooMany),
                    None => Ok(key),
                }
            });
            keys.push(key.map_err(|fault| KeyFileError::Line {
                file: file(),
                line,
                fault,
            })?);
            lines.push(line);
        }
        if keys.is_empty() {
            return Err(KeyFileError::NoKey { file: file() });
        }
        Ok(Self { keys })
    }

    /// The keys in the order of the file.
    pub fn key_ids(&self) -> Vec<(KeyId, KeyUse)> {
        let uses = [KeyUse::Signs]
            .into_iter()
            .chain([KeyUse::Verifies].into_iter().cycle());
        self.keys.iter().map(|key| key.id).zip(uses).collect()
    }

    /// The authorities of all keys; the first one signs.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = Authority> {
        self.keys.iter().map(|key| Authority::of_seed(&key.seed))
    }
}

fn read_key(text: &[u8]) -> Result<Key, LineFault> {
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(LineFault::Character);
    }
    if !(KEY_LEN_MIN..=KEY_LEN_MAX).contains(&text.len()) {
        return Err(LineFault::Length { len: text.len() });
    }
    let mut seed = Zeroizing::new([0; 32]);
    Salt::new(HKDF_SHA256, &[])
        .extract(text)
        .expand(&[AUTHORITY_LABEL], HKDF_SHA256)
        .and_then(|derived| derived.fill(&mut *seed))
        .expect("32 bytes are one block of HKDF");
    let id = Authority::of_seed(&seed).id();
    Ok(Key { seed, id })
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.key_ids()).finish()
    }
}

// === impl KeyId ===

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl KeyUse ===

impl KeyUse {
    /// Its word in the log and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signs => "signs",
            Self::Verifies => "verifies",
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
