//! The linear op.

use super::{Subject, matrix, rounded, values};
use pd_compute::{Backend, DType, Epilogue, KOrder, KShares, Linear, Packing, RmsNorm, WriteMode};

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

/// The sum, in F32, of what `tp_size` ranks make of their columns.
pub fn linear_by_ranks<B: Backend>(
    subject: &Subject<B>,
    case: &LinearCase,
    tp_size: usize,
) -> Vec<f32> {
    let LinearCase { rows, n, k, .. } = *case;
    let (weight, x) = operands(case);
    let shares = KShares::of_rank(tp_size).expect("as many ranks as shares can be divided among");
    let packing = Packing::Joined(KOrder::Tree(shares));
    let of_rank = k / tp_size;
    let mut sums: Vec<Vec<f32>> = (0..tp_size)
        .map(|rank| {
            let columns = |values: &[f32]| -> Vec<f32> {
                let rows = values.chunks_exact(k);
                rows.flat_map(|row| &row[rank * of_rank..][..of_rank])
                    .copied()
                    .collect()
            };
            let weight = columns(&weight);
            let parts = [matrix("columns", of_rank, &weight)];
            let weight = subject.backend.pack_linear(&parts, packing);
            let weight = weight.expect("columns of whole shares fit");
            let out = subject.zeros(DType::F32, rows * n);
            subject.backend.linear(Linear {
                x: &subject.activations(&columns(&x)),
                weight: &weight,
                bias: None,
                epilogue: Epilogue::Store,
                out: &out,
                rows,
            });
            subject.read(&out)
        })
        .collect();
    while sums.len() > 1 {
        let add = |pair: &[Vec<f32>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| a + b).collect();
        sums = sums.chunks_exact(2).map(add).collect();
    }
    sums.remove(0)
}

/// The weight and x.
fn operands(case: &LinearCase) -> (Vec<f32>, Vec<f32>) {
    let LinearCase {
        rows, n, k, dtype, ..
    } = *case;
    // Sums stay about one.
    #[allow(clippy::cast_precision_loss, reason = "test values are small")]
    let scale = 1.0 / (k as f32).sqrt();
    let weight = values(1, n * k).into_iter().map(|v| v * scale).collect();
    (rounded(dtype, weight), rounded(dtype, values(2, rows * k)))
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
    let (weight, x) = operands(case);
    let (first, second) = weight.split_at(n / 2 * k);
    let weight = if epilogue.joins_pairs() {
        let parts = [matrix("gate", k, first), matrix("up", k, second)];
        subject.backend.pack_linear(&parts, Packing::Interleaved)
    } else {
        subject
            .backend
            .pack_linear(&[matrix("whole", k, &weight)], Packing::JOINED)
    };
    let out_len = epilogue.out_len(n);
    let out_dtype = if to_f32 { DType::F32 } else { subject.dtype() };
    let out = subject.zeros(out_dtype, rows * out_len);
    subject.write(&out, &rounded(dtype, values(3, rows * out_len)));
    op(&subject.activations(&x), &weight.expect("it fits"), &out);
    subject.read(&out)
}
