//! Short convolution, one head's channels of one sequence at a time. A row needs no other row's
//! result, so only the states ask for an order: a sequence's own is copied before it is written.

use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::memory::{Dst, Src};
use crate::cpu::queue::Exec;
use crate::cpu::seq_states::StepStates;
use crate::cpu::simd::activation::silu;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::CausalConv;
use crate::states::SeqStates;
use std::cell::RefCell;
use std::ops::Range;

/// About what an element's SiLU costs, in simple operations.
const SILU_WORK: usize = 8;

thread_local! {
    /// Per worker: the rows before a step's first.
    static BEFORE: RefCell<Vec<f32>> = RefCell::default();
}

/// The op, as its tasks see it.
struct Conv {
    x: Src<f32>,
    x_row_stride: usize,
    weight: Src<f32>,
    taps: usize,
    channels: usize,
    states: Dst<f32>,
    item_len: usize,
    heads: Vec<Head>,
    step: StepStates,
    num_tokens: usize,
    out: Dst<f32>,
}

struct Head {
    channels: Range<usize>,
    /// Within an item.
    state: Range<usize>,
}

pub(in crate::cpu) fn causal_conv(
    op: CausalConv<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
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
    let rows = batch.num_tokens;
    let mut next = 0;
    let head = |state: Range<usize>| {
        let first = next;
        next += state.len() / (taps - 1);
        Head {
            channels: first..next,
            state,
        }
    };
    let heads = states.heads(layer).map(head).collect();
    let item_len = states.item_len();
    let conv = Conv {
        x: x.values.src("conv x", x.len(rows, channels)),
        x_row_stride: x.row_stride,
        weight: weight.src("conv weight", taps * channels),
        taps,
        channels,
        states: states
            .region
            .dst("conv states", states.num_slots * item_len),
        item_len,
        heads,
        step: StepStates::new(batch, state_rows, states.num_slots),
        num_tokens: rows,
        out: out.dst("conv out", rows * channels),
    };
    move |exec| conv.run(exec)
}

// === impl Conv ===

impl Conv {
    fn run(&self, exec: &Exec<'_>) {
        // SAFETY: on the queue.
        let seqs = unsafe { self.step.seqs() };
        if seqs.is_empty() {
            return;
        }
        let isa = exec.isa;
        // A task has the same heads of all sequences, which differ in length.
        let units = self.heads.len() * seqs.len();
        let work = self.num_tokens * self.channels * (self.taps + SILU_WORK) / units;
        exec.run_rows(units, work, |range| {
            for unit in range {
                let (head, seq) = (&self.heads[unit / seqs.len()], &seqs[unit % seqs.len()]);
                BEFORE.with_borrow_mut(|before| self.head(isa, head, seq, before));
            }
        });
    }

    fn head(&self, isa: Isa, head: &Head, seq: &SeqStates, before: &mut Vec<f32>) {
        before.clear();
        match seq.read {
            // SAFETY: on the queue; no other sequence writes a slot that this one reads.
            Some(slot) => before.extend(unsafe { self.states.slice(self.state_of(slot, head)) }),
            None => before.resize(head.state.len(), 0.0),
        }
        let inputs = Inputs {
            before,
            num_before: self.taps - 1,
            // SAFETY: on the queue; `out` and the states are other memory.
            x: unsafe { self.x.slice() },
            x_row_stride: self.x_row_stride,
            channels: head.channels.clone(),
            first_row: seq.rows.start,
        };
        for (index, row) in seq.rows.clone().enumerate() {
            let first = row * self.channels + head.channels.start;
            // SAFETY: on the queue; each head of each row belongs to one task, and weights are
            // never written.
            unsafe {
                let out = self.out.slice_mut(first..first + head.channels.len());
                let weight = self.weight.slice();
                isa.dispatch(ConvRow {
                    inputs: &inputs,
                    index,
                    weight: &weight[head.channels.start..],
                    taps: self.taps,
                    channels: self.channels,
                    out,
                });
            }
        }
        for (done, slot) in seq.kept() {
            self.keep(head, &inputs, done, slot);
        }
    }

    fn state_of(&self, slot: usize, head: &Head) -> Range<usize> {
        let item = slot * self.item_len;
        item + head.state.start..item + head.state.end
    }

    /// Writes the state after the first `done` rows of the step.
    fn keep(&self, head: &Head, inputs: &Inputs<'_>, done: usize, slot: usize) {
        // SAFETY: on the queue; a slot is written once in a step, and each head by one task.
        let state = unsafe { self.states.slice_mut(self.state_of(slot, head)) };
        for (index, row) in state.chunks_exact_mut(head.channels.len()).enumerate() {
            row.copy_from_slice(inputs.row(done + index));
        }
    }
}

/// A head's rows of `x`, from the oldest of the state on.
struct Inputs<'a> {
    /// Rows of the state, and how many they are.
    before: &'a [f32],
    num_before: usize,
    x: &'a [f32],
    x_row_stride: usize,
    channels: Range<usize>,
    /// Of the step, in `x`.
    first_row: usize,
}

// === impl Inputs ===

impl Inputs<'_> {
    #[inline(always)]
    fn row(&self, index: usize) -> &[f32] {
        let width = self.channels.len();
        match index.checked_sub(self.num_before) {
            None => &self.before[index * width..][..width],
            Some(after) => {
                let row = (self.first_row + after) * self.x_row_stride;
                &self.x[row + self.channels.start..][..width]
            }
        }
    }
}

/// One row of the output.
struct ConvRow<'a> {
    inputs: &'a Inputs<'a>,
    /// Of its oldest input.
    index: usize,
    /// From the first of the head's channels on.
    weight: &'a [f32],
    taps: usize,
    /// From a tap to the next.
    channels: usize,
    out: &'a mut [f32],
}

impl Kernel for ConvRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self {
            inputs,
            index,
            weight,
            taps,
            channels,
            out,
        } = self;
        out.fill(0.0);
        for tap in 0..taps {
            let x = inputs.row(index + tap).chunks(LANES);
            let weight = weight[tap * channels..].chunks(LANES);
            for ((sum, x), weight) in out.chunks_mut(LANES).zip(x).zip(weight) {
                // SAFETY: the instruction set by the caller; chunks have at most sixteen elements.
                unsafe {
                    let weight = V::load_up_to(&weight[..x.len()]);
                    let sums = V::load_up_to(x).fma(weight, V::load_up_to(sum));
                    sums.store_up_to(sum);
                }
            }
        }
        for sum in out.chunks_mut(LANES) {
            // SAFETY: as above.
            unsafe { silu(V::load_up_to(sum)).store_up_to(sum) };
        }
    }
}

#[cfg(test)]
mod tests;
