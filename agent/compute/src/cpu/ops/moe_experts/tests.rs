//! Experts beside a dense computation in f64, and bit for bit beside themselves: in other instruction sets,
//! batches, threads and ranks.

use super::line::BlockLine;
use crate::buffer::Ticket as _;
use crate::cpu::backend::tests::{floats, isas, words, zeros};
use crate::cpu::handle::{CpuBackend, CpuConfig};
use crate::cpu::isa::Isa;
use crate::cpu::linear_product::tests::{FORMATS, Matrix, mk_values, rounds_activations};
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::error::ComputeError;
use crate::k_order::EXPERT_SHARES;
use crate::ops::{Backend, Epilogue, ExpertBias, ExpertSource, MoeExperts};
use crate::weight::WeightSource;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;

struct Expert {
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    /// Gate and up in turn.
    gate_up_bias: Vec<f32>,
    down_bias: Vec<f32>,
}

struct Case {
    experts: Vec<Expert>,
    hidden: usize,
    width: usize,
    top_k: usize,
    rows: usize,
    x: Vec<f32>,
    chosen: Vec<u32>,
    weights: Vec<f32>,
    has_bias: bool,
}

impl Expert {
    fn source(&self) -> ExpertSource<'_> {
        ExpertSource {
            gate: self.gate.source(),
            up: self.up.source(),
            down: self.down.source(),
        }
    }
}

impl Case {
    /// Some experts are chosen by most rows, some by none.
    fn mk(format: WeightFormat, num_experts: usize, rows: usize, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let size = |rng: &mut StdRng| match format.block_len() {
            1 => rng.random_range(1..70),
            block_len => block_len,
        };
        let (hidden, width) = (size(&mut rng), size(&mut rng));
        let experts = (0..num_experts).map(|_| Expert {
            gate: Matrix::mk(format, width, hidden, &mut rng),
            up: Matrix::mk(format, width, hidden, &mut rng),
            down: Matrix::mk(format, hidden, width, &mut rng),
            gate_up_bias: mk_values(2 * width, &mut rng),
            down_bias: mk_values(hidden, &mut rng),
        });
        let experts = experts.collect();
        let top_k = rng.random_range(1..=num_experts.min(5));
        let ids: Vec<u32> = (0u32..).take(num_experts).collect();
        let mut chosen = Vec::new();
        for _ in 0..rows {
            let mut left = ids.clone();
            for _ in 0..top_k {
                let at = rng
                    .random_range(0..left.len())
                    .min(rng.random_range(0..left.len()));
                chosen.push(left.swap_remove(at));
            }
        }
        Self {
            experts,
            hidden,
            width,
            top_k,
            rows,
            x: mk_values(rows * hidden, &mut rng),
            chosen,
            weights: mk_values(rows * top_k, &mut rng),
            has_bias: rng.random(),
        }
    }

    fn sources(&self, local: Range<usize>) -> Vec<ExpertSource<'_>> {
        self.experts[local].iter().map(Expert::source).collect()
    }

    /// The sums of some rows by some of the experts.
    fn run(&self, backend: &CpuBackend, rows: Range<usize>, local: Range<usize>) -> Vec<f32> {
        self.try_run(backend, rows, local).unwrap()
    }

    fn try_run(
        &self,
        backend: &CpuBackend,
        rows: Range<usize>,
        local: Range<usize>,
    ) -> Result<Vec<f32>, ComputeError> {
        let experts = backend.pack_experts(&self.sources(local.clone()))?;
        let biases = |of: fn(&Expert) -> &Vec<f32>| {
            let values: Vec<f32> = self.experts[local.clone()]
                .iter()
                .flat_map(of)
                .copied()
                .collect();
            floats(backend, &values)
        };
        let (gate_ups, downs) = (biases(|e| &e.gate_up_bias), biases(|e| &e.down_bias));
        let (count, choices) = (rows.len(), rows.start * self.top_k..rows.end * self.top_k);
        let sums = floats(backend, &vec![9.0; count * self.hidden]);
        backend.moe_experts(MoeExperts {
            x: &floats(
                backend,
                &self.x[rows.start * self.hidden..rows.end * self.hidden],
            ),
            chosen: &words(backend, &self.chosen[choices.clone()]),
            weights: &floats(backend, &self.weights[choices.clone()]),
            top_k: self.top_k,
            num_experts: self.experts.len(),
            experts: &experts,
            first_expert: local.start,
            bias: self.has_bias.then_some(ExpertBias {
                gate_up: &gate_ups,
                down: &downs,
            }),
            glu: Epilogue::SwiGlu,
            gated: &zeros(backend, choices.len() * self.width),
            terms: &zeros(backend, choices.len() * self.hidden),
            sums: &sums,
            rows: count,
        });
        Ok(backend.read(&sums).wait()?.as_slice().to_vec())
    }

    fn whole(&self, backend: &CpuBackend) -> Vec<f32> {
        self.run(backend, 0..self.rows, 0..self.experts.len())
    }

    /// Of one row in f64, each with the sum of its terms' sizes; those of the greatest activation times each weight where
    /// activations are `rounded` beside it.
    fn expected(&self, row: usize, rounded: bool) -> Vec<(f64, f64)> {
        let x = &self.x[row * self.hidden..][..self.hidden];
        let mut sums = vec![(0.0, 0.0); self.hidden];
        for choice in row * self.top_k..(row + 1) * self.top_k {
            let expert = &self.experts[self.chosen[choice] as usize];
            let dot = |values: &[f32], x: &[f64]| -> (f64, f64) {
                let terms = values.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
                terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
            };
            let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
            let gates = expert.gate.values.chunks_exact(self.hidden);
            let ups = expert.up.values.chunks_exact(self.hidden);
            let bias = |bias: f32| if self.has_bias { f64::from(bias) } else { 0.0 };
            let biases = expert.gate_up_bias.as_chunks::<2>().0;
            let gated: Vec<f64> = gates
                .zip(ups)
                .zip(biases)
                .map(|((gate, up), [gate_bias, up_bias])| {
                    let gate = dot(gate, &x).0 + bias(*gate_bias);
                    let up = dot(up, &x).0 + bias(*up_bias);
                    gate / (1.0 + (-gate).exp()) * up
                })
                .collect();
            let weight = f64::from(self.weights[choice]);
            let downs = expert
                .down
                .values
                .chunks_exact(self.width)
                .zip(&expert.down_bias);
            for ((sum, size), (down, down_bias)) in sums.iter_mut().zip(downs) {
                let (value, value_size) = dot(down, &gated);
                let value_size = if rounded {
                    let greatest = gated.iter().fold(0.0, |g: f64, v| g.max(v.abs()));
                    greatest * down.iter().map(|w| f64::from(w.abs())).sum::<f64>()
                } else {
                    value_size
                };
                let bias = bias(*down_bias);
                *sum += weight * (value + bias);
                *size += (weight * (value_size + bias.abs())).abs();
            }
        }
        sums
    }
}

fn mk_backend(threads: usize, isa: Isa, compute_dtype: ComputeDtype) -> CpuBackend {
    CpuBackend::start(CpuConfig {
        threads,
        isa,
        compute_dtype,
    })
    .unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn experts_are_the_dense_sum_in_every_format_and_instruction_set(
        format in prop::sample::select(FORMATS.to_vec()),
        num_experts in 1..20_usize,
        rows in prop_oneof![1..4_usize, 4..70_usize],
        seed in any::<u64>(),
    ) {
        let case = Case::mk(format, num_experts, rows, seed);
        let mut results = Vec::new();
        for (isa, threads) in isas().zip([3, 1, 2]) {
            results.push(bits(&case.whole(&mk_backend(threads, isa, ComputeDtype::F32))));
        }
        let rounded = rounds_activations(format);
        for (row, found) in results[0].chunks_exact(case.hidden).enumerate() {
            for (found, (expected, size)) in found.iter().zip(case.expected(row, rounded)) {
                let found = f64::from(f32::from_bits(*found));
                let off = (found - expected).abs();
                // Activations of sixteen bits; what gates and ups are off by does not count in the sizes.
                let bound = if rounded { 1e-3 } else { 2e-5 };
                prop_assert!(off <= bound * size, "{} beside {} of {}", found, expected, size);
            }
        }
        for other in &results[1..] {
            prop_assert_eq!(other, &results[0], "instruction sets differ");
        }
    }

    /// In bfloat16 too, where a product has its own order of sums.
    #[test]
    fn a_row_is_bit_equal_in_any_batch_and_on_any_threads(
        format in prop::sample::select(FORMATS.to_vec()),
        bfloat16 in any::<bool>(),
        rows in 2..60_usize,
        cut in any::<prop::sample::Index>(),
        threads in 2..5_usize,
        seed in any::<u64>(),
    ) {
        let dtype = if bfloat16 { ComputeDtype::BF16 } else { ComputeDtype::F32 };
        let case = Case::mk(format, 6, rows, seed);
        let alone = mk_backend(1, Isa::detect(), dtype);
        let expected = bits(&case.whole(&alone));
        let many = mk_backend(threads, Isa::detect(), dtype);
        prop_assert_eq!(bits(&case.whole(&many)), &expected[..]);
        let cut = cut.index(rows);
        let all = 0..case.experts.len();
        let parts = [case.run(&many, 0..cut, all.clone()), case.run(&alone, cut..rows, all)];
        prop_assert_eq!(bits(&parts.concat()), &expected[..]);
    }

    /// Ranks have neighbouring shares; their sums are added in the tree that one rank adds shares in.
    #[test]
    fn ranks_add_up_to_the_bits_of_one(
        num_experts in 8..40_usize,
        ranks in prop::sample::select(vec![2_usize, 4, 8]),
        rows in 1..20_usize,
        seed in any::<u64>(),
    ) {
        let case = Case::mk(WeightFormat::F32, num_experts, rows, seed);
        let backend = mk_backend(2, Isa::detect(), ComputeDtype::F32);
        // The first expert of a share.
        let first = |share: usize| (share * num_experts).div_ceil(EXPERT_SHARES);
        let per_rank = EXPERT_SHARES / ranks;
        let mut sums: Vec<Vec<f32>> = (0..ranks)
            .map(|rank| first(rank * per_rank)..first((rank + 1) * per_rank))
            .map(|local| case.run(&backend, 0..rows, local))
            .collect();
        while sums.len() > 1 {
            let add = |pair: &[Vec<f32>]| {
                pair[0].iter().zip(&pair[1]).map(|(a, b)| a + b).collect::<Vec<_>>()
            };
            sums = sums.chunks_exact(2).map(add).collect();
        }
        prop_assert_eq!(bits(&sums[0]), bits(&case.whole(&backend)));
    }

    #[test]
    fn the_parts_of_a_line_cover_every_block_once(
        blocks in 1..50_usize,
        rows in prop::collection::vec(1..200_usize, 0..30),
        parts in 1..40_usize,
    ) {
        let line = BlockLine::new(blocks, &rows);
        let mut covered = vec![0; blocks * rows.len()];
        for part in 0..parts {
            for (group, range) in line.part(part, parts) {
                range.for_each(|block| covered[group * blocks + block] += 1);
            }
        }
        prop_assert!(covered.iter().all(|times| *times == 1), "{:?}", covered);
        let tasks = line.tasks(parts);
        prop_assert!(tasks <= parts * 4 && (tasks > 0 || covered.is_empty()));
    }
}

#[test]
fn an_expert_that_does_not_exist_faults_the_queue() {
    let mut case = Case::mk(WeightFormat::F32, 4, 3, 1);
    case.chosen[1] = 4;
    let backend = mk_backend(1, Isa::detect(), ComputeDtype::F32);
    let fault = case.try_run(&backend, 0..3, 0..4).unwrap_err().to_string();
    assert!(fault.contains("expert 4 of 4"), "{fault}");
}

#[test]
fn an_expert_of_another_shape_is_refused_by_name() {
    let case = Case::mk(WeightFormat::F32, 2, 1, 2);
    let backend = mk_backend(1, Isa::detect(), ComputeDtype::F32);
    let mut sources = case.sources(0..2);
    let other = Matrix::mk(
        WeightFormat::F32,
        case.hidden,
        case.width + 1,
        &mut StdRng::seed_from_u64(3),
    );
    sources[1].down = WeightSource {
        name: "experts.1.down",
        ..other.source()
    };
    let message = backend.pack_experts(&sources).unwrap_err().to_string();
    let expected = format!(
        "where the first expert asks for {}×{}",
        case.hidden, case.width
    );
    assert!(
        message.starts_with("weight experts.1.down: is "),
        "{message}"
    );
    assert!(message.ends_with(&expected), "{message}");
}
