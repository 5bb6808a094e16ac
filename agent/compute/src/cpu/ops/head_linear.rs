//! A product of each head with a matrix of its own: those of a packed weight's parts, each over its own columns.

use crate::cpu::handle::CpuBackend;
use crate::cpu::linear_product::{
    LinearProduct, LinearScratch, LinearTask, ROWS_AT_A_TIME, SharedOut,
};
use crate::cpu::queue::Exec;
use crate::ops::{Epilogue, HeadLinear};
use std::sync::Arc;

pub(in crate::cpu) fn head_linear(
    op: HeadLinear<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let out_len = op.out_len();
    let HeadLinear {
        x,
        weight,
        heads,
        out,
        rows,
    } = op;
    let weight = Arc::clone(weight);
    let (x_stride, out_stride) = (x.head_stride, out.head_stride);
    let x = x
        .values
        .src::<f32>("head_linear x", rows * heads * x_stride);
    let out = out
        .values
        .dst::<f32>("head_linear out", rows * heads * out_stride);
    let parts = weight.segments();
    let are_heads = parts.iter().all(|part| part.columns.len() == out_len);
    assert!(
        parts.len() == heads && are_heads,
        "head_linear: {} parts are not {heads} heads of {out_len} rows",
        parts.len()
    );
    move |exec| {
        if rows == 0 {
            return;
        }
        // SAFETY: on the queue; `out` is other memory.
        let x = unsafe { x.slice() };
        let isa = exec.isa;
        let chunks = rows.div_ceil(ROWS_AT_A_TIME);
        exec.threads.run(heads * chunks, |i, _| {
            let (head, first) = (i / chunks, i % chunks * ROWS_AT_A_TIME);
            let part = &weight.segments()[head];
            // The product writes the part's columns, which lie closer together than the heads.
            let before = head * out_stride - part.columns.start;
            let product = LinearProduct {
                weight: &weight,
                x: &x[head * x_stride..],
                x_stride: heads * x_stride,
                x_rows: None,
                rows,
                bias: None,
                epilogue: Epilogue::Store,
                // SAFETY: on the queue; only this op's tasks touch `out` meanwhile, each its own rows of its own head.
                out: unsafe {
                    let at = out.as_ptr().add(before);
                    SharedOut::from_raw(at, out.len() - before, heads * out_stride)
                },
                isa,
            };
            let task = LinearTask {
                rows: first..rows.min(first + ROWS_AT_A_TIME),
                blocks: part.blocks.clone(),
                run: None,
            };
            // SAFETY: tasks have rows or blocks of their own.
            LinearScratch::of_thread(|scratch| unsafe { product.run_task(&task, scratch) });
        });
    }
}

#[cfg(test)]
mod tests;
