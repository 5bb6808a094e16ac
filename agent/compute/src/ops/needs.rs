//! What a model needs of a backend, asked once before its weights are read, so that a backend may
//! lag behind the others and say so.
//!
//! A new op gets a variant of [`OpFeature`] and a default body on
//! [`Backend`](crate::ops::Backend), which [`Backend::check_ops`](crate::ops::Backend::check_ops)
//! keeps from being reached; a new form of an op gets a variant. A backend says of each whether it
//! has it; the CPU backend and libtorch's, which the others are held against, have all.

use crate::dtype::DType;
use crate::error::ComputeError;
use std::collections::BTreeSet;

/// Forms of ops, and ops, beyond those of a dense decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpFeature {
    /// [`AttnPaged::window`](crate::ops::AttnPaged::window).
    AttnWindow,
    /// [`AttnPaged::sinks`](crate::ops::AttnPaged::sinks).
    AttnSinks,
    /// [`AttnPaged::softcap`](crate::ops::AttnPaged::softcap).
    AttnSoftCap,
    /// [`AttnPaged::gate`](crate::ops::AttnPaged::gate).
    AttnGate,
    /// [`Linear::bias`](crate::ops::Linear::bias).
    LinearBias,
    /// [`Epilogue::GeluTanhGlu`](crate::ops::Epilogue::GeluTanhGlu).
    GeluTanhGlu,
    /// [`Epilogue::ClampedSwiGlu`](crate::ops::Epilogue::ClampedSwiGlu).
    ClampedSwiGlu,
    /// [`Epilogue::SoftCap`](crate::ops::Epilogue::SoftCap).
    LogitSoftCap,
    /// [`QkvPrep::row_stride`](crate::ops::QkvPrep::row_stride) beyond q, k and v.
    StridedQkv,
    /// [`Embed::scale`](crate::ops::Embed::scale).
    EmbedScale,
    /// [`WriteMode::Add`](crate::ops::WriteMode::Add) of a norm.
    NormAdd,
    /// [`MoeRoute`](crate::ops::MoeRoute), [`MoeExperts`](crate::ops::MoeExperts) and
    /// [`MoeFinish`](crate::ops::MoeFinish).
    Experts,
    /// [`CausalConv`](crate::ops::CausalConv), [`GdnScan`](crate::ops::GdnScan),
    /// [`GatedNorm`](crate::ops::GatedNorm) and [`CopyStates`](crate::ops::CopyStates).
    GatedDelta,
    /// [`GdnScan`](crate::ops::GdnScan) with k heads of more than [`SHORT_DELTA_KEYS_MAX`] elements.
    LongDeltaKeys,
    /// [`MlaPrep`](crate::ops::MlaPrep), [`HeadLinear`](crate::ops::HeadLinear) and
    /// [`AttnValues::OfKey`](crate::ops::AttnValues::OfKey).
    LatentAttention,
}

/// The longest k head of gated delta layers that is not long.
pub const SHORT_DELTA_KEYS_MAX: usize = 256;

/// What a model needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpNeeds {
    pub features: BTreeSet<OpFeature>,
    /// Of each group of the KV pool.
    pub kv: Vec<KvNeeds>,
}

/// A KV pool that attention reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvNeeds {
    pub dtype: DType,
    /// Elements of a head.
    pub head_dim: usize,
}

// === impl OpFeature ===

impl OpFeature {
    /// For messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttnWindow => "sliding-window attention",
            Self::AttnSinks => "attention sinks",
            Self::AttnSoftCap => "soft-capped attention scores",
            Self::AttnGate => "gated attention",
            Self::LinearBias => "biases of linears",
            Self::GeluTanhGlu => "GELU-gated feed-forward layers",
            Self::ClampedSwiGlu => "clamped SwiGLU",
            Self::LogitSoftCap => "soft-capped logits",
            Self::StridedQkv => "qkv rows with more than q, k and v",
            Self::EmbedScale => "scaled embeddings",
            Self::NormAdd => "norms added to the residual stream",
            Self::Experts => "mixtures of experts",
            Self::LongDeltaKeys => "gated delta layers with k heads of more than 256 elements",
            Self::GatedDelta => "gated delta layers",
            Self::LatentAttention => "multi-head latent attention",
        }
    }
}

// === impl OpNeeds ===

impl OpNeeds {
    /// Holds the needs against what a backend has.
    ///
    /// # Errors
    /// Names all features that are missing, or the KV pool that `check_kv` refuses.
    pub(crate) fn check_against(
        &self,
        backend: &'static str,
        has: impl Fn(OpFeature) -> bool,
        check_kv: impl Fn(KvNeeds) -> Result<(), String>,
    ) -> Result<(), ComputeError> {
        let missing = self.features.iter().filter(|&&feature| !has(feature));
        let missing: Vec<_> = missing.map(|feature| feature.name()).collect();
        if !missing.is_empty() {
            return Err(ComputeError::OpsMissing {
                backend,
                missing: missing.join(", "),
            });
        }
        self.kv.iter().try_for_each(|kv| {
            check_kv(*kv).map_err(|reason| ComputeError::KvUnsupported {
                backend,
                dtype: kv.dtype,
                head_dim: kv.head_dim,
                reason,
            })
        })
    }
}

#[cfg(test)]
mod tests;
