//! Short convolution over the rows of a sequence, channel by channel.

use super::batch::BatchView;
use super::strided::Strided;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::states::{StateRows, StateView};

/// `out[r] = silu(Σ_t weight[t] · x[r − taps + 1 + t])` per channel, in ascending order of t. Rows
/// before a sequence's first are zeros; those before the step's first are its state.
#[derive(Debug)]
pub struct CausalConv<'a, B: DeviceTypes> {
    /// `[num_tokens][channels]`.
    pub x: Strided<'a, B>,
    /// `F32 [taps][channels]`.
    pub weight: &'a B::Buffer,
    /// At least two.
    pub taps: usize,
    pub batch: &'a BatchView<B>,
    /// The last `taps − 1` rows of `x`, oldest first, in the dtype of activations: a head's elements are
    /// `[taps − 1][its channels]`. The heads of a layer, one after another, have all channels.
    pub states: &'a StateView<B>,
    pub state_rows: &'a StateRows<B>,
    /// Layer among those of `states`.
    pub layer: usize,
    /// `[num_tokens][channels]`.
    pub out: &'a B::Buffer,
}

// === impl CausalConv ===

impl<B: DeviceTypes> CausalConv<'_, B> {
    pub(crate) fn channels(&self) -> usize {
        let elements = self.states.tensors.iter().map(|t| t.heads * t.elements);
        elements.sum::<usize>() / (self.taps - 1)
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            weight,
            taps,
            batch,
            states,
            state_rows,
            layer,
            out,
        } = *self;
        let rows = batch.num_tokens;
        assert!(taps >= 2, "a convolution of {taps} taps has no state");
        for tensor in states.tensors.iter() {
            assert!(
                tensor.elements.is_multiple_of(taps - 1),
                "conv states of {} elements are no {} rows",
                tensor.elements,
                taps - 1
            );
        }
        let channels = self.channels();
        states.check("conv states", activations, layer);
        state_rows.check(batch.num_seqs, rows);
        x.expect_rows("conv x", activations, rows, channels);
        weight.expect_elements("conv weight", &[DType::F32], taps * channels);
        out.expect_elements("conv out", &[activations], rows * channels);
        out.expect_apart("conv out", &[x.values, weight, &states.region]);
        states
            .region
            .expect_apart("conv states", &[x.values, weight]);
    }
}
