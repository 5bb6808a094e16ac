//! Matrices of E4M3 with scales, as DeepSeek's and Qwen's FP8 checkpoints have them: `X.weight` in bytes, and for each
//! block of it a number in `X.weight_scale_inv` that its values are multiplied by. Other files have one number for all,
//! in `X.weight_scale`.
//!
//! A block's scale is given to each of its rows, so that rows can be taken and reordered one by one. What is no number
//! is refused here, with its place: kernels do not look.

use super::{LayerRole, Matrix, Role, TensorView, Weights, WeightsError};
use half::{bf16, f16};
use pd_compute::WeightFormat;
use pd_compute::quant::power_of_two;
use safetensors::Dtype;
use serde::Serialize;
use std::num::NonZero;

/// Which values of a folder's matrices of E4M3 share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fp8 {
    /// Rows and columns of a block.
    Blocks([NonZero<usize>; 2]),
    /// All of a matrix.
    WholeMatrix,
}

/// Why a matrix of E4M3 is refused.
#[derive(Debug, thiserror::Error)]
pub enum Fp8Error {
    #[error(
        "{file}: tensor {name} is F8_E4M3, but config.json has no quantization_config of quant_method fp8 that says \
         which values share a scale; use the config.json that came with the weights"
    )]
    Undeclared { file: String, name: String },
    #[error(
        "{file}: tensor {name} has all experts in F8_E4M3; a tensor for each expert is supported"
    )]
    JoinedExperts { file: String, name: String },
    #[error(
        "{file}: tensor {name} is no number at row {row}, column {column}; it is corrupt, fetch it again"
    )]
    NotANumber {
        file: String,
        name: String,
        row: usize,
        column: usize,
    },
    #[error(
        "{file}: tensor {name} is {scale:e} at row {row}, column {column}; a scale is a number of at most {SCALE_MAX:e}"
    )]
    Scale {
        file: String,
        name: String,
        scale: f32,
        row: usize,
        column: usize,
    },
}

/// Times a value of E4M3 it is finite, and times what packing multiplies it by.
const SCALE_MAX: f32 = 1e34;
/// Codes that are looked through at once.
const CODES_AT_ONCE: usize = 4096;

// === impl Weights ===

impl Weights {
    /// The matrix of a role, if it is one of E4M3.
    pub(super) fn fp8_matrix(
        &self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<Option<Matrix<'_>>, WeightsError> {
        let (Self::Hf { files, fp8, .. }, Some(name)) = (self, self.name(role)) else {
            return Ok(None);
        };
        let Some(codes) = files.of_dtype(&name, Dtype::F8_E4M3) else {
            return Ok(None);
        };
        self.check_shape(&codes, rows, columns)?;
        let file = || self.path().display().to_string();
        if matches!(role, Role::Layer(_, LayerRole::Experts(_))) {
            return Err(Fp8Error::JoinedExperts { file: file(), name }.into());
        }
        let Some(fp8) = fp8 else {
            return Err(Fp8Error::Undeclared { file: file(), name }.into());
        };
        if let Some(at) = nan_of(codes.bytes) {
            return Err(Fp8Error::NotANumber {
                file: file(),
                name,
                row: at / columns,
                column: at % columns,
            }
            .into());
        }
        self.scaled(&codes, *fp8).map(Some)
    }

    fn scaled<'a>(
        &'a self,
        codes: &TensorView<'a, ()>,
        fp8: Fp8,
    ) -> Result<Matrix<'a>, WeightsError> {
        let (rows, columns) = (codes.rows, codes.columns);
        let (names, block) = match fp8 {
            Fp8::Blocks(block) => (&["_scale_inv"][..], block.map(NonZero::get)),
            Fp8::WholeMatrix => (&["_scale", "_scale_inv"][..], [rows, columns]),
        };
        let (scales, tensor) = self.scales(codes.name, names)?;
        let [block_rows, block_columns] = block.map(|len| len.max(1));
        let per_row = columns.div_ceil(block_columns);
        self.check_shape(&tensor, rows.div_ceil(block_rows), per_row)?;
        let is_fit = |scale: f32| scale.abs() <= SCALE_MAX;
        if let Some(at) = scales.iter().position(|scale| !is_fit(*scale)) {
            return Err(Fp8Error::Scale {
                file: self.path().display().to_string(),
                name: tensor.name.to_owned(),
                scale: scales[at],
                row: at / per_row,
                column: at % per_row,
            }
            .into());
        }
        let of_row = |row: usize| &scales[row / block_rows * per_row..][..per_row];
        let of_rows = (0..rows).flat_map(of_row).copied().collect();
        let scale_len = NonZero::new(block_columns.min(columns)).unwrap_or(NonZero::<usize>::MIN);
        let values = TensorView {
            name: codes.name,
            format: WeightFormat::F8E4M3 { scale_len },
            rows,
            columns,
            bytes: codes.bytes,
        };
        Ok(Matrix::scaled(&values, of_rows, tensor.name))
    }

    /// The values of the one tensor whose name goes on in one of these ways.
    fn scales(
        &self,
        name: &str,
        endings: &[&str],
    ) -> Result<(Vec<f32>, TensorView<'_, ()>), WeightsError> {
        let Self::Hf { files, .. } = self else {
            unreachable!("only folders have scales of their own");
        };
        let names: Vec<_> = endings.iter().map(|end| format!("{name}{end}")).collect();
        let view = |name: &String| files.view(name, reader, SCALE_DTYPES).transpose();
        let found = names.iter().find_map(view);
        let found = found.ok_or_else(|| WeightsError::Missing {
            file: self.path().display().to_string(),
            name: names[0].clone(),
        })??;
        let TensorView {
            name,
            format: read,
            rows,
            columns,
            bytes,
        } = found;
        let tensor = TensorView {
            name,
            format: (),
            rows,
            columns,
            bytes,
        };
        Ok((read(bytes), tensor))
    }
}

/// Where the first code is that stands for no number.
fn nan_of(codes: &[u8]) -> Option<usize> {
    let is_nan = |code: &u8| code & 0x7f == 0x7f;
    // All of a chunk, so that the compiler may look at many at once.
    let has_nan = |chunk: &[u8]| chunk.iter().fold(false, |found, code| found | is_nan(code));
    let chunk = codes.chunks(CODES_AT_ONCE).position(has_nan)?;
    let first = chunk * CODES_AT_ONCE;
    let within = codes[first..].iter().position(is_nan)?;
    Some(first + within)
}

pub(super) type Reader = fn(&[u8]) -> Vec<f32>;

pub(super) const SCALE_DTYPES: &str = "F32, F16, BF16, F8_E8M0, U8";

/// Reads the numbers of a tensor of scales. Bytes are exponents of two.
pub(super) fn reader(dtype: Dtype) -> Option<Reader> {
    let readers: [(Dtype, Reader); 5] = [
        (Dtype::F32, |bytes| {
            let words = bytes.as_chunks().0.iter();
            words.map(|word| f32::from_le_bytes(*word)).collect()
        }),
        (Dtype::F16, |bytes| {
            let pairs = bytes.as_chunks().0.iter();
            pairs
                .map(|pair| f16::from_le_bytes(*pair).to_f32())
                .collect()
        }),
        (Dtype::BF16, |bytes| {
            let pairs = bytes.as_chunks().0.iter();
            pairs
                .map(|pair| bf16::from_le_bytes(*pair).to_f32())
                .collect()
        }),
        (Dtype::F8_E8M0, powers_of_two),
        (Dtype::U8, powers_of_two),
    ];
    let known = readers.into_iter().find(|(known, _)| *known == dtype);
    known.map(|(_, reader)| reader)
}

fn powers_of_two(exponents: &[u8]) -> Vec<f32> {
    exponents.iter().copied().map(power_of_two).collect()
}

#[cfg(test)]
mod tests;
