//! In which format and form a stored weight is packed.

use super::{compact, layout};
use crate::cpu::isa::Isa;
use crate::dtype::{ComputeDtype, WeightFormat};

/// What a weight is packed for.
#[derive(Clone, Copy, Debug)]
pub struct PackTarget {
    pub dtype: ComputeDtype,
    /// The least that may multiply it, where a form is not for all.
    pub isa: Isa,
}

/// How bfloat16 weights lie that multiply bfloat16 activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bf16Form {
    Whole,
    /// See [`compact`]; for [`Isa::Avx512Bf16`] and what has it.
    Compact,
}

// === impl PackTarget ===

impl PackTarget {
    /// For every instruction set.
    pub fn any(dtype: ComputeDtype) -> Self {
        Self {
            dtype,
            isa: Isa::Scalar,
        }
    }

    /// Forms of bfloat16 to try, the least first; any weight takes the last.
    pub(super) fn bf16_forms(self) -> &'static [Bf16Form] {
        if self.isa >= Isa::Avx512Bf16 {
            &[Bf16Form::Compact, Bf16Form::Whole]
        } else {
            &[Bf16Form::Whole]
        }
    }
}

/// The format that a `stored` one is packed in for activations of `dtype`, and its form if both are bfloat16: `form`,
/// where rows of `k` values take it.
pub(super) fn packed_form(
    stored: WeightFormat,
    k: usize,
    (dtype, form): (ComputeDtype, Bf16Form),
) -> (WeightFormat, Option<Bf16Form>) {
    match (stored, dtype) {
        (WeightFormat::F32 | WeightFormat::F16 | WeightFormat::BF16, ComputeDtype::BF16) => {
            let form = if compact::fits(k) {
                form
            } else {
                Bf16Form::Whole
            };
            (WeightFormat::BF16, Some(form))
        }
        (stored, ComputeDtype::F32 | ComputeDtype::BF16) => (stored, None),
    }
}

/// Bytes of a block of rows of `k` values.
pub(super) fn block_bytes(format: WeightFormat, bf16: Option<Bf16Form>, k: usize) -> usize {
    match bf16 {
        Some(Bf16Form::Compact) => compact::block_bytes(k),
        None | Some(Bf16Form::Whole) => layout::block_bytes(format, k),
    }
}
