//! What can go wrong below the ops: memory, threads, weights that do not fit, a faulted device.
//! Bad shapes are programmer errors and panic where the op is enqueued.

use crate::dtype::{DType, WeightFormat};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    #[error("{call} of {bytes} bytes for {what} failed: {reason}; lower the size or free memory")]
    OutOfMemory {
        call: &'static str,
        what: String,
        bytes: usize,
        reason: String,
    },
    #[error("thread {name} did not start: {reason}")]
    ThreadStart { name: String, reason: String },
    #[error(
        "weight {name}: {bytes} bytes hold no {n}×{k} matrix of {format:?}; {expected} are needed"
    )]
    WeightSize {
        name: String,
        format: WeightFormat,
        n: usize,
        k: usize,
        bytes: usize,
        expected: usize,
    },
    #[error(
        "weight {name}: rows of {k} values are no whole number of {format:?} blocks of {block_len}"
    )]
    WeightBlocks {
        name: String,
        format: WeightFormat,
        k: usize,
        block_len: usize,
    },
    #[error("weight {name}: {reason}")]
    WeightShape { name: String, reason: String },
    #[error("op {op} faulted: {message}; the queue runs nothing after it")]
    DeviceFault { op: &'static str, message: String },
    #[error("the queue has {limit} commands waiting; wait on a ticket before enqueueing more")]
    QueueFull { limit: usize },
    #[error("the buffer {what} cannot be exported: {reason}")]
    NotExportable { what: String, reason: String },
    #[error(
        "the {backend} backend lacks {missing}, which this model needs; choose another device or model"
    )]
    OpsMissing {
        backend: &'static str,
        missing: String,
    },
    #[error(
        "the {backend} backend takes no KV pool of {dtype:?} with heads of {head_dim}: {reason}"
    )]
    KvUnsupported {
        backend: &'static str,
        dtype: DType,
        head_dim: usize,
        reason: String,
    },
    #[error("this processor lacks {isa}; unset the override or name one it has")]
    IsaMissing { isa: &'static str },
}
