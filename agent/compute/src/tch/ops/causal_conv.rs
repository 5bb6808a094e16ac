//! Short convolution, channel by channel.

use crate::ops::CausalConv;
use crate::tch::handle::TchBackend;
use crate::tch::memory::int;
use crate::tch::states::{floats, heads_of, rows_of, seqs_of};
use tch::{Kind, Tensor};

pub(in crate::tch) fn causal_conv(op: CausalConv<'_, TchBackend>) -> Result<(), String> {
    let channels = op.channels();
    let CausalConv {
        x,
        weight,
        taps,
        batch,
        states,
        state_rows,
        layer,
        out,
    } = op;
    let shape = [batch.num_tokens, channels];
    let x = x.values.strided("conv x", 0, shape, [x.row_stride, 1]);
    let x = x.to_kind(Kind::Float);
    let weight = weight.view("conv weight", [taps, channels]);
    let out = out.view("conv out", shape);
    for seq in seqs_of(batch, state_rows, states.num_slots)? {
        let before = match seq.read {
            Some(slot) => Tensor::cat(&floats(&heads_of(states, layer, slot, taps - 1)), 1),
            None => Tensor::zeros([int(taps - 1), int(channels)], (Kind::Float, x.device())),
        };
        let inputs = Tensor::cat(&[before, rows_of(&x, &seq)], 0);
        let taken = |tap: i64| inputs.narrow(0, tap, int(seq.rows.len())) * weight.get(tap);
        let sum: Tensor = (0..int(taps)).map(taken).sum();
        rows_of(&out, &seq).copy_(&sum.silu());
        for (done, slot) in seq.kept() {
            let state = inputs.narrow(0, int(done), int(taps - 1));
            let mut first = 0;
            for mut head in heads_of(states, layer, slot, taps - 1) {
                let width = head.size()[1];
                head.copy_(&state.narrow(1, first, width));
                first += width;
            }
        }
    }
    Ok(())
}
