//! Weights on the device: rows as in the file, in the backend's dtype, joined or interleaved.

mod experts;

use super::kernels::LINEAR_K_STEP;
use super::memory::{CudaBuffer, MemoryKind};
use super::pinned::BLOCK_BYTES_MAX;
use super::shared::Shared;
use crate::device_types::{Matrix, WeightMatrix};
use crate::dtype::{DType, WeightFormat};
use crate::error::ComputeError;
use crate::k_order::{KOrder, Packing};
use crate::weight::{StoredRow, WeightSource};
use half::bf16;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use experts::CudaExperts;
pub(super) use experts::pack_experts;

/// Kernels load rows 16 bytes at a time.
const K_MULTIPLE: usize = 8;
/// What a core packs at a time: large for a copy, and small enough that most matrices keep all cores busy.
const PART_BYTES: usize = 2 << 20;

/// `[n][k]` of a linear.
#[derive(Clone, Debug)]
pub struct CudaLinear {
    pub(super) weight: CudaBuffer,
    pub(super) n: usize,
    pub(super) k: usize,
    order: KOrder,
}

/// `[n][k]` of an embedding.
#[derive(Clone, Debug)]
pub struct CudaEmbedding {
    pub(super) table: CudaBuffer,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl CudaLinear {
    /// As kernels take them: 0 where k is no tree.
    pub(super) fn shares(&self) -> u32 {
        match self.order {
            KOrder::Chain => 0,
            KOrder::Tree(shares) => shares as u32,
        }
    }
}

impl WeightMatrix for CudaLinear {
    fn k_order(&self) -> KOrder {
        self.order
    }
}

impl Matrix for CudaLinear {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }
}

impl Matrix for CudaEmbedding {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }
}

pub(super) fn pack_linear(
    shared: &Shared,
    parts: &[WeightSource<'_>],
    packing: Packing,
) -> Result<CudaLinear, ComputeError> {
    let first = parts.first().expect("a linear has at least one part");
    let interleave = packing.interleaves();
    let k = first.k;
    for part in parts {
        check_shape(part)?;
        if part.k != k {
            let reason = format!("has {} columns, {} has {k}", part.k, first.name);
            return Err(shape_error(part, reason));
        }
        if interleave && part.n != first.n {
            let reason = format!(
                "has {} rows, {} has {}; interleaved parts are equal",
                part.n, first.name, first.n
            );
            return Err(shape_error(part, reason));
        }
    }
    check_columns(first)?;
    let order = packing
        .order()
        .fitting(first, share_unit(shared.config.dtype))?;
    let n = parts.iter().map(|part| part.n).sum();
    let row = |i: usize| {
        if interleave {
            return parts[i % parts.len()].row(i / parts.len());
        }
        let mut row = i;
        for part in parts {
            if row < part.n {
                return part.row(row);
            }
            row -= part.n;
        }
        unreachable!("row {i} of {n}")
    };
    let weight = upload_rows(shared, first, n, row)?;
    Ok(CudaLinear {
        weight,
        n,
        k,
        order,
    })
}

pub(super) fn pack_embedding(
    shared: &Shared,
    table: &WeightSource<'_>,
) -> Result<CudaEmbedding, ComputeError> {
    check_shape(table)?;
    let (n, k) = (table.n, table.k);
    let table = upload_rows(shared, table, n, |i| table.row(i))?;
    Ok(CudaEmbedding { table, n, k })
}

fn shape_error(source: &WeightSource<'_>, reason: String) -> ComputeError {
    ComputeError::WeightShape {
        name: source.name.to_owned(),
        reason,
    }
}

/// Shares of k are multiples of it: products in bfloat16 take as many at a time.
fn share_unit(dtype: DType) -> usize {
    match dtype {
        DType::BF16 => LINEAR_K_STEP,
        DType::F32 | DType::F16 | DType::U32 | DType::U8 | DType::F8E4M3 => 1,
    }
}

/// Refuses rows that kernels cannot load.
fn check_columns(source: &WeightSource<'_>) -> Result<(), ComputeError> {
    let k = source.k;
    if k.is_multiple_of(K_MULTIPLE) {
        return Ok(());
    }
    let reason =
        format!("has {k} columns; the CUDA backend takes multiples of {K_MULTIPLE}, use the CPU's");
    Err(shape_error(source, reason))
}

/// Refuses what is no matrix.
fn check_shape(source: &WeightSource<'_>) -> Result<(), ComputeError> {
    source.row_bytes()?;
    let WeightSource { n, k, .. } = *source;
    if n == 0 || k == 0 {
        let reason = format!("has {n} rows of {k} values; a weight has one at least");
        return Err(shape_error(source, reason));
    }
    Ok(())
}

/// Allocates `n` rows as long as those of `first`, and fills them with what `row` says is stored: each core
/// takes the next part, converts it, and lets the device fetch it while it goes on.
fn upload_rows<'a>(
    shared: &Shared,
    first: &WeightSource<'_>,
    n: usize,
    row: impl Fn(usize) -> StoredRow<'a> + Sync,
) -> Result<CudaBuffer, ComputeError> {
    shared.fault.check()?;
    let WeightSource { name, k, .. } = *first;
    let dtype = shared.config.dtype;
    let row_bytes = k.saturating_mul(dtype.size_bytes());
    if u32::try_from(n).is_err() || row_bytes > BLOCK_BYTES_MAX {
        let reason = format!(
            "makes {n} rows of {k} values; the CUDA backend takes up to {} rows of {} bytes",
            u32::MAX,
            BLOCK_BYTES_MAX
        );
        return Err(shape_error(first, reason));
    }
    let buffer = CudaBuffer::alloc(&shared.driver, MemoryKind::Device, name, dtype, n * k)?;
    let part_rows = (PART_BYTES / row_bytes).max(1);
    let next = AtomicUsize::new(0);
    let failure = OnceLock::new();
    let pack = || {
        let mut values = vec![0.0; k];
        while failure.get().is_none() {
            let begin = next.fetch_add(part_rows, Ordering::Relaxed);
            if begin >= n {
                break;
            }
            let rows = begin..n.min(begin + part_rows);
            let to = buffer.addr() + (begin * row_bytes) as u64;
            let uploaded = shared.upload_with(to, rows.len() * row_bytes, |part| {
                for (i, out) in rows.zip(part.chunks_exact_mut(row_bytes)) {
                    write_row(dtype, row(i), &mut values, out);
                }
            });
            if let Err(error) = uploaded {
                failure.get_or_init(|| error);
            }
        }
    };
    on_cores(n.div_ceil(part_rows), &pack);
    match failure.into_inner() {
        None => Ok(buffer),
        Some(error) => Err(ComputeError::DeviceFault {
            op: "pack",
            message: format!("{name}: {error}"),
        }),
    }
}

/// Calls `work` on this thread and, where there are parts for them, on one for each other core.
fn on_cores(parts: usize, work: &(impl Fn() + Sync)) {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 1..cores.min(parts) {
            let thread = std::thread::Builder::new().name("pd-pack".to_owned());
            // The others do what one that does not start would have done.
            if let Err(error) = thread.spawn_scoped(scope, work) {
                tracing::debug!(%error, "could not start a thread that packs weights");
            }
        }
        work();
    });
}

/// One row in the backend's dtype; `values` is memory for it.
fn write_row(dtype: DType, stored: StoredRow<'_>, values: &mut [f32], out: &mut [u8]) {
    match (dtype, stored.format) {
        (DType::BF16, WeightFormat::BF16) | (DType::F32, WeightFormat::F32) => {
            out.copy_from_slice(stored.bytes);
        }
        (DType::F32, _) => {
            stored.expand(values);
            out.copy_from_slice(bytemuck::cast_slice(values));
        }
        (_, _) => {
            stored.expand(values);
            for (out, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *out = bf16::from_f32(*value).to_le_bytes();
            }
        }
    }
}
