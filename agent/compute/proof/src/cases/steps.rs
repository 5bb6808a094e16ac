//! Steps that come again: rows are gathered and multiplied twice, the second time by a larger weight.

use super::{Subject, matrix, values};
use pd_compute::{Backend, DType, Epilogue, GatherRows, Linear, NO_ROW, Packing};

const K: usize = 64;
const SRC_ROWS: usize = 100;
/// Rows of the two weights.
const NS: [usize; 2] = [32, 96];

/// A step's buffers, allocated once.
#[derive(Debug)]
pub struct Steps<B: Backend> {
    subject: Subject<B>,
    src: B::Buffer,
    indices: B::Buffer,
    x: B::Buffer,
    weights: Vec<B::Weight>,
    outs: Vec<B::Buffer>,
}

// === impl Steps ===

impl<B: Backend> Steps<B> {
    /// For steps of up to `rows_max` rows.
    ///
    /// # Panics
    /// When there is no memory.
    pub fn new(subject: &Subject<B>, rows_max: usize) -> Self {
        let weight = |n: usize| {
            let weight = values(n as u64, n * K);
            let source = matrix("weight", K, &weight);
            let packed = subject.backend.pack_linear(&[source], Packing::JOINED);
            packed.expect("it fits")
        };
        Self {
            subject: subject.clone(),
            src: subject.activations(&values(7, SRC_ROWS * K)),
            indices: subject.zeros(DType::U32, rows_max),
            x: subject.zeros(subject.dtype(), rows_max * K),
            weights: NS.map(weight).into(),
            outs: NS
                .map(|n| subject.zeros(subject.dtype(), rows_max * n / 2))
                .into(),
        }
    }

    /// Runs a step over these rows of the source, as one that may come again or not.
    pub fn run(&self, indices: &[u32], replays: bool) -> Vec<f32> {
        let backend = &self.subject.backend;
        backend.upload(&self.indices, indices);
        let step = || self.enqueue(indices.len());
        if replays {
            backend.replay(step);
        } else {
            step();
        }
        self.outs
            .iter()
            .flat_map(|out| self.subject.read(out))
            .collect()
    }

    fn enqueue(&self, rows: usize) {
        let backend = &self.subject.backend;
        backend.gather_rows(GatherRows {
            src: &self.src,
            indices: &self.indices,
            out: &self.x,
            row_len: K,
            rows,
        });
        for (weight, out) in self.weights.iter().zip(&self.outs) {
            backend.linear(Linear {
                x: &self.x,
                weight,
                bias: None,
                epilogue: Epilogue::SwiGlu,
                out,
                rows,
            });
        }
    }
}

/// Indices of a step that differ from turn to turn; some rows stay as they are.
pub fn indices(rows: u32, turn: u32) -> Vec<u32> {
    let index = |row: u32| match (row * 7 + turn * 31) % 101 {
        100 => NO_ROW,
        index => index,
    };
    (0..rows).map(index).collect()
}
