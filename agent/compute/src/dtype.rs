//! Element types of device buffers and storage formats of weights.

use std::num::NonZero;

/// Element type of a device buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    F16,
    BF16,
    U32,
    U8,
    /// See [`crate::e4m3`].
    F8E4M3,
}

/// What linears multiply in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComputeDtype {
    /// Every weight has exactly the file's value. Floating-point weights multiply f32 activations; integer codes
    /// multiply activations of sixteen bits on the CPU, rounded by about 2⁻¹⁶ of the greatest of thirty-two at most.
    F32,
    /// Activations of unquantised weights, and those weights, are rounded to bfloat16; products are summed in f32.
    /// Quantised weights are multiplied as in F32.
    BF16,
}

/// How a weight's rows are stored in the model file. Each row of `k` values is a whole number of
/// blocks. The quantised names and layouts are GGUF's, but for F8E4M3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    F32,
    F16,
    BF16,
    /// Bytes of E4M3 (a sign, four bits of exponent, three of mantissa, no infinities). Each `scale_len` values of a
    /// row share a scale beside the bytes, the last of them maybe fewer.
    F8E4M3 {
        scale_len: NonZero<usize>,
    },
    Q8_0,
    Q4_0,
    Q4_1,
    Q4K,
    Q6K,
    /// A byte of exponent (a power of two, less 127), then 32 values of E2M1: a sign, two bits of exponent, one of
    /// mantissa.
    Mxfp4,
}

// === impl DType ===

impl DType {
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 | Self::F8E4M3 => 1,
        }
    }
}

// === impl ComputeDtype ===

impl ComputeDtype {
    /// The element type: of a GPU's activations, and of a KV pool, unless a flag names another.
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::BF16 => DType::BF16,
        }
    }

    /// SGLang's word of `--dtype`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::BF16 => "bfloat16",
        }
    }
}

// === impl WeightFormat ===

impl WeightFormat {
    /// Values per block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::F8E4M3 { .. } => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Mxfp4 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::F8E4M3 { .. } => 1,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q4K => 144,
            Self::Q6K => 210,
            Self::Mxfp4 => 17,
        }
    }

    /// Scales of a row of `k` values that lie beside its bytes.
    pub const fn scales_per_row(self, k: usize) -> usize {
        match self {
            Self::F8E4M3 { scale_len } => k.div_ceil(scale_len.get()),
            Self::F32
            | Self::F16
            | Self::BF16
            | Self::Q8_0
            | Self::Q4_0
            | Self::Q4_1
            | Self::Q4K
            | Self::Q6K
            | Self::Mxfp4 => 0,
        }
    }

    /// Bytes of a row of `k` values, or `None` when `k` is not a whole number of blocks.
    pub const fn row_bytes(self, k: usize) -> Option<usize> {
        if k.is_multiple_of(self.block_len()) {
            (k / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}
