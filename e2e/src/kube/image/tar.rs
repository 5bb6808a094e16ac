//! A ustar archive of a few regular files, owned by root and without times.

use anyhow::{Result, ensure};

const BLOCK_BYTES: usize = 512;
const NAME_BYTES_MAX: usize = 100;

/// `(name, mode, content)`, in this order.
pub(super) fn archive(files: &[(&str, u32, &[u8])]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (name, mode, content) in files {
        bytes.extend_from_slice(&header(name, *mode, content.len())?);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    // Two empty blocks end it.
    bytes.resize(bytes.len() + 2 * BLOCK_BYTES, 0);
    Ok(bytes)
}

fn header(name: &str, mode: u32, len: usize) -> Result<[u8; BLOCK_BYTES]> {
    ensure!(
        name.len() <= NAME_BYTES_MAX,
        "{name} is too long for a tar header"
    );
    let mut block = [0; BLOCK_BYTES];
    let mut field =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    field(0, name);
    field(100, &format!("{mode:07o}"));
    field(108, "0000000");
    field(116, "0000000");
    field(124, &format!("{len:011o}"));
    field(136, "00000000000");
    field(156, "0");
    field(257, "ustar");
    field(263, "00");
    // The checksum counts itself as blanks.
    field(148, "        ");
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    Ok(block)
}
