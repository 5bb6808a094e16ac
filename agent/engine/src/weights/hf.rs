//! Safetensors of a Hugging Face folder: one file, or shards named by an index, mapped in place.
//! Headers are not trusted: each is parsed and checked against its file's length before use.

mod index;
mod shard;

use super::tensor_view::{TensorShape, TensorView};
use pd_compute::WeightFormat;
use safetensors::Dtype;
use shard::Shard;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// The safetensors files of a folder.
#[derive(Debug)]
pub struct Safetensors {
    folder: PathBuf,
    shards: Vec<Shard>,
    tensors: HashMap<String, TensorSpan>,
}

/// The position of a tensor: `[start, end)` of a shard.
#[derive(Debug)]
struct TensorSpan {
    shard: usize,
    /// One that no op reads is refused once the tensor is asked for.
    dtype: Dtype,
    rows: usize,
    columns: usize,
    start: usize,
    end: usize,
}

/// Why a folder's weights are refused.
#[derive(Debug, thiserror::Error)]
pub enum HfError {
    #[error("cannot map {path}: {source}; fetch the model again, or make the file readable")]
    Map {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}; fetch the model's safetensors, or \
         give the path of a .gguf file"
    )]
    NoWeights { folder: PathBuf },
    #[error("{path}: {reason}")]
    Index { path: PathBuf, reason: String },
    #[error(
        "{path}: the file ends inside {field} at byte {offset}: {needed} bytes needed, {left} \
         left; it is truncated or corrupt, fetch it again"
    )]
    Truncated {
        path: PathBuf,
        field: &'static str,
        offset: usize,
        needed: u64,
        left: usize,
    },
    #[error(
        "{path}: the header (bytes 8 to {end}) is not valid: {source}; it is corrupt, fetch it again"
    )]
    Header {
        path: PathBuf,
        end: usize,
        source: serde_json::Error,
    },
    #[error(
        "{path}: the header's tensors end at {described} but the data has {data} bytes; it is truncated or corrupt, fetch it again"
    )]
    Length {
        path: PathBuf,
        described: usize,
        data: usize,
    },
    #[error("{path}: tensor {name} has dtype {dtype:?}; supported: {supported}")]
    Dtype {
        path: PathBuf,
        name: String,
        dtype: Dtype,
        supported: &'static str,
    },
    #[error("{path}: tensor {name} is in two files")]
    Twice { path: PathBuf, name: String },
}

// === impl Safetensors ===

impl Safetensors {
    /// Maps the weights in `folder` and reads their headers.
    ///
    /// # Errors
    /// When a file is missing, truncated or corrupt.
    pub fn open(folder: &Path) -> Result<Self, HfError> {
        let single = folder.join(SINGLE_FILE);
        let index = folder.join(INDEX_FILE);
        let files = if single.exists() {
            vec![single]
        } else if index.exists() {
            index::shard_files(&index)?
        } else {
            return Err(HfError::NoWeights {
                folder: folder.to_owned(),
            });
        };
        let shards: Vec<Shard> = files
            .iter()
            .map(|file| Shard::open(file))
            .collect::<Result<_, _>>()?;
        let tensors = places(&shards)?;
        Ok(Self {
            folder: folder.to_owned(),
            shards,
            tensors,
        })
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// # Errors
    /// When no op reads the tensor's dtype.
    pub fn tensor(&self, name: &str) -> Result<Option<TensorView<'_>>, HfError> {
        self.view(name, format_of, "F32, F16, BF16, and F8_E4M3 of matrices")
    }

    /// A tensor of bytes.
    ///
    /// # Errors
    /// When it is one of another dtype.
    pub fn bytes(&self, name: &str) -> Result<Option<TensorView<'_, ()>>, HfError> {
        self.view(name, |dtype| (dtype == Dtype::U8).then_some(()), "U8")
    }

    /// The tensor's bytes, if it is of this dtype.
    pub(super) fn of_dtype(&self, name: &str, dtype: Dtype) -> Option<TensorView<'_, ()>> {
        let of_dtype = |found| (found == dtype).then_some(());
        self.view(name, of_dtype, "").ok().flatten()
    }

    /// What `format_of` makes of the tensor's dtype, and its bytes.
    pub(super) fn view<F>(
        &self,
        name: &str,
        format_of: impl FnOnce(Dtype) -> Option<F>,
        supported: &'static str,
    ) -> Result<Option<TensorView<'_, F>>, HfError> {
        let Some((name, place)) = self.tensors.get_key_value(name) else {
            return Ok(None);
        };
        let shard = &self.shards[place.shard];
        let format = format_of(place.dtype).ok_or_else(|| HfError::Dtype {
            path: shard.path().to_owned(),
            name: name.clone(),
            dtype: place.dtype,
            supported,
        })?;
        Ok(Some(TensorView {
            name,
            format,
            rows: place.rows,
            columns: place.columns,
            bytes: &shard.data()[place.start..place.end],
        }))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Of all tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// What the headers say of all tensors, in no order.
    pub fn shapes(&self) -> impl Iterator<Item = (String, TensorShape)> {
        let of_span = |span: &TensorSpan| TensorShape {
            dtype: format!("{:?}", span.dtype),
            rows: span.rows,
            columns: span.columns,
        };
        let tensors = self.tensors.iter();
        tensors.map(move |(name, span)| (name.clone(), of_span(span)))
    }

    /// Each file's path and header bytes.
    pub fn headers(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.shards
            .iter()
            .map(|shard| (shard.path(), shard.header()))
    }
}

fn places(shards: &[Shard]) -> Result<HashMap<String, TensorSpan>, HfError> {
    let mut places = HashMap::new();
    for (index, shard) in shards.iter().enumerate() {
        for (name, info) in shard.tensors() {
            let (columns, leading) = info
                .shape
                .split_last()
                .map_or((1, &[][..]), |(c, l)| (*c, l));
            let place = TensorSpan {
                shard: index,
                dtype: info.dtype,
                // The header was checked: the product of the shape does not overflow.
                rows: leading.iter().product(),
                columns,
                start: info.data_offsets.0,
                end: info.data_offsets.1,
            };
            if places.insert(name.clone(), place).is_some() {
                let path = shard.path().to_owned();
                return Err(HfError::Twice { path, name });
            }
        }
    }
    Ok(places)
}

fn format_of(dtype: Dtype) -> Option<WeightFormat> {
    [
        (Dtype::F32, WeightFormat::F32),
        (Dtype::F16, WeightFormat::F16),
        (Dtype::BF16, WeightFormat::BF16),
    ]
    .into_iter()
    .find_map(|(known, format)| (known == dtype).then_some(format))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
