//! Weights as they lie in model files: found by role, checked against the shape the model expects,
//! borrowed from the mapped file. How they are packed is the backend's business.

pub mod digest;
pub mod gguf;
pub mod hf;
pub mod names;

use half::{bf16, f16};
use pd_compute::{WeightFormat, WeightSource};
use std::borrow::Cow;
use std::path::Path;

pub use gguf::{Gguf, GgufError};
pub use hf::{HfError, Safetensors};
pub use names::TensorRole;

/// The weights of one model.
#[derive(Debug)]
pub enum Weights {
    Hf(Safetensors),
    Gguf(Gguf),
}

/// A tensor in a mapped file. A vector has one row.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    pub name: &'a str,
    pub format: WeightFormat,
    pub rows: usize,
    pub columns: usize,
    pub bytes: &'a [u8],
}

/// A matrix ready to be packed: rows in the order the model wants them.
#[derive(Debug)]
pub struct Matrix<'a> {
    name: &'a str,
    format: WeightFormat,
    rows: usize,
    columns: usize,
    bytes: Cow<'a, [u8]>,
}

/// Why a tensor that the model needs is refused.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error(transparent)]
    Hf(#[from] HfError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("{file}: tensor {name} is missing; the file is incomplete or of another family")]
    Missing { file: String, name: String },
    #[error(
        "{file}: tensor {name} is {rows}×{columns}, but the configuration asks for \
         {expected_rows}×{expected_columns}"
    )]
    Shape {
        file: String,
        name: String,
        rows: usize,
        columns: usize,
        expected_rows: usize,
        expected_columns: usize,
    },
    #[error("{file}: tensor {name} is a vector in {format:?}; F32, F16 and BF16 are supported")]
    VectorFormat {
        file: String,
        name: String,
        format: WeightFormat,
    },
}

// === impl Weights ===

impl Weights {
    /// The folder or file, for messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::Hf(safetensors) => safetensors.path(),
            Self::Gguf(gguf) => gguf.path(),
        }
    }

    /// The tensor's name in this kind of file.
    fn name(&self, role: TensorRole) -> String {
        match self {
            Self::Hf(_) => role.hf_name(),
            Self::Gguf(_) => role.gguf_name(),
        }
    }

    pub fn tensor(&self, role: TensorRole) -> Option<TensorView<'_>> {
        let name = self.name(role);
        match self {
            Self::Hf(safetensors) => safetensors.tensor(&name),
            Self::Gguf(gguf) => gguf.tensor(&name),
        }
    }

    fn require(&self, role: TensorRole) -> Result<TensorView<'_>, WeightsError> {
        self.tensor(role).ok_or_else(|| WeightsError::Missing {
            file: self.path().display().to_string(),
            name: self.name(role),
        })
    }

    /// The `rows × columns` matrix of `role`.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn matrix(
        &self,
        role: TensorRole,
        rows: usize,
        columns: usize,
    ) -> Result<Matrix<'_>, WeightsError> {
        let tensor = self.require(role)?;
        if (tensor.rows, tensor.columns) != (rows, columns) {
            return Err(WeightsError::Shape {
                file: self.path().display().to_string(),
                name: tensor.name.to_owned(),
                rows: tensor.rows,
                columns: tensor.columns,
                expected_rows: rows,
                expected_columns: columns,
            });
        }
        Ok(Matrix {
            name: tensor.name,
            format: tensor.format,
            rows,
            columns,
            bytes: Cow::Borrowed(tensor.bytes),
        })
    }

    /// The values of a vector of `len`.
    ///
    /// # Errors
    /// When it is missing, of another length or quantised.
    pub fn vector(&self, role: TensorRole, len: usize) -> Result<Vec<f32>, WeightsError> {
        let tensor = self.matrix(role, 1, len)?;
        tensor.to_f32().ok_or_else(|| WeightsError::VectorFormat {
            file: self.path().display().to_string(),
            name: tensor.name.to_owned(),
            format: tensor.format,
        })
    }
}

// === impl Matrix ===

impl Matrix<'_> {
    pub fn source(&self) -> WeightSource<'_> {
        WeightSource {
            name: self.name,
            format: self.format,
            n: self.rows,
            k: self.columns,
            bytes: &self.bytes,
        }
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Undoes llama.cpp's order of Q and K rows, which pairs dimension i of a head with i + half
    /// as neighbours. Rows move whole, so quantised values stay as they are.
    #[must_use]
    pub fn unpermuted(self, heads: usize) -> Self {
        let row_bytes = self.bytes.len() / self.rows;
        let head_dim = self.rows / heads;
        let half = head_dim / 2;
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for row in 0..self.rows {
            let (head, dim) = (row / head_dim, row % head_dim);
            let from = head * head_dim + (dim % half) * 2 + dim / half;
            bytes.extend_from_slice(&self.bytes[from * row_bytes..][..row_bytes]);
        }
        Self {
            bytes: Cow::Owned(bytes),
            ..self
        }
    }

    /// The values, or `None` for a quantised format.
    fn to_f32(&self) -> Option<Vec<f32>> {
        let bytes = &self.bytes;
        let pairs = || bytes.as_chunks::<2>().0.iter();
        let values = match self.format {
            WeightFormat::F32 => {
                let words = bytes.as_chunks::<4>().0.iter();
                words.map(|word| f32::from_le_bytes(*word)).collect()
            }
            WeightFormat::F16 => pairs()
                .map(|pair| f16::from_le_bytes(*pair).to_f32())
                .collect(),
            WeightFormat::BF16 => pairs()
                .map(|pair| bf16::from_le_bytes(*pair).to_f32())
                .collect(),
            WeightFormat::Q8_0
            | WeightFormat::Q4_0
            | WeightFormat::Q4_1
            | WeightFormat::Q4K
            | WeightFormat::Q6K => return None,
        };
        Some(values)
    }
}

#[cfg(test)]
mod tests;
