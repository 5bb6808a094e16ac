//! Element types of device buffers and storage formats of weights.

/// Element type of a device buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    F16,
    BF16,
    U32,
    U8,
}

/// What linears multiply in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComputeDtype {
    /// f32 activations; every weight has exactly the file's value.
    F32,
    /// Activations and unquantised weights are rounded to bfloat16; products are summed in f32.
    /// Quantised weights stay exact and multiply f32 activations.
    BF16,
}

/// How a weight's rows are stored in the model file. Each row of `k` values is a whole number of
/// blocks. The quantised names and layouts are GGUF's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q4K,
    Q6K,
}

// === impl DType ===

impl DType {
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 => 1,
        }
    }
}

// === impl ComputeDtype ===

impl ComputeDtype {
    /// Element type of activations.
    pub const fn activations(self) -> DType {
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
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q4K => 144,
            Self::Q6K => 210,
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
