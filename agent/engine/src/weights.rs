//! Weights as they lie in model files: found by role, checked against the shape the model expects,
//! borrowed from the mapped file. How they are packed is the backend's business.

pub mod digest;
mod draft_names;
mod fp8;
pub mod gguf;
pub mod hf;
mod kv_scales;
mod matrix;
mod mxfp4;
pub mod names;
mod tensor_view;
mod unused;

use pd_compute::WeightFormat;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

pub use draft_names::DraftPlace;
pub use fp8::{Fp8, Fp8Error};
pub use gguf::{Gguf, GgufError};
pub use hf::{HfError, Safetensors};
pub use kv_scales::KvScaleError;
pub use matrix::Matrix;
pub use mxfp4::Mxfp4;
pub use names::{DraftNames, DraftRole};
pub use names::{ExpertRole, ExpertsRole, GgufNames, HfNames, LayerRole, Role};
pub use tensor_view::{TensorShape, TensorView};

/// The weights of one model, and how its family names and stores them in this kind of file.
#[derive(Debug)]
pub enum Weights {
    Hf {
        files: Safetensors,
        names: HfNames,
        /// The names of the decoder's tensors begin with it.
        prefix: &'static str,
        /// How those of E4M3 are scaled, if there are any.
        fp8: Option<Fp8>,
        /// Where the draft layer is, if it is read.
        draft: Option<DraftPlace>,
    },
    Gguf {
        file: Gguf,
        names: GgufNames,
        /// Rows of Q and K are stored in the order of an interleaved rotation.
        permuted_qk: bool,
    },
}

/// Why a tensor that the model needs is refused.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error(transparent)]
    Hf(#[from] HfError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Fp8(#[from] Fp8Error),
    #[error(transparent)]
    KvScale(#[from] KvScaleError),
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

/// Where decoders lie in a folder: alone, or beside the towers of a multimodal model.
const PREFIXES: [&str; 3] = ["model.", "model.language_model.", "language_model.model."];

impl Weights {
    /// The weights of a folder. The prefix of the decoder's names is found by looking for the embedding and the last
    /// norm; either may be missing from a damaged folder, which is then named rightly.
    pub fn of_folder(files: Safetensors, names: HfNames, fp8: Option<Fp8>) -> Self {
        let holds_decoder = |prefix: &&str| {
            let roles = [Role::Embedding, Role::OutputNorm];
            let mut ends = roles.into_iter().filter_map(|role| names(role, prefix));
            ends.any(|name| files.contains(&name))
        };
        let prefix = PREFIXES.into_iter().find(holds_decoder);
        Self::Hf {
            prefix: prefix.unwrap_or(PREFIXES[0]),
            files,
            names,
            fp8,
            draft: None,
        }
    }

    /// With the names of a draft layer. A file of another kind has none.
    pub fn with_draft(self, place: DraftPlace) -> Self {
        match self {
            Self::Hf {
                files,
                names,
                prefix,
                fp8,
                draft: _,
            } => Self::Hf {
                files,
                names,
                prefix,
                fp8,
                draft: Some(place),
            },
            Self::Gguf { .. } => self,
        }
    }

    /// The folder or file, for messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::Hf { files, .. } => files.path(),
            Self::Gguf { file, .. } => file.path(),
        }
    }

    /// The tensor's name in this kind of file, if such files have one of the role.
    pub fn name(&self, role: Role) -> Option<String> {
        match self {
            Self::Hf {
                names,
                prefix,
                draft,
                ..
            } => {
                let of_draft = draft.and_then(|place| place.name(role, *names, prefix));
                of_draft.or_else(|| names(role, prefix))
            }
            Self::Gguf { names, .. } => names(role),
        }
    }

    /// Whether there is a tensor of the role, of any dtype.
    pub fn contains(&self, role: Role) -> bool {
        let name = self.name(role);
        name.is_some_and(|name| match self {
            Self::Hf { files, .. } => files.contains(&name),
            Self::Gguf { file, .. } => file.tensor(&name).is_some(),
        })
    }

    /// # Errors
    /// When no op reads the tensor's dtype.
    pub fn tensor(&self, role: Role) -> Result<Option<TensorView<'_>>, WeightsError> {
        let Some(name) = self.name(role) else {
            return Ok(None);
        };
        Ok(match self {
            Self::Hf { files, .. } => files.tensor(&name)?,
            Self::Gguf { file, .. } => file.tensor(&name),
        })
    }

    fn require(&self, role: Role) -> Result<TensorView<'_>, WeightsError> {
        self.tensor(role)?.ok_or_else(|| self.missing(role))
    }

    fn missing(&self, role: Role) -> WeightsError {
        WeightsError::Missing {
            file: self.path().display().to_string(),
            name: self.name(role).unwrap_or_else(|| format!("{role:?}")),
        }
    }

    fn check_shape<F>(
        &self,
        tensor: &TensorView<'_, F>,
        rows: usize,
        columns: usize,
    ) -> Result<(), WeightsError> {
        if (tensor.rows, tensor.columns) == (rows, columns) {
            return Ok(());
        }
        Err(WeightsError::Shape {
            file: self.path().display().to_string(),
            name: tensor.name.to_owned(),
            rows: tensor.rows,
            columns: tensor.columns,
            expected_rows: rows,
            expected_columns: columns,
        })
    }

    /// The `rows × columns` matrix of the blocks and the scales of two roles.
    ///
    /// # Errors
    /// When one of the tensors is missing or of another shape.
    pub fn mxfp4(
        &self,
        [blocks, scales]: [Role; 2],
        rows: usize,
        columns: usize,
    ) -> Result<Mxfp4<'_>, WeightsError> {
        let per_row = columns.div_ceil(mxfp4::BLOCK_LEN);
        let blocks = self.bytes(blocks, rows * per_row, mxfp4::BLOCK_BYTES)?;
        let scales = self.bytes(scales, rows, per_row)?;
        // No matrix has rows that end within a block.
        let whole = TensorView {
            rows,
            columns: per_row * mxfp4::BLOCK_LEN,
            ..blocks
        };
        self.check_shape(&whole, rows, columns)?;
        let matrix = Mxfp4 { blocks, scales };
        match matrix.nan() {
            None => Ok(matrix),
            Some((row, column)) => Err(Fp8Error::NotANumber {
                file: self.path().display().to_string(),
                name: scales.name.to_owned(),
                row,
                column,
            }
            .into()),
        }
    }

    fn bytes(
        &self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<TensorView<'_, ()>, WeightsError> {
        let bytes = match (self, self.name(role)) {
            (Self::Hf { files, .. }, Some(name)) => files.bytes(&name)?,
            (Self::Hf { .. } | Self::Gguf { .. }, _) => None,
        };
        let bytes = bytes.ok_or_else(|| self.missing(role))?;
        self.check_shape(&bytes, rows, columns)?;
        Ok(bytes)
    }

    /// The `rows × columns` matrix of `role`.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn matrix(
        &self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<Matrix<'_>, WeightsError> {
        if let Some(matrix) = self.fp8_matrix(role, rows, columns)? {
            return Ok(matrix);
        }
        let tensor = self.require(role)?;
        self.check_shape(&tensor, rows, columns)?;
        Ok(Matrix::unscaled(&tensor, Cow::Borrowed(tensor.bytes)))
    }

    /// The matrix of a role whose `heads × head_dim` rows are rotated, in the order of a rotation
    /// by halves.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn rotated(
        &self,
        role: Role,
        (heads, head_dim): (usize, usize),
        columns: usize,
    ) -> Result<Matrix<'_>, WeightsError> {
        let matrix = self.matrix(role, heads * head_dim, columns)?;
        Ok(match self {
            Self::Gguf {
                permuted_qk: true, ..
            } => matrix.unpermuted(heads, 0),
            Self::Gguf { .. } | Self::Hf { .. } => matrix,
        })
    }

    /// The values of a vector of `len`.
    ///
    /// # Errors
    /// When it is missing, of another length or quantised.
    pub fn vector(&self, role: Role, len: usize) -> Result<Vec<f32>, WeightsError> {
        self.values(role, 1, len)
    }

    /// The values of a `rows × columns` matrix, row by row.
    ///
    /// # Errors
    /// When it is missing, of another shape or quantised.
    pub fn values(
        &self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<f32>, WeightsError> {
        let tensor = self.matrix(role, rows, columns)?;
        tensor.to_f32().ok_or_else(|| WeightsError::VectorFormat {
            file: self.path().display().to_string(),
            name: tensor.name().to_owned(),
            format: tensor.format(),
        })
    }

    /// All tensors by their names.
    pub fn shapes(&self) -> BTreeMap<String, TensorShape> {
        match self {
            Self::Hf { files, .. } => files.shapes().collect(),
            Self::Gguf { file, .. } => file.shapes().collect(),
        }
    }

    /// The tensors that are not among `used`, counted by the beginning of their names: a tower of
    /// a multimodal model, or a sign that the configuration describes another network.
    pub fn unused(&self, used: &HashSet<String>) -> BTreeMap<String, usize> {
        match self {
            Self::Hf { files, .. } => unused::by_prefix(files.names(), used),
            Self::Gguf { file, .. } => unused::by_prefix(file.names(), used),
        }
    }
}

#[cfg(test)]
mod tests;
