//! The linear op.

use super::{Subject, matrix, rounded, values};
use pd_compute::{Backend, DType, Epilogue, Linear, RmsNorm, WriteMode};

/// A call of `linear`: rows of x, n of the weight, k of both.
#[derive(Clone, Copy, Debug)]
pub struct LinearCase {
    pub rows: usize,
    pub n: usize,
    pub k: usize,
    pub epilogue: Epilogue,
    /// Of x and the weight.
    pub dtype: DType,
    /// Whether the result is F32, as logits are.
    pub to_f32: bool,
    pub has_bias: bool,
}

pub fn linear<B: Backend>(subject: &Subject<B>, case: &LinearCase) -> Vec<f32> {
    let bias = subject.floats(&values(5, case.n));
    multiply(subject, case, |x, weight, out| {
        subject.backend.linear(Linear {
            x,
            weight,
            bias: case.has_bias.then_some(&bias),
            epilogue: case.epilogue,
            out,
            rows: case.rows,
        });
    })
}

/// The same of rows that are normed first.
pub fn norm_linear<B: Backend>(subject: &Subject<B>, case: &LinearCase) -> Vec<f32> {
    let gains = subject.floats(&values(4, case.k));
    let normed = subject.zeros(subject.dtype(), case.rows * case.k);
    multiply(subject, case, |x, weight, out| {
        let norm = RmsNorm {
            x,
            add: None,
            weight: &gains,
            eps: 1e-6,
            out: &normed,
            into: WriteMode::Store,
            rows: case.rows,
        };
        let linear = Linear {
            x: &normed,
            weight,
            bias: None,
            epilogue: case.epilogue,
            out,
            rows: case.rows,
        };
        subject.backend.norm_linear(norm, linear);
    })
}

/// What `op` makes of x, the weight and `out`.
fn multiply<B: Backend>(
    subject: &Subject<B>,
    case: &LinearCase,
    op: impl FnOnce(&B::Buffer, &B::Weight, &B::Buffer),
) -> Vec<f32> {
    let LinearCase {
        rows,
        n,
        k,
        epilogue,
        dtype,
        to_f32,
        has_bias: _,
    } = *case;
    // Sums stay about one.
    #[allow(clippy::cast_precision_loss, reason = "test values are small")]
    let scale = 1.0 / (k as f32).sqrt();
    let scaled = |seed, len| values(seed, len).into_iter().map(|v| v * scale).collect();
    let weight = rounded(dtype, scaled(1, n * k));
    let x = rounded(dtype, values(2, rows * k));
    let (first, second) = weight.split_at(n / 2 * k);
    let weight = if epilogue.joins_pairs() {
        let parts = [matrix("gate", k, first), matrix("up", k, second)];
        subject.backend.pack_linear(&parts, true)
    } else {
        subject
            .backend
            .pack_linear(&[matrix("whole", k, &weight)], false)
    };
    let out_len = epilogue.out_len(n);
    let out_dtype = if to_f32 { DType::F32 } else { subject.dtype() };
    let out = subject.zeros(out_dtype, rows * out_len);
    subject.write(&out, &rounded(dtype, values(3, rows * out_len)));
    op(&subject.activations(&x), &weight.expect("it fits"), &out);
    subject.read(&out)
}
