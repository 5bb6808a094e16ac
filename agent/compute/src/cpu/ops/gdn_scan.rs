//! The gated delta rule, one token after another: always in this form, so that a token's bits do not
//! depend on where a step begins. A head's columns do not depend on each other, so they are
//! divided among tasks, and a task keeps its part of the state in the L1 cache over all rows.
//!
//! First what a row's tokens have in common for all columns ([`factors`]), then the columns
//! ([`columns`]).

mod columns;
mod factors;

use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::memory::{Dst, Src};
use crate::cpu::places::Places;
use crate::cpu::queue::Exec;
use crate::cpu::seq_states::StepStates;
use crate::ops::{GdnScan, GdnShape};
use crate::states::SeqStates;
use columns::{COLUMNS, Place, Scan, Scratch};
use factors::{FactorRow, Factors};
use std::cell::RefCell;
use std::ops::Range;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The op, as its tasks see it.
struct Delta {
    shape: GdnShape,
    qkv: Src<f32>,
    a: Src<f32>,
    a_row_stride: usize,
    b: Src<f32>,
    b_row_stride: usize,
    decay: Src<f32>,
    dt_bias: Src<f32>,
    states: Dst<f32>,
    item_len: usize,
    /// Where each head's S begins in an item.
    heads: Vec<usize>,
    step: StepStates,
    num_tokens: usize,
    out: Dst<f32>,
}

/// Some columns of a head.
struct Unit {
    head: usize,
    columns: Range<usize>,
}

pub(in crate::cpu) fn gdn_scan(
    op: GdnScan<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let shape = op.shape();
    let GdnScan {
        qkv,
        num_k_heads: _,
        k_dim: _,
        a,
        b,
        decay,
        dt_bias,
        batch,
        states,
        state_rows,
        layer,
        out,
    } = op;
    let (rows, heads) = (batch.num_tokens, shape.num_v_heads);
    let item_len = states.item_len();
    let delta = Delta {
        shape,
        qkv: qkv.src("delta qkv", rows * shape.qkv_width()),
        a: a.values.src("delta a", a.len(rows, heads)),
        a_row_stride: a.row_stride,
        b: b.values.src("delta b", b.len(rows, heads)),
        b_row_stride: b.row_stride,
        decay: decay.src("delta decay", heads),
        dt_bias: dt_bias.src("delta dt_bias", heads),
        states: states
            .region
            .dst("delta states", states.num_slots * item_len),
        item_len,
        heads: states.heads(layer).map(|head| head.start).collect(),
        step: StepStates::new(batch, state_rows, states.num_slots),
        num_tokens: rows,
        out: out.dst("delta out", rows * shape.v_width()),
    };
    move |exec| delta.run(exec)
}

// === impl Delta ===

impl Delta {
    fn run(&self, exec: &Exec<'_>) {
        // SAFETY: on the queue.
        let seqs = unsafe { self.step.seqs() };
        if seqs.is_empty() {
            return;
        }
        let factors = self.factors(exec);
        let GdnShape {
            num_v_heads,
            k_dim,
            v_dim,
            ..
        } = self.shape;
        // A task has a head of a sequence, or some of its columns where threads are many; and what
        // is one after another is of different sequences, which differ in length.
        let heads = num_v_heads * seqs.len();
        let blocks = v_dim.div_ceil(COLUMNS);
        let parts = (2 * exec.threads.count()).div_ceil(heads).min(blocks);
        let tokens = self.num_tokens.div_ceil(seqs.len());
        let work = 4 * (tokens + 1) * k_dim * v_dim / parts;
        let isa = exec.isa;
        exec.run_rows(heads * parts, work, |range| {
            for task in range {
                let (unit, seq) = (task / seqs.len(), &seqs[task % seqs.len()]);
                let (head, part) = (unit / parts, unit % parts);
                let end = |part: usize| v_dim.min(blocks * part / parts * COLUMNS);
                let unit = Unit {
                    head,
                    columns: end(part)..end(part + 1),
                };
                SCRATCH.with_borrow_mut(|scratch| self.scan(isa, &unit, seq, &factors, scratch));
            }
        });
    }

    /// `[num_tokens]` rows of what [`Factors`] takes apart.
    fn factors(&self, exec: &Exec<'_>) -> Vec<f32> {
        let width = Factors::width(&self.shape);
        let mut factors = vec![0.0; self.num_tokens * width];
        let places = Places::new(&mut factors, width);
        let isa = exec.isa;
        // An exponential costs about eight simple operations.
        let work = 2 * self.shape.k_width() + 32 * self.shape.num_v_heads;
        exec.run_rows(self.num_tokens, work, |range| {
            for r in range {
                // SAFETY: on the queue; each row belongs to one task, and inputs are not written.
                unsafe {
                    let heads = self.shape.num_v_heads;
                    isa.dispatch(FactorRow {
                        shape: &self.shape,
                        qk: &self.qkv.slice()[r * self.shape.qkv_width()..],
                        a: &self.a.slice()[r * self.a_row_stride..][..heads],
                        b: &self.b.slice()[r * self.b_row_stride..][..heads],
                        decay: self.decay.slice(),
                        dt_bias: self.dt_bias.slice(),
                        out: places.get(r, width),
                    });
                }
            }
        });
        factors
    }

    fn scan(&self, isa: Isa, unit: &Unit, seq: &SeqStates, factors: &[f32], scratch: &mut Scratch) {
        // SAFETY: on the queue; inputs are not written, and no other task has these columns of this
        // head of the sequence's rows and of the slots that it writes.
        unsafe {
            isa.dispatch(Scan {
                delta: self,
                unit,
                seq,
                qkv: self.qkv.slice(),
                factors,
                scratch,
            });
        }
    }

    /// Where the columns of a head's state from `column` on are.
    fn place(&self, slot: usize, head: usize, column: usize) -> Place {
        let first = slot * self.item_len + self.heads[head] + column;
        Place {
            // SAFETY: the region has all slots, and slots are in bounds.
            at: unsafe { self.states.as_ptr().add(first) },
            row_stride: self.shape.v_dim,
        }
    }
}

#[cfg(test)]
mod tests;
