//! Any bytes as safetensors, or as the index of its shards.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// A tensor of forty bytes in JSON has its name twice, and a place in two tables.
const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 64,
};

#[test]
fn safetensors_file() {
    fuzz!("safetensors_file", MEMORY, |bytes| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(SINGLE_FILE), bytes).expect("room for it");
        let Ok(tensors) = Safetensors::open(folder.path()) else {
            return;
        };
        for (_, header) in tensors.headers() {
            assert!(header.len() <= bytes.len());
        }
        for name in tensors.tensors.keys() {
            let Ok(tensor) = tensors.tensor(name) else {
                continue;
            };
            let tensor = tensor.expect("it was named");
            let row_bytes = tensor
                .format
                .row_bytes(tensor.columns)
                .expect("whole blocks");
            assert_eq!(tensor.bytes.len(), tensor.rows * row_bytes);
        }
    });
}

/// No name leads out of the folder.
#[test]
fn safetensors_index() {
    fuzz!("safetensors_index", MEMORY, |bytes| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(INDEX_FILE);
        std::fs::write(&path, bytes).expect("room for it");
        let files = index::shard_files(&path).unwrap_or_default();
        for file in files {
            assert_eq!(file.parent(), Some(folder.path()), "{}", file.display());
        }
    });
}
