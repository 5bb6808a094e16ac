//! What a mixture of experts adds to the residual stream.

use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::cpu::simd::exp::exp;
use crate::ops::{MoeFinish, SharedRows};

pub(in crate::cpu) fn moe_finish(
    op: MoeFinish<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let MoeFinish {
        sums,
        shared,
        x,
        hidden,
        rows,
    } = op;
    let sums = sums.src::<f32>("moe_finish sums", rows * hidden);
    let shared = shared.map(|SharedRows { values, gate }| {
        let gate = gate.map(|gate| gate.src::<f32>("moe_finish gate", rows));
        (values.src::<f32>("moe_finish shared", rows * hidden), gate)
    });
    let x = x.dst::<f32>("moe_finish x", rows * hidden);
    move |exec| {
        // SAFETY: on the queue; what is written is other memory.
        let sums = unsafe { sums.slice() };
        // SAFETY: as above.
        let shared = shared.as_ref().map(|(values, gate)| unsafe {
            (values.slice(), gate.as_ref().map(|gate| gate.slice()))
        });
        exec.run_rows(rows, 2 * hidden, |range| {
            for r in range {
                let span = r * hidden..(r + 1) * hidden;
                // SAFETY: on the queue; each row belongs to one task.
                let x = unsafe { x.slice_mut(span.clone()) };
                let sums = &sums[span.clone()];
                match shared {
                    None => x.iter_mut().zip(sums).for_each(|(x, sum)| *x += sum),
                    Some((values, gate)) => {
                        let factor = gate.map_or(1.0, |gate| 1.0 / (1.0 + exp(-gate[r])));
                        let terms = sums.iter().zip(&values[span]);
                        for (x, (sum, value)) in x.iter_mut().zip(terms) {
                            *x += sum + factor * value;
                        }
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
