//! One safetensors file: an 8-byte header length, a JSON header, then the data.

use super::HfError;
use pd_compute::MappedFile;
use safetensors::tensor::{Metadata, TensorInfo};
use std::path::Path;

/// Longest header that is read: the format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;
const LENGTH_BYTES: usize = 8;

#[derive(Debug)]
pub(super) struct Shard {
    file: MappedFile,
    metadata: Metadata,
    data_start: usize,
}

// === impl Shard ===

impl Shard {
    pub(super) fn open(path: &Path) -> Result<Self, HfError> {
        let file = MappedFile::open(path).map_err(|source| HfError::Map {
            path: path.to_owned(),
            source,
        })?;
        let (data_start, metadata) = read_header(path, &file)?;
        Ok(Self {
            file,
            metadata,
            data_start,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn header(&self) -> &[u8] {
        &self.file[..self.data_start]
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.file[self.data_start..]
    }

    /// Every tensor; its offsets lie within [`Self::data`].
    pub(super) fn tensors(&self) -> Vec<(String, &TensorInfo)> {
        self.metadata.tensors().into_iter().collect()
    }
}

/// The offset of the data, and the header. `Metadata` itself checks that the tensors fill the data
/// from 0 without gaps; here the end is compared with the file.
pub(super) fn read_header(path: &Path, bytes: &[u8]) -> Result<(usize, Metadata), HfError> {
    let truncated = |field, offset, needed, left| HfError::Truncated {
        path: path.to_owned(),
        field,
        offset,
        needed,
        left,
    };
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Err(truncated(
            "the header's length",
            0,
            LENGTH_BYTES as u64,
            bytes.len(),
        ));
    };
    let length = u64::from_le_bytes(*length);
    let left = bytes.len() - LENGTH_BYTES;
    let header = usize::try_from(length)
        .ok()
        .filter(|_| length <= MAX_HEADER_BYTES)
        .and_then(|length| bytes[LENGTH_BYTES..].get(..length))
        .ok_or_else(|| truncated("the header", LENGTH_BYTES, length, left))?;
    let data_start = LENGTH_BYTES + header.len();
    let metadata: Metadata = serde_json::from_slice(header).map_err(|source| HfError::Header {
        path: path.to_owned(),
        end: data_start,
        source,
    })?;
    let (described, data) = (metadata.data_len(), bytes.len() - data_start);
    if described != data {
        return Err(HfError::Length {
            path: path.to_owned(),
            described,
            data,
        });
    }
    Ok((data_start, metadata))
}
