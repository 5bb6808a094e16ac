//! A mixture of experts: the choice, the experts' feed-forwards, and what is added in the end.

use super::{Subject, matrix, rounded, values};
use pd_compute::{
    Backend, DType, Epilogue, ExpertBias, ExpertSource, MoeExperts, MoeFinish, MoeRoute, Routing,
    SharedRows,
};

/// Shapes, and what is there.
#[derive(Clone, Copy, Debug)]
pub struct ExpertsCase {
    pub rows: usize,
    pub num_experts: usize,
    /// Of these, as many as the device has, and the first of them.
    pub num_local: usize,
    pub first_expert: usize,
    pub hidden: usize,
    pub width: usize,
    pub routing: Routing,
    /// Of the choice and of the experts' linears.
    pub has_bias: bool,
    pub has_shared: bool,
    pub dtype: DType,
}

/// What became of it.
#[derive(Debug)]
pub struct Mixed {
    pub chosen: Vec<u32>,
    pub weights: Vec<f32>,
    pub x: Vec<f32>,
}

/// Routes by made-up logits, and adds what the experts make of made-up rows to others. The weights
/// are those of `routing` on every backend, since a choice may hang on rounding.
///
/// # Panics
/// When there is no memory for it.
pub fn experts<B: Backend>(subject: &Subject<B>, case: &ExpertsCase) -> Mixed {
    let ExpertsCase {
        rows,
        num_experts,
        num_local,
        first_expert,
        hidden,
        width,
        routing,
        has_bias,
        has_shared,
        dtype,
    } = *case;
    let top_k = routing.top_k;
    let (choices, backend) = (rows * top_k, &subject.backend);
    let bias = |seed, len| subject.floats(&values(seed, len));
    let choice_bias = bias(1, num_experts);
    let chosen = subject.words(&vec![u32::MAX; choices]);
    let weights = subject.zeros(DType::F32, choices);
    backend.moe_route(MoeRoute {
        logits: &subject.floats(&values(2, rows * num_experts)),
        num_experts,
        choice_bias: has_bias.then_some(&choice_bias),
        routing,
        chosen: &chosen,
        weights: &weights,
        rows,
    });
    let (gate_up_bias, down_bias) = (bias(3, num_local * 2 * width), bias(4, num_local * hidden));
    let rounded = |seed, len| rounded(dtype, values(seed, len));
    let sums = subject.zeros(subject.dtype(), rows * hidden);
    backend.moe_experts(MoeExperts {
        x: &subject.activations(&rounded(5, rows * hidden)),
        chosen: &chosen,
        weights: &weights,
        top_k,
        num_experts,
        experts: &packed(subject, case),
        first_expert,
        bias: has_bias.then_some(ExpertBias {
            gate_up: &gate_up_bias,
            down: &down_bias,
        }),
        glu: Epilogue::SwiGlu,
        gated: &subject.zeros(subject.dtype(), choices * width),
        terms: &subject.zeros(subject.dtype(), choices * hidden),
        sums: &sums,
        rows,
    });
    let (shared, gate) = (
        subject.activations(&rounded(6, rows * hidden)),
        bias(7, rows),
    );
    let x = subject.activations(&rounded(8, rows * hidden));
    backend.moe_finish(MoeFinish {
        sums: &sums,
        shared: has_shared.then_some(SharedRows {
            values: &shared,
            gate: has_bias.then_some(&gate),
        }),
        x: &x,
        hidden,
        rows,
    });
    Mixed {
        chosen: subject.read_words(&chosen),
        weights: subject.read(&weights),
        x: subject.read(&x),
    }
}

/// Experts whose products stay about one.
fn packed<B: Backend>(subject: &Subject<B>, case: &ExpertsCase) -> B::Experts {
    let ExpertsCase {
        num_local,
        hidden,
        width,
        dtype,
        ..
    } = *case;
    #[allow(clippy::cast_precision_loss, reason = "test values are small")]
    let scaled = |seed, k: usize| {
        let scale = 1.0 / (k as f32).sqrt();
        let values = values(seed, hidden * width).into_iter();
        rounded(dtype, values.map(|v| v * scale).collect())
    };
    let matrices: Vec<_> = (0..num_local as u64)
        .map(|e| {
            [
                scaled(100 + e, hidden),
                scaled(200 + e, hidden),
                scaled(300 + e, width),
            ]
        })
        .collect();
    let sources: Vec<_> = matrices
        .iter()
        .map(|[gate, up, down]| ExpertSource {
            gate: matrix("gate", hidden, gate),
            up: matrix("up", hidden, up),
            down: matrix("down", width, down),
        })
        .collect();
    subject.backend.pack_experts(&sources).expect("they fit")
}
