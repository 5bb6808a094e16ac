//! What a model's numbers are.

use pd_compute::dtype::ComputeDtype;
use pd_compute::{DType, WeightFormat};

pub(crate) struct Model {
    pub(crate) weights: WeightFormat,
    pub(crate) logits: WeightFormat,
    pub(crate) activations: ComputeDtype,
    pub(crate) kv: DType,
}

// === impl Model ===

impl Model {
    pub(crate) const Q4_1: Self = Self {
        weights: WeightFormat::Q4_1,
        logits: WeightFormat::Q8_0,
        activations: ComputeDtype::F32,
        kv: DType::F32,
    };
    pub(crate) const BF16: Self = Self {
        weights: WeightFormat::BF16,
        logits: WeightFormat::BF16,
        activations: ComputeDtype::BF16,
        kv: DType::BF16,
    };
}
