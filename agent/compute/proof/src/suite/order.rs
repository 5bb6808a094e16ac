//! Kernels may start before those before them have ended; what they compute says that they did not go on too early.

use super::Device;
use crate::cases::{Subject, matrix, values};
use pd_compute::{Backend, DType, Epilogue, Linear, Packing, RmsNorm, Ticket, WriteMode};

const HIDDEN: usize = 128;
const WIDE: usize = 384;
/// Feed-forwards in a row, each added to the rows that the next one norms.
const ROUNDS: usize = 16;

struct Chain<B: Backend> {
    subject: Subject<B>,
    rows: usize,
    gains: B::Buffer,
    gate_up: B::Weight,
    down: B::Weight,
    x: B::Buffer,
    normed: B::Buffer,
    gated: B::Buffer,
}

// === impl Chain ===

impl<B: Backend> Chain<B> {
    fn new(subject: &Subject<B>, rows: usize) -> Self {
        let zeros = |width| subject.zeros(subject.dtype(), rows * width);
        let pack = |seed, n: usize, k: usize, parts: usize| {
            let values = values(seed, parts * n * k);
            let sources: Vec<_> = values
                .chunks_exact(n * k)
                .map(|part| matrix("part", k, part))
                .collect();
            let packing = if parts > 1 {
                Packing::Interleaved
            } else {
                Packing::SUMMED
            };
            let packed = subject.backend.pack_linear(&sources, packing);
            packed.expect("test weights fit")
        };
        Self {
            subject: subject.clone(),
            rows,
            gains: subject.floats(&values(4, HIDDEN)),
            gate_up: pack(5, WIDE, HIDDEN, 2),
            down: pack(6, HIDDEN, WIDE, 1),
            x: zeros(HIDDEN),
            normed: zeros(HIDDEN),
            gated: zeros(WIDE),
        }
    }

    /// The rounds, `after` each op of them.
    fn enqueue(&self, after: impl Fn(&B)) {
        let backend = &self.subject.backend;
        let linear = |x, weight, epilogue, out| {
            let rows = self.rows;
            backend.linear(Linear {
                x,
                weight,
                bias: None,
                epilogue,
                out,
                rows,
            });
            after(backend);
        };
        for round in 0..ROUNDS {
            let norm = RmsNorm {
                x: &self.x,
                add: None,
                weight: &self.gains,
                eps: 1e-6,
                out: &self.normed,
                into: WriteMode::Store,
                rows: self.rows,
            };
            let gate_up = Linear {
                x: &self.normed,
                weight: &self.gate_up,
                bias: None,
                epilogue: Epilogue::SwiGlu,
                out: &self.gated,
                rows: self.rows,
            };
            if round % 2 == 0 {
                backend.rms_norm(norm);
                after(backend);
                backend.linear(gate_up);
            } else {
                backend.norm_linear(norm, gate_up);
            }
            after(backend);
            linear(&self.gated, &self.down, Epilogue::AddResidual, &self.x);
        }
    }

    /// Bits of the rows that `run` makes of the same ones.
    fn bits_of(&self, run: impl Fn(&Self)) -> Vec<u32> {
        self.subject.write(&self.x, &values(7, self.rows * HIDDEN));
        run(self);
        let x = self.subject.read(&self.x);
        x.iter().map(|value| value.to_bits()).collect()
    }
}

pub(super) fn kernels_in_a_row_see_what_those_before_wrote<D: Device>(device: &D) {
    // With few rows kernels of our own multiply, with more the library.
    for rows in [1, 20] {
        let chain = Chain::new(&device.start(DType::BF16, false), rows);
        let one_by_one = chain.bits_of(|chain| {
            chain.enqueue(|backend| {
                backend.fence().wait().expect("the stream has not faulted");
            });
        });
        assert!(
            one_by_one
                .iter()
                .all(|bits| f32::from_bits(*bits).is_finite())
        );
        // A replayed step is a graph from the second time on.
        for turn in 0..3 {
            let replayed = chain.bits_of(|chain| {
                chain.subject.backend.replay(|| chain.enqueue(|_| ()));
            });
            assert!(replayed == one_by_one, "{rows} rows, turn {turn}");
            let plain = chain.bits_of(|chain| chain.enqueue(|_| ()));
            assert!(plain == one_by_one, "{rows} rows, turn {turn}");
        }
    }
}
