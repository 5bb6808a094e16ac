//! Weights on the device: rows as in the file, in the backend's dtype, joined or interleaved.

use half::bf16;

use super::backend::{Shared, to_u32};
use super::driver::DriverError;
use super::memory::{CudaBuffer, Place};
use super::pinned::BLOCK_BYTES_MAX;
use crate::dtype::{DType, WeightFormat};
use crate::error::ComputeError;
use crate::quant::dequantize;
use crate::weight::WeightSource;

/// Kernels load rows 16 bytes at a time.
const K_MULTIPLE: usize = 8;

/// `[n][k]` of a linear.
#[derive(Clone, Debug)]
pub struct CudaLinear {
    pub(super) weight: CudaBuffer,
    pub(super) n: usize,
    pub(super) k: usize,
}

/// `[n][k]` of an embedding.
#[derive(Clone, Debug)]
pub struct CudaEmbedding {
    pub(super) table: CudaBuffer,
    pub(super) n: usize,
    pub(super) k: usize,
}

pub(super) fn pack_linear(
    shared: &Shared,
    parts: &[WeightSource<'_>],
    interleave: bool,
) -> Result<CudaLinear, ComputeError> {
    let first = parts.first().expect("a linear has at least one part");
    let shape_error = |part: &WeightSource<'_>, reason: String| ComputeError::WeightShape {
        name: part.name.to_owned(),
        reason,
    };
    let k = first.k;
    for part in parts {
        part.row_bytes()?;
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
    if !k.is_multiple_of(K_MULTIPLE) {
        let reason = format!(
            "has {k} columns; the CUDA backend takes multiples of {K_MULTIPLE}, use the CPU's"
        );
        return Err(shape_error(first, reason));
    }
    let n = parts.iter().map(|part| part.n).sum();
    let row = |i: usize| {
        if interleave {
            return (&parts[i % parts.len()], i / parts.len());
        }
        let mut row = i;
        for part in parts {
            if row < part.n {
                return (part, row);
            }
            row -= part.n;
        }
        unreachable!("row {i} of {n}")
    };
    let weight = upload_rows(shared, first.name, n, k, row)?;
    Ok(CudaLinear { weight, n, k })
}

pub(super) fn pack_embedding(
    shared: &Shared,
    table: &WeightSource<'_>,
) -> Result<CudaEmbedding, ComputeError> {
    table.row_bytes()?;
    let (n, k) = (table.n, table.k);
    let table = upload_rows(shared, table.name, n, k, |i| (table, i))?;
    Ok(CudaEmbedding { table, n, k })
}

/// Allocates `n × k` and fills it with the rows that `row` names, some megabytes at a time.
fn upload_rows<'a, 's: 'a>(
    shared: &Shared,
    name: &str,
    n: usize,
    k: usize,
    row: impl Fn(usize) -> (&'a WeightSource<'s>, usize),
) -> Result<CudaBuffer, ComputeError> {
    shared.fault.check()?;
    let dtype = shared.config.dtype;
    let buffer = CudaBuffer::alloc(&shared.driver, Place::Device, name, dtype, n * k)?;
    let row_bytes = k * dtype.size_bytes();
    let rows_per_block = (BLOCK_BYTES_MAX / row_bytes.max(1)).max(1);
    let failed = |error: DriverError| ComputeError::DeviceFault {
        op: "pack",
        message: format!("{name}: {error}"),
    };
    let mut values = vec![0.0; k];
    for first in (0..n).step_by(rows_per_block) {
        let rows = first..n.min(first + rows_per_block);
        let to = buffer.addr() + first as u64 * row_bytes as u64;
        let fill = |block: &mut [u8]| {
            for (i, out) in rows.clone().zip(block.chunks_exact_mut(row_bytes)) {
                let (source, row) = row(i);
                let stored = source.bytes.len() / source.n;
                write_row(
                    dtype,
                    source.format,
                    source.row(row, stored),
                    &mut values,
                    out,
                );
            }
        };
        shared
            .upload_with(to, rows.len() * row_bytes, fill)
            .map_err(failed)?;
    }
    to_u32(n);
    to_u32(k);
    Ok(buffer)
}

/// One row in the backend's dtype; `values` is memory for it.
fn write_row(
    dtype: DType,
    format: WeightFormat,
    stored: &[u8],
    values: &mut [f32],
    out: &mut [u8],
) {
    match (dtype, format) {
        (DType::BF16, WeightFormat::BF16) | (DType::F32, WeightFormat::F32) => {
            out.copy_from_slice(stored);
        }
        (DType::F32, _) => {
            dequantize(format, stored, values);
            out.copy_from_slice(bytemuck::cast_slice(values));
        }
        (_, _) => {
            dequantize(format, stored, values);
            for (out, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *out = bf16::from_f32(*value).to_le_bytes();
            }
        }
    }
}
