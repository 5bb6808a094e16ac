//! The choice of experts, row by row.

mod choice;

use crate::buffer::DeviceBuffer as _;
use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::queue::Exec;
use crate::cpu::simd::activation::sigmoid;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::moe_route::LEAST_WEIGHT_SUM;
use crate::ops::{MoeRoute, Routing, Scores};
use choice::Chooser;

/// Simple operations per expert of a row: an exponential and the search.
const WORK_PER_EXPERT: usize = 32;

pub(in crate::cpu) fn moe_route(
    op: MoeRoute<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let MoeRoute {
        logits,
        num_experts,
        choice_bias,
        routing,
        chosen,
        weights,
        rows,
    } = op;
    let top_k = routing.top_k;
    let logits = logits.src::<f32>("moe_route logits", rows * num_experts);
    let bias = choice_bias.map(|bias| bias.src::<f32>("moe_route choice bias", bias.len()));
    let chosen = chosen.dst::<u32>("moe_route chosen", rows * top_k);
    let weights = weights.dst::<f32>("moe_route weights", rows * top_k);
    move |exec| {
        // SAFETY: on the queue; what is written is other memory.
        let logits = unsafe { logits.slice() };
        // SAFETY: as above.
        let bias = bias.as_ref().map(|bias| unsafe { bias.slice() });
        let isa = exec.isa;
        exec.run_rows(rows, num_experts * WORK_PER_EXPERT, |range| {
            let mut scores = vec![0.0; num_experts];
            let mut chooser = Chooser::default();
            for r in range {
                let span = r * top_k..(r + 1) * top_k;
                // SAFETY: on the queue; each row belongs to one task.
                let (ids, weights) =
                    unsafe { (chosen.slice_mut(span.clone()), weights.slice_mut(span)) };
                scores.copy_from_slice(&logits[r * num_experts..(r + 1) * num_experts]);
                score(isa, routing.scores, &mut scores);
                chooser.choose(&routing, &scores, bias, ids);
                for (weight, id) in weights.iter_mut().zip(&*ids) {
                    *weight = scores[*id as usize];
                }
                weigh(isa, &routing, weights);
            }
        });
    }
}

/// Logits become what experts are chosen and weighed by.
fn score(isa: Isa, scores: Scores, row: &mut [f32]) {
    match scores {
        // SAFETY: the kernels have no needs of their own.
        Scores::Softmax => unsafe { isa.dispatch(Softmax(row)) },
        // SAFETY: as above.
        Scores::Sigmoid => unsafe { isa.dispatch(Sigmoid(row)) },
        Scores::SoftmaxOfChosen => {}
    }
}

/// The scores of the chosen become their weights.
fn weigh(isa: Isa, routing: &Routing, weights: &mut [f32]) {
    if routing.scores == Scores::SoftmaxOfChosen {
        // SAFETY: the kernel has no needs of its own.
        unsafe { isa.dispatch(Softmax(&mut *weights)) };
    }
    let sum = if routing.normalise {
        weights.iter().sum::<f32>() + LEAST_WEIGHT_SUM
    } else {
        1.0
    };
    for weight in weights {
        *weight = *weight / sum * routing.scale;
    }
}

/// In place. Exponentials are summed lane by lane, in order.
struct Softmax<'a>(&'a mut [f32]);

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let largest = self.0.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (chunks, rest) = self.0.as_chunks_mut::<LANES>();
        // SAFETY: the instruction set by the caller; chunks have sixteen elements.
        unsafe {
            let mut sums = V::splat(0.0);
            for chunk in &mut *chunks {
                let e = V::load(chunk.as_ptr()).sub(V::splat(largest)).exp();
                sums = sums.add(e);
                e.store(chunk.as_mut_ptr());
            }
            let e = V::load_part(rest, f32::NEG_INFINITY).sub(V::splat(largest));
            let e = e.exp();
            let sum = V::splat(sums.add(e).sum());
            e.div(sum).store_part(rest);
            for chunk in chunks {
                let e = V::load(chunk.as_ptr());
                e.div(sum).store(chunk.as_mut_ptr());
            }
        }
    }
}

/// In place.
struct Sigmoid<'a>(&'a mut [f32]);

impl Kernel for Sigmoid<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let (chunks, rest) = self.0.as_chunks_mut::<LANES>();
        // SAFETY: the instruction set by the caller; chunks have sixteen elements.
        unsafe {
            for chunk in chunks {
                sigmoid(V::load(chunk.as_ptr())).store(chunk.as_mut_ptr());
            }
            sigmoid(V::load_part(rest, 0.0)).store_part(rest);
        }
    }
}

#[cfg(test)]
mod tests;
