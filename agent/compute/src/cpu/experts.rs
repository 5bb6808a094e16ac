//! The experts of a layer, packed: each is two linears of its own, and all of them lie side by side in two
//! pieces of memory, so that small experts have large pages, too.

use super::pack::{PackTarget, PackedLinear, ParallelFor};
use crate::device_types::ExpertMatrices;
use crate::error::ComputeError;
use crate::k_order::Packing;
use crate::ops::ExpertSource;
use crate::weight::WeightSource;
use std::sync::Arc;

/// The experts of a layer, or a rank's share of them.
#[derive(Clone, Debug)]
pub struct CpuExperts {
    packed: Arc<Packed>,
}

#[derive(Debug)]
struct Packed {
    /// Gate and up, interleaved.
    gate_up: Vec<PackedLinear>,
    down: Vec<PackedLinear>,
    hidden: usize,
    width: usize,
}

// === impl CpuExperts ===

impl CpuExperts {
    /// # Errors
    /// Names the tensor whose bytes, shape or format do not fit.
    pub(super) fn pack(
        experts: &[ExpertSource<'_>],
        target: PackTarget,
        parallel_for: ParallelFor<'_>,
    ) -> Result<Self, ComputeError> {
        let first = experts.first().map(|expert| expert.gate);
        let (width, hidden) = first.map_or((0, 0), |gate| (gate.n, gate.k));
        for ExpertSource { gate, up: _, down } in experts {
            expect_shape(gate, width, hidden)?;
            expect_shape(down, hidden, width)?;
        }
        let pairs: Vec<_> = experts.iter().map(|e| [e.gate, e.up]).collect();
        let pairs: Vec<&[WeightSource<'_>]> = pairs.iter().map(<[_; 2]>::as_slice).collect();
        let downs: Vec<_> = experts.iter().map(|e| [e.down]).collect();
        let downs: Vec<&[WeightSource<'_>]> = downs.iter().map(<[_; 1]>::as_slice).collect();
        let packed = Packed {
            gate_up: PackedLinear::pack_all(&pairs, Packing::Interleaved, target, parallel_for)?,
            down: PackedLinear::pack_all(&downs, Packing::JOINED, target, parallel_for)?,
            hidden,
            width,
        };
        Ok(Self {
            packed: Arc::new(packed),
        })
    }

    pub(super) fn gate_up(&self) -> &[PackedLinear] {
        &self.packed.gate_up
    }

    pub(super) fn down(&self) -> &[PackedLinear] {
        &self.packed.down
    }
}

/// Gate and up are held against each other as they are packed.
fn expect_shape(source: &WeightSource<'_>, n: usize, k: usize) -> Result<(), ComputeError> {
    if (source.n, source.k) == (n, k) {
        return Ok(());
    }
    Err(ComputeError::WeightShape {
        name: source.name.to_owned(),
        reason: format!(
            "is {}×{}, where the first expert asks for {n}×{k}",
            source.n, source.k
        ),
    })
}

impl ExpertMatrices for CpuExperts {
    fn count(&self) -> usize {
        self.packed.down.len()
    }

    fn hidden(&self) -> usize {
        self.packed.hidden
    }

    fn width(&self) -> usize {
        self.packed.width
    }
}
