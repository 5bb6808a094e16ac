//! A model file mapped read-only into memory, so that weights are read from the page cache and
//! never copied. What the bytes mean is the caller's business.

use memmap2::{Advice, Mmap};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The whole of a file. The file must not be shortened while it is mapped: replace a model by
/// renaming a new file over it, never by writing into it.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

// === impl MappedFile ===

impl MappedFile {
    /// Maps `path` and asks the kernel to read ahead.
    ///
    /// # Errors
    /// Those of opening and mapping; a directory and an empty file are refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        if metadata.len() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is empty",
            ));
        }
        // SAFETY: the mapping is private and read-only. Writers cannot be excluded by any call, so
        // the type's contract forbids them: bytes are read as plain data that is checked before
        // use, and a file cut short while mapped ends the process with SIGBUS.
        let map = unsafe { Mmap::map(&file)? };
        // Advice only: without it the first pass over the weights is slower, not wrong.
        if let Err(error) = map.advise(Advice::WillNeed) {
            tracing::debug!(path = %path.display(), %error, "cannot read ahead in a model file");
        }
        Ok(Self {
            path: path.to_owned(),
            map,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
