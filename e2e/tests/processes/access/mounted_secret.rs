//! A folder as kubelet mounts a Secret: its entries are links through `..data`, and a change swaps
//! that link, so that all entries change at once.

use anyhow::Result;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub(super) struct MountedSecret {
    folder: PathBuf,
    version: u32,
}

// === impl MountedSecret ===

impl MountedSecret {
    pub(super) fn new(folder: PathBuf, entries: &[(&str, &str)]) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut secret = Self { folder, version: 0 };
        secret.replace(entries)?;
        Ok(secret)
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// The Secret has these entries now, and no others.
    pub(super) fn replace(&mut self, entries: &[(&str, &str)]) -> Result<()> {
        self.version += 1;
        let version = format!("..version-{}", self.version);
        fs::create_dir(self.folder.join(&version))?;
        for (name, text) in entries {
            fs::write(self.folder.join(&version).join(name), text)?;
        }
        symlink(&version, self.folder.join("..data_tmp"))?;
        fs::rename(self.folder.join("..data_tmp"), self.folder.join("..data"))?;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_kept = entries.iter().any(|(kept, _)| name == *kept);
            if !is_kept && entry.file_type()?.is_symlink() && name != "..data" {
                fs::remove_file(entry.path())?;
            }
        }
        for (name, _) in entries {
            let link = self.folder.join(name);
            if !link.is_symlink() {
                symlink(Path::new("..data").join(name), link)?;
            }
        }
        Ok(())
    }
}
