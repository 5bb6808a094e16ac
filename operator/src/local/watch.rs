//! Notices edits of a file once the writer has finished.

use std::path::{Path, PathBuf};

/// A file, as it was taken in last and as it was seen last.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    path: PathBuf,
    taken: Option<Vec<u8>>,
    seen: Option<Vec<u8>>,
}

// === impl WatchedFile ===

impl WatchedFile {
    /// Begins with what the file holds now.
    pub(crate) fn new(path: &Path) -> Self {
        let taken = std::fs::read(path).ok();
        Self {
            path: path.to_owned(),
            seen: taken.clone(),
            taken,
        }
    }

    /// Whether there is an edit to take in: the content differs from what was taken in last and is
    /// the same as when it was last read. A file that is missing is one that is being replaced.
    pub(crate) fn take_edit(&mut self) -> bool {
        let Ok(content) = std::fs::read(&self.path) else {
            return false;
        };
        let content = Some(content);
        let finished = content == self.seen;
        self.seen = content;
        if !finished || self.seen == self.taken {
            return false;
        }
        self.taken = self.seen.clone();
        true
    }

    /// Whether it should be read again soon.
    pub(crate) fn is_being_edited(&self) -> bool {
        self.seen != self.taken
    }
}

#[cfg(test)]
mod tests;
