//! The linear op: one packed product, divided among the pool.

use crate::cpu::handle::CpuBackend;
use crate::cpu::linear_product::{LinearProduct, LinearScratch, SharedOut, Worker};
use crate::cpu::queue::Exec;
use crate::device_types::Matrix;
use crate::ops::Linear;
use std::sync::Arc;

pub(in crate::cpu) fn linear(op: Linear<'_, CpuBackend>) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let Linear {
        x,
        weight,
        bias,
        epilogue,
        out,
        rows,
    } = op;
    let weight = Arc::clone(weight);
    let (k, out_len) = (weight.k(), weight.out_len());
    let x = x.src::<f32>("linear x", rows * k);
    let bias = bias.map(|bias| bias.src::<f32>("linear bias", weight.n()));
    let out = out.dst::<f32>("linear out", rows * out_len);
    move |exec| {
        let product = LinearProduct {
            weight: &weight,
            // SAFETY: on the queue; `out` is other memory.
            x: unsafe { x.slice() },
            x_stride: k,
            x_rows: None,
            rows,
            // SAFETY: as above.
            bias: bias.as_ref().map(|bias| unsafe { bias.slice() }),
            epilogue,
            // SAFETY: on the queue; only this product's tasks touch `out` meanwhile.
            out: unsafe { SharedOut::from_raw(out.as_ptr(), out.len(), out_len) },
            isa: exec.isa,
        };
        let count = exec.threads.count();
        let tasks = product.tasks(count);
        if tasks.is_empty() {
            return;
        }
        exec.threads.run(tasks.len(), |_, index| {
            let task = tasks.claim(Worker { index, count });
            let task = task.expect("as many claims as tasks");
            LinearScratch::of_thread(|scratch| {
                // SAFETY: different tasks of one division.
                unsafe { product.run_task(&task, scratch) };
            });
        });
    }
}
