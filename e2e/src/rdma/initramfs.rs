//! A host's whole file system as the archive that its kernel unpacks at boot: cpio's `newc` format.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

/// An archive in the making.
#[derive(Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
    /// Paths that are in it, without their leading slash.
    present: BTreeSet<String>,
}

// === impl Initramfs ===

impl Initramfs {
    /// Adds a file of this machine, with its rights, unless its place is taken.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn add_file(&mut self, path: &str, from: &Path) -> Result<()> {
        let read = || -> std::io::Result<_> { Ok((fs::read(from)?, fs::metadata(from)?)) };
        let (bytes, metadata) = read().with_context(|| format!("read {}", from.display()))?;
        self.add(path, metadata.permissions().mode() & 0o777, &bytes);
        Ok(())
    }

    /// Adds a file, and the folders above it, unless its place is taken.
    pub fn add(&mut self, path: &str, rights: u32, bytes: &[u8]) {
        let path = path.trim_start_matches('/');
        for (slash, _) in path.match_indices('/') {
            self.add_folder(&path[..slash]);
        }
        if self.present.insert(path.to_owned()) {
            self.entry(path, FILE | rights, bytes);
        }
    }

    /// Adds a folder, unless its place is taken.
    pub fn add_folder(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        if self.present.insert(path.to_owned()) {
            self.entry(path, FOLDER, &[]);
        }
    }

    /// The archive, with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(bytes.len()).expect("a file below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a short path");
        // Number, mode, owner, group, links, time, size, four device numbers, length of the name, sum.
        let numbers = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes
                .extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests;
