//! GGUF files (versions 2 and 3, little-endian), mapped and parsed in place. Nothing in the file is
//! trusted: every length is checked against what is left before it is used, so a truncated or
//! corrupt file ends in an error that names the offset and the field.

pub mod metadata;
mod reader;
mod record;
mod value;

use super::tensor_view::{TensorShape, TensorView};
use pd_compute::MappedFile;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use metadata::{Metadata, MetadataError};
pub use value::{Array, Value};

use reader::Reader;
use record::{MIN_TENSOR_BYTES, Record, TensorInfo};

const MAGIC: u32 = u32::from_le_bytes(*b"GGUF");
const DEFAULT_ALIGNMENT: u64 = 32;
/// An alignment beyond a huge page is a corrupt number.
const MAX_ALIGNMENT: u64 = 2 << 20;
/// A GGUF file.
#[derive(Debug)]
pub struct Gguf {
    file: MappedFile,
    header: Header,
}

/// All that a file says before its data.
#[derive(Debug, Default)]
pub struct Header {
    metadata: Metadata,
    tensors: HashMap<String, TensorInfo>,
    /// Bytes before the data, the padding included.
    header_len: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("cannot map {path}: {source}; fetch the model again, or make the file readable")]
    Map {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: {source}")]
    Parse { path: PathBuf, source: ParseError },
}

/// Where and why a file's bytes make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error(
        "the file ends inside {field} at byte {offset}: {needed} bytes needed, {left} left; \
         it is truncated or corrupt, fetch it again"
    )]
    Truncated {
        field: &'static str,
        offset: usize,
        needed: u64,
        left: usize,
    },
    #[error(
        "{field} at byte {offset} is {value}, expected {expected}; the file is corrupt or of \
         another kind, fetch it again"
    )]
    Invalid {
        field: &'static str,
        offset: usize,
        value: String,
        expected: String,
    },
    #[error(
        "tensor {name} has type {kind}; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K"
    )]
    TensorType { name: String, kind: u32 },
    #[error("tensor {name} (record at byte {offset}): {reason}")]
    Tensor {
        name: String,
        offset: usize,
        reason: String,
    },
}

// === impl Gguf ===

impl Gguf {
    /// Maps and parses `path`.
    ///
    /// # Errors
    /// When it cannot be mapped, is no GGUF file, is truncated, or holds a type that no op reads.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let file = MappedFile::open(path).map_err(|source| GgufError::Map {
            path: path.to_owned(),
            source,
        })?;
        let header = Header::parse(&file).map_err(|source| GgufError::Parse {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { file, header })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// The header's bytes: metadata and the table of tensors.
    pub fn header_bytes(&self) -> &[u8] {
        &self.file[..self.header.header_len]
    }

    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let (name, info) = self.header.tensors.get_key_value(name)?;
        Some(TensorView {
            name,
            format: info.format,
            rows: info.rows,
            columns: info.columns,
            bytes: &self.file[info.start..info.end],
        })
    }

    /// Of all tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.tensors.keys().map(String::as_str)
    }

    /// What the header says of all tensors, in no order.
    pub fn shapes(&self) -> impl Iterator<Item = (String, TensorShape)> {
        let of_info = |info: &TensorInfo| TensorShape {
            dtype: format!("{:?}", info.format),
            rows: info.rows,
            columns: info.columns,
        };
        let tensors = self.header.tensors.iter();
        tensors.map(move |(name, info)| (name.clone(), of_info(info)))
    }

    pub fn tensor_count(&self) -> usize {
        self.header.tensors.len()
    }
}

// === impl Header ===

impl Header {
    /// Reads everything before the data, and checks that each tensor lies inside `bytes`.
    ///
    /// # Errors
    /// Names the field and the byte where the file stops making sense.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32("the magic")?;
        if magic != MAGIC {
            return Err(reader.invalid(4, "the magic", format!("{magic:#010x}"), "\"GGUF\""));
        }
        let version = reader.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(reader.invalid(4, "the version", version, "2 or 3, little-endian"));
        }
        let tensor_count = reader.count("the number of tensors", MIN_TENSOR_BYTES)?;
        let metadata_count =
            reader.count("the number of metadata keys", metadata::MIN_ENTRY_BYTES)?;
        let metadata = Metadata::parse(&mut reader, metadata_count)?;
        let alignment = alignment(&metadata, reader.offset())?;
        let mut records = Vec::new();
        for _ in 0..tensor_count {
            records.push(Record::parse(&mut reader)?);
        }
        let header_len = align(reader.offset() as u64, alignment);
        let mut tensors = HashMap::with_capacity(records.len());
        for record in records {
            let info = record.locate(header_len, alignment, bytes.len())?;
            let (name, offset) = (record.name, record.at);
            if tensors.insert(name.clone(), info).is_some() {
                let reason = "this name was used before".to_owned();
                return Err(ParseError::Tensor {
                    name,
                    offset,
                    reason,
                });
            }
        }
        let header_len = usize::try_from(header_len).unwrap_or(usize::MAX);
        Ok(Self {
            metadata,
            tensors,
            header_len: header_len.min(bytes.len()),
        })
    }
}

fn alignment(metadata: &Metadata, offset: usize) -> Result<u64, ParseError> {
    let wrong = |value: String| ParseError::Invalid {
        field: "general.alignment",
        offset,
        value,
        expected: format!("a power of two up to {MAX_ALIGNMENT}"),
    };
    let key = "general.alignment";
    let alignment = metadata.size(key).map_err(|error| wrong(error.found))?;
    let alignment = alignment.map_or(DEFAULT_ALIGNMENT, |value| value as u64);
    if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT {
        Ok(alignment)
    } else {
        Err(wrong(alignment.to_string()))
    }
}

/// `offset` rounded up; offsets are below the file's length, so this does not overflow.
fn align(offset: u64, alignment: u64) -> u64 {
    offset.div_ceil(alignment) * alignment
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
