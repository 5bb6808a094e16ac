//! Weights: rows of the backend's dtype, quantised ones expanded.

use super::config::TchConfig;
use super::memory::{TchBuffer, ints, kind_of};
use crate::device_types::{ExpertMatrices, Matrix, WeightMatrix};
use crate::error::ComputeError;
use crate::k_order::KOrder;
use crate::ops::ExpertSource;
use crate::weight::WeightSource;
use tch::{Device, Tensor};

/// `[n][k]`, of a linear or an embedding.
#[derive(Clone, Debug)]
pub struct TchMatrix {
    pub(super) rows: TchBuffer,
    pub(super) n: usize,
    pub(super) k: usize,
}

/// The experts of a layer: gate and up, interleaved, and down of each.
#[derive(Clone, Debug)]
pub struct TchExperts {
    pub(super) gate_up: Vec<TchMatrix>,
    pub(super) down: Vec<TchMatrix>,
}

impl ExpertMatrices for TchExperts {
    fn count(&self) -> usize {
        self.down.len()
    }

    fn hidden(&self) -> usize {
        self.gate_up.first().map_or(0, |matrix| matrix.k)
    }

    fn width(&self) -> usize {
        self.down.first().map_or(0, |matrix| matrix.k)
    }
}

/// libtorch adds up in an order of its own.
impl WeightMatrix for TchMatrix {
    fn k_order(&self) -> KOrder {
        KOrder::Chain
    }
}

impl Matrix for TchMatrix {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }
}

/// Parts joined along n, or row by row.
///
/// # Errors
/// Names the part whose bytes or shape do not fit.
pub(super) fn pack(
    config: TchConfig,
    parts: &[WeightSource<'_>],
    interleave: bool,
) -> Result<TchMatrix, ComputeError> {
    let first = parts.first().expect("a weight has at least one part");
    let (name, k) = (first.name, first.k);
    let mut tensors = Vec::new();
    for part in parts {
        if part.k != k || (interleave && part.n != first.n) {
            return Err(ComputeError::WeightShape {
                name: part.name.to_owned(),
                reason: format!("{}×{} beside {name} of {}×{k}", part.n, part.k, first.n),
            });
        }
        tensors.push(expanded(part, config.device)?.to_kind(kind_of(config.dtype)));
    }
    let rows = if interleave {
        Tensor::stack(&tensors, 1)
    } else {
        Tensor::cat(&tensors, 0)
    };
    Ok(TchMatrix {
        rows: TchBuffer::holding(name, config.dtype, &rows),
        n: parts.iter().map(|part| part.n).sum(),
        k,
    })
}

/// # Errors
/// As [`pack`].
pub(super) fn pack_experts(
    config: TchConfig,
    experts: &[ExpertSource<'_>],
) -> Result<TchExperts, ComputeError> {
    let gate_up = |expert: &ExpertSource<'_>| pack(config, &[expert.gate, expert.up], true);
    let down = |expert: &ExpertSource<'_>| pack(config, &[expert.down], false);
    Ok(TchExperts {
        gate_up: experts.iter().map(gate_up).collect::<Result<_, _>>()?,
        down: experts.iter().map(down).collect::<Result<_, _>>()?,
    })
}

/// `F32 [n][k]`.
fn expanded(part: &WeightSource<'_>, device: Device) -> Result<Tensor, ComputeError> {
    part.row_bytes()?;
    let mut values = vec![0.0f32; part.n * part.k];
    if part.k > 0 {
        let rows = values.chunks_exact_mut(part.k).enumerate();
        rows.for_each(|(row, out)| part.row(row).expand(out));
    }
    let values = Tensor::from_slice(&values).to_device(device);
    Ok(values.view(ints([part.n, part.k])))
}
