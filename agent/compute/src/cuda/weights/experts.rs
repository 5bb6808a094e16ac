//! The experts of a layer: their gates and ups in one matrix, one expert after another, and their downs in another.

use super::{check_columns, check_shape, shape_error, upload_rows};
use crate::cuda::kernels::MOE_EXPERTS_MAX;
use crate::cuda::memory::CudaBuffer;
use crate::cuda::shared::Shared;
use crate::device_types::ExpertMatrices;
use crate::error::ComputeError;
use crate::ops::ExpertSource;
use crate::weight::WeightSource;

/// The experts of a layer, or a rank's share of them.
#[derive(Clone, Debug)]
pub struct CudaExperts {
    /// `[count][2 · width][hidden]`, gate and up in turn.
    pub(in crate::cuda) gate_up: CudaBuffer,
    /// `[count][hidden][width]`.
    pub(in crate::cuda) down: CudaBuffer,
    count: usize,
    hidden: usize,
    width: usize,
}

impl ExpertMatrices for CudaExperts {
    fn count(&self) -> usize {
        self.count
    }

    fn hidden(&self) -> usize {
        self.hidden
    }

    fn width(&self) -> usize {
        self.width
    }
}

/// # Errors
/// Names the tensor whose bytes, shape or format do not fit.
///
/// # Panics
/// Without an expert.
pub(in crate::cuda) fn pack_experts(
    shared: &Shared,
    experts: &[ExpertSource<'_>],
) -> Result<CudaExperts, ComputeError> {
    let first = experts.first().expect("a layer has at least one expert");
    let (width, hidden, count) = (first.gate.n, first.gate.k, experts.len());
    for ExpertSource { gate, up, down } in experts {
        expect_shape(gate, width, hidden)?;
        expect_shape(up, width, hidden)?;
        expect_shape(down, hidden, width)?;
    }
    check_columns(&first.gate)?;
    check_columns(&first.down)?;
    if count > MOE_EXPERTS_MAX {
        let reason =
            format!("is one of {count} experts; the CUDA backend takes up to {MOE_EXPERTS_MAX}");
        return Err(shape_error(&first.gate, reason));
    }
    let gate_up = upload_rows(shared, &first.gate, count * 2 * width, |i| {
        let (expert, row) = (&experts[i / (2 * width)], i % (2 * width));
        let part = if row % 2 == 0 {
            &expert.gate
        } else {
            &expert.up
        };
        part.row(row / 2)
    })?;
    let down = upload_rows(shared, &first.down, count * hidden, |i| {
        experts[i / hidden].down.row(i % hidden)
    })?;
    Ok(CudaExperts {
        gate_up,
        down,
        count,
        hidden,
        width,
    })
}

fn expect_shape(source: &WeightSource<'_>, n: usize, k: usize) -> Result<(), ComputeError> {
    check_shape(source)?;
    if (source.n, source.k) == (n, k) {
        return Ok(());
    }
    let reason = format!(
        "is {}×{}, where the first expert asks for {n}×{k}",
        source.n, source.k
    );
    Err(shape_error(source, reason))
}
