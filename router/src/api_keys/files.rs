//! Keys in files: reads them, refuses what no client could present, and says which file that was
//! without saying what was in it.

use crate::reload::{Change, Source};
use pd_protocol::Secret;
use pd_protocol::secret::{SECRET_BYTES_MAX, SecretError};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most keys in a folder. Each is compared with at every request, under 100 ns; with more tenants
/// than this, who they are is a gateway's matter.
pub(super) const KEYS_MAX: usize = 1024;

/// A file that is a key, or a folder of such files. In a folder, names that begin with a dot are
/// left out: kubelet keeps the versions of a Secret under such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFiles(pub(crate) PathBuf);

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFilesError {
    #[error(
        "cannot read API keys from {path} (--api-key-file): {source}; give a file that is a key, \
         or a folder of such files, that this process may read"
    )]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "no API key is in {0} (--api-key-file), so no client could be served; put a file with a key \
         into it, or leave the flag out to serve anyone"
    )]
    NoKey(PathBuf),
    #[error(
        "more than {KEYS_MAX} files are in {0} (--api-key-file); put fewer keys there, or a \
         gateway that knows its users in front"
    )]
    TooMany(PathBuf),
    #[error(
        "the API key in {path} (--api-key-file) cannot be used: {source}; a file is one key, and \
         more of them go into more files of a folder"
    )]
    Key { path: PathBuf, source: SecretError },
}

impl Source for KeyFiles {
    /// The files, in the order of their names, with what they hold.
    type Content = Vec<(PathBuf, Vec<u8>)>;
    type Value = Vec<Secret>;
    type Error = KeyFilesError;
    const NAME: &'static str = "api_keys";

    fn read(&self) -> Result<Self::Content, KeyFilesError> {
        let Self(path) = self;
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| KeyFilesError::Unreadable { path, source }
        };
        let is_folder = fs::metadata(path).map_err(unreadable(path))?.is_dir();
        let files = if is_folder {
            list(path).map_err(unreadable(path))?
        } else {
            vec![path.clone()]
        };
        if files.len() > KEYS_MAX {
            return Err(KeyFilesError::TooMany(path.clone()));
        }
        let read = |file: PathBuf| {
            let content = read_key(&file).map_err(unreadable(&file))?;
            Ok::<_, KeyFilesError>((file, content))
        };
        files.into_iter().map(read).collect()
    }

    fn parse(&self, content: &Self::Content) -> Result<Vec<Secret>, KeyFilesError> {
        if content.is_empty() {
            return Err(KeyFilesError::NoKey(self.0.clone()));
        }
        content.iter().map(read_as_key).collect()
    }

    /// A key that was taken away is refused from now on, even beside broken files: the good keys
    /// count, and without one no client is admitted.
    fn parse_change(&self, content: &Self::Content) -> Result<Change<Self>, KeyFilesError> {
        let (mut keys, mut unusable) = (Vec::new(), None);
        if content.is_empty() {
            unusable = Some(KeyFilesError::NoKey(self.0.clone()));
        }
        for file in content {
            match read_as_key(file) {
                Ok(key) => keys.push(key),
                Err(error) => unusable = unusable.or(Some(error)),
            }
        }
        Ok(Change {
            value: keys,
            unusable,
        })
    }
}

fn read_as_key((path, content): &(PathBuf, Vec<u8>)) -> Result<Secret, KeyFilesError> {
    key(content).map_err(|source| KeyFilesError::Key {
        path: path.clone(),
        source,
    })
}

/// Files of a folder, one more than may be there at most.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        files.push(entry.path());
        if files.len() > KEYS_MAX {
            break;
        }
    }
    files.sort();
    Ok(files)
}

/// What a file holds, as far as it could be a key and the line break behind it.
fn read_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let bytes_max = SECRET_BYTES_MAX as u64 + 3;
    File::open(path)?
        .take(bytes_max)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// A line break at the end is the editor's, not the key's.
fn key(content: &[u8]) -> Result<Secret, SecretError> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let content = content.strip_suffix(b"\r").unwrap_or(content);
    let text = std::str::from_utf8(content).map_err(|_| SecretError::Character)?;
    let key = Secret::from(text.to_owned());
    key.check()?;
    Ok(key)
}

#[cfg(test)]
mod fuzz;
