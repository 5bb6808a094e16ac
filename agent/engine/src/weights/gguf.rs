//! GGUF files (versions 2 and 3, little-endian), mapped and parsed in place. Nothing in the file is
//! trusted: every length is checked against what is left before it is used, so a truncated or
//! corrupt file ends in an error that names the offset and the field.

pub mod metadata;
mod reader;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pd_compute::{MappedFile, WeightFormat};

use super::TensorView;

pub use metadata::{Array, Metadata, MetadataError, Value};
use reader::Reader;

const MAGIC: u32 = u32::from_le_bytes(*b"GGUF");
const DEFAULT_ALIGNMENT: u64 = 32;
/// An alignment beyond a huge page is a corrupt number.
const MAX_ALIGNMENT: u64 = 2 << 20;
/// Dimensions of a tensor in the format.
const MAX_DIMS: u32 = 4;
/// Smallest record of a tensor: empty name, no dimensions, type, offset.
const MIN_TENSOR_BYTES: usize = 8 + 4 + 4 + 8;

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

#[derive(Debug)]
struct TensorInfo {
    format: WeightFormat,
    rows: usize,
    columns: usize,
    /// In the file: `[start, end)`.
    start: usize,
    end: usize,
}

/// A tensor's record, before its format is known to be supported and its range to lie in the file.
struct Record {
    at: usize,
    name: String,
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("cannot map {path}: {source}")]
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
    #[error("{field} at byte {offset} is {value}, expected {expected}")]
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

// === impl Record ===

impl Record {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let at = reader.offset();
        let name = reader.string("a tensor's name")?.to_owned();
        let num_dims = reader.u32("a tensor's number of dimensions")?;
        if num_dims > MAX_DIMS {
            let field = "a tensor's number of dimensions";
            return Err(reader.invalid(4, field, num_dims, "at most 4"));
        }
        let mut dims = Vec::with_capacity(MAX_DIMS as usize);
        for _ in 0..num_dims {
            dims.push(reader.u64("a tensor's dimension")?);
        }
        Ok(Self {
            at,
            name,
            dims,
            kind: reader.u32("a tensor's type")?,
            offset: reader.u64("a tensor's offset")?,
        })
    }

    /// Turns the record into a range of the file.
    fn locate(&self, data: u64, alignment: u64, file_len: usize) -> Result<TensorInfo, ParseError> {
        let wrong = |reason: String| ParseError::Tensor {
            name: self.name.clone(),
            offset: self.at,
            reason,
        };
        let format = format_of(self.kind).ok_or_else(|| ParseError::TensorType {
            name: self.name.clone(),
            kind: self.kind,
        })?;
        let size = |dim: &u64| usize::try_from(*dim).ok();
        let columns = self.dims.first().map_or(Some(1), size);
        let rows = self
            .dims
            .iter()
            .skip(1)
            .try_fold(1usize, |rows, dim| rows.checked_mul(size(dim)?));
        let (Some(rows), Some(columns)) = (rows, columns) else {
            return Err(wrong(format!("its dimensions {:?} overflow", self.dims)));
        };
        let row_bytes = format.row_bytes(columns).ok_or_else(|| {
            wrong(format!(
                "rows of {columns} values are no whole number of {format:?} blocks"
            ))
        })?;
        if !self.offset.is_multiple_of(alignment) {
            return Err(wrong(format!(
                "its offset {} is not a multiple of {alignment}",
                self.offset
            )));
        }
        let start = data
            .checked_add(self.offset)
            .and_then(|start| usize::try_from(start).ok());
        let len = rows.checked_mul(row_bytes);
        let end = start.and_then(|start| start.checked_add(len?));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => Ok(TensorInfo {
                format,
                rows,
                columns,
                start,
                end,
            }),
            _ => Err(wrong(format!(
                "{rows}×{columns} {format:?} at data offset {} end beyond the file's {file_len} \
                 bytes; it is truncated or corrupt, fetch it again",
                self.offset
            ))),
        }
    }
}

/// The numbers of ggml's types.
const fn format_of(kind: u32) -> Option<WeightFormat> {
    Some(match kind {
        0 => WeightFormat::F32,
        1 => WeightFormat::F16,
        2 => WeightFormat::Q4_0,
        3 => WeightFormat::Q4_1,
        8 => WeightFormat::Q8_0,
        12 => WeightFormat::Q4K,
        14 => WeightFormat::Q6K,
        30 => WeightFormat::BF16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
