//! Compute: the ops a model is made of, over buffers that live on a device.
//!
//! [`ops`] holds the contract (`Backend`), [`cpu`] the backend that needs no GPU. This crate knows
//! no request, no page allocation and no transfer; its callers own every buffer and every index.

#![allow(
    unsafe_code,
    reason = "kernels, device memory and mapped files are the purpose of this crate"
)]

pub mod buffer;
pub mod cpu;
pub mod cuda;
pub mod device_types;
pub mod dtype;
pub mod e4m3;
pub mod error;
pub mod export;
pub mod k_order;
pub mod kv;
pub mod mapped_file;
pub mod ops;
pub mod quant;
pub mod sampling;
pub mod states;
#[cfg(feature = "tch")]
pub mod tch;
pub mod weight;

pub use buffer::{DeviceBuffer, Extent, HostBytes, Ticket};
pub use device_types::{DeviceTypes, ExpertMatrices, Matrix, WeightMatrix};
pub use dtype::{DType, WeightFormat};
pub use error::ComputeError;
pub use export::{ExportHandle, MemoryExport, Reach};
pub use k_order::{KOrder, KShares, Packing};
pub use kv::{KvCutView, KvGroupView, KvScales, NO_SLOT};
pub use mapped_file::MappedFile;
pub use ops::{
    AttnPaged, AttnValues, Backend, BatchView, CausalConv, CopyDirection, CopyPages, CopyStates,
    Embed, Epilogue, ExpertBias, ExpertGroups, ExpertSource, GatedNorm, GatherRows, GdnScan,
    GroupScore, HeadLinear, HeadRows, KvNeeds, Linear, MlaPrep, MoeExperts, MoeFinish, MoeRoute,
    NO_ROW, OpFeature, OpNeeds, QkvPrep, RmsNorm, RopeTable, Routing, SHORT_DELTA_KEYS_MAX, Sample,
    Scores, SharedRows, Strided, WriteMode,
};
pub use sampling::{
    LogitBias, NO_MASK, NO_TOKEN, SampleOut, SamplingRow, SamplingView, TokenCount, mask_words,
};
pub use states::{StateRows, StateTensorView, StateView};
pub use weight::WeightSource;
