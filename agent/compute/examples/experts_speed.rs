//! Times a mixture of experts on the CPU backend, with made-up weights: steps of a few rows beside what the
//! chosen experts' bytes cost to read, and many rows beside linears of as many rows as an expert
//! gets. Best of several rounds.
//!
//! `cargo run --release -p pd-compute --example experts_speed -- [threads] [isa]`

#![allow(clippy::print_stdout, reason = "a program whose output is its result")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use pd_compute::cpu::{CpuBackend, CpuBuffer, CpuConfig, CpuExperts, Isa};
use pd_compute::dtype::ComputeDtype;
use pd_compute::sampling::noise;
use pd_compute::{
    Backend, ComputeError, DType, Epilogue, ExpertSource, Linear, MoeExperts, Packing, Ticket,
    WeightFormat, WeightSource,
};
use std::hint::black_box;
use std::time::Instant;

/// The proportions of Qwen3-30B-A3B at half its size; layers enough that no cache holds what a
/// step reads of them.
const HIDDEN: usize = 1024;
const WIDTH: usize = 384;
const EXPERTS: usize = 64;
const TOP_K: usize = 8;
const LAYERS: usize = 6;
const MAX_ROWS: usize = 1024;
const ROUNDS: usize = 7;

struct Bench {
    backend: CpuBackend,
    format: WeightFormat,
    layers: Vec<CpuExperts>,
    x: CpuBuffer,
    gated: CpuBuffer,
    terms: CpuBuffer,
    sums: CpuBuffer,
    weights: CpuBuffer,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = CpuConfig::default();
    if let Some(threads) = std::env::args().nth(1) {
        config.threads = threads.parse()?;
    }
    if let Some(isa) = std::env::args().nth(2) {
        config.isa =
            Isa::from_name(&isa).ok_or("scalar, avx2, avx512, avx512vnni, avx512bf16 or amx")?;
    }
    let gb_per_s = bandwidth(config.threads);
    let threads = config.threads;
    println!(
        "{threads} threads, {}: {gb_per_s:.1} GB/s read",
        config.isa.name()
    );
    for (format, compute_dtype) in [
        (WeightFormat::Q8_0, ComputeDtype::F32),
        (WeightFormat::BF16, ComputeDtype::F32),
        (WeightFormat::BF16, ComputeDtype::BF16),
    ] {
        config.compute_dtype = compute_dtype;
        let bench = Bench::new(CpuBackend::start(config)?, format)?;
        println!("{format:?} in {}:", compute_dtype.as_str());
        for rows in [1, 4, 16] {
            bench.few_rows(rows, gb_per_s)?;
        }
        for rows in [256, MAX_ROWS] {
            bench.many_rows(rows)?;
        }
    }
    Ok(())
}

/// What all threads read together of memory that no cache holds, in GB/s.
fn bandwidth(threads: usize) -> f64 {
    let memory = vec![1u64; 64 << 20];
    let part = memory.len() / threads;
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for part in memory.chunks_exact(part) {
                scope.spawn(move || {
                    let mut sums = [0u64; 32];
                    for line in part.as_chunks::<32>().0 {
                        sums.iter_mut()
                            .zip(line)
                            .for_each(|(sum, word)| *sum ^= word);
                    }
                    black_box(sums);
                });
            }
        });
        Ok(())
    });
    (memory.len() * 8) as f64 / seconds.unwrap_or(f64::NAN) / 1e9
}

/// Seconds of the fastest round.
fn best(mut round: impl FnMut() -> Result<(), ComputeError>) -> Result<f64, ComputeError> {
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok(fastest)
}

/// Any codes will do, but scales must be numbers: 0x2c2c is an f16 of 0.065.
fn stored(format: WeightFormat, n: usize, k: usize) -> Vec<u8> {
    vec![0x2c; n * format.row_bytes(k).expect("whole blocks")]
}

fn source(format: WeightFormat, n: usize, k: usize, bytes: &[u8]) -> WeightSource<'_> {
    WeightSource {
        name: "made up",
        format,
        n,
        k,
        bytes,
        scales: &[],
    }
}

// === impl Bench ===

impl Bench {
    fn new(backend: CpuBackend, format: WeightFormat) -> Result<Self, ComputeError> {
        let (rows, columns) = (stored(format, WIDTH, HIDDEN), stored(format, HIDDEN, WIDTH));
        let expert = ExpertSource {
            gate: source(format, WIDTH, HIDDEN, &rows),
            up: source(format, WIDTH, HIDDEN, &rows),
            down: source(format, HIDDEN, WIDTH, &columns),
        };
        let layers = (0..LAYERS).map(|_| backend.pack_experts(&[expert; EXPERTS]));
        let layers = layers.collect::<Result<_, _>>()?;
        let floats = |len| backend.alloc("activations", DType::F32, len);
        let weights = floats(MAX_ROWS * TOP_K)?;
        backend.upload(&weights, &vec![0.125f32; MAX_ROWS * TOP_K]);
        Ok(Self {
            format,
            layers,
            x: floats(MAX_ROWS * HIDDEN)?,
            gated: floats(MAX_ROWS * TOP_K * 2 * WIDTH)?,
            terms: floats(MAX_ROWS * TOP_K * HIDDEN)?,
            sums: floats(MAX_ROWS * HIDDEN)?,
            weights,
            backend,
        })
    }

    /// Different random experts for each row, of each layer.
    fn choices(&self, rows: usize) -> Result<Vec<CpuBuffer>, ComputeError> {
        let of_layer = |layer: u64| {
            let mut chosen = Vec::with_capacity(rows * TOP_K);
            for row in 0..rows {
                let mut left: Vec<u32> = (0u32..).take(EXPERTS).collect();
                for slot in 0..TOP_K {
                    let at = u32::try_from(row * TOP_K + slot).unwrap_or(0);
                    let draw = noise(layer, 0, at, 0) * left.len() as f64;
                    #[allow(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a draw in 0..len"
                    )]
                    let index = draw as usize;
                    chosen.push(left.swap_remove(index.min(left.len() - 1)));
                }
            }
            let buffer = self.backend.alloc("chosen", DType::U32, chosen.len())?;
            self.backend.upload(&buffer, &chosen);
            Ok(buffer)
        };
        (0..LAYERS as u64).map(of_layer).collect()
    }

    /// Seconds per layer.
    fn experts(&self, rows: usize) -> Result<(f64, Vec<CpuBuffer>), ComputeError> {
        let choices = self.choices(rows)?;
        let seconds = best(|| {
            for (experts, chosen) in self.layers.iter().zip(&choices) {
                self.backend.moe_experts(MoeExperts {
                    x: &self.x,
                    chosen,
                    weights: &self.weights,
                    top_k: TOP_K,
                    num_experts: EXPERTS,
                    experts,
                    first_expert: 0,
                    bias: None,
                    glu: Epilogue::SwiGlu,
                    gated: &self.gated,
                    terms: &self.terms,
                    sums: &self.sums,
                    rows,
                });
            }
            self.backend.fence().wait().map(drop)
        })?;
        Ok((seconds / LAYERS as f64, choices))
    }

    fn few_rows(&self, rows: usize, gb_per_s: f64) -> Result<(), ComputeError> {
        let (seconds, choices) = self.experts(rows)?;
        let mut distinct = 0;
        for chosen in &choices {
            let mut ids = self.backend.read(chosen).wait()?.as_slice::<u32>().to_vec();
            ids.sort_unstable();
            ids.dedup();
            distinct += ids.len();
        }
        let row_bytes = |k| self.format.row_bytes(k).expect("whole blocks");
        let expert = 2 * WIDTH * row_bytes(HIDDEN) + HIDDEN * row_bytes(WIDTH);
        let bytes = (expert * distinct) as f64 / LAYERS as f64;
        let read = bytes / seconds / 1e9;
        println!(
            "  {rows:4} rows: {:8.1} µs a layer, {read:5.1} GB/s, {:.0} % of what is read at most",
            seconds * 1e6,
            100.0 * read / gb_per_s
        );
        Ok(())
    }

    fn many_rows(&self, rows: usize) -> Result<(), ComputeError> {
        let (seconds, _) = self.experts(rows)?;
        let per_choice = 2 * 3 * HIDDEN * WIDTH;
        let gflops = (rows * TOP_K * per_choice) as f64 / seconds / 1e9;
        let each = rows * TOP_K / EXPERTS;
        println!(
            "  {rows:4} rows: {:8.1} ms a layer, {gflops:6.1} GFLOP/s; a linear of {each} rows {:6.1}, of {rows} {:6.1}",
            seconds * 1e3,
            self.linear(each)?,
            self.linear(rows)?
        );
        Ok(())
    }

    /// GFLOP/s of gates and ups that are one linear, as many as eight experts have, so that no cache
    /// holds them.
    fn linear(&self, rows: usize) -> Result<f64, ComputeError> {
        let n = 8 * WIDTH;
        let bytes = stored(self.format, n, HIDDEN);
        let part = source(self.format, n, HIDDEN, &bytes);
        let weight = self
            .backend
            .pack_linear(&[part, part], Packing::Interleaved)?;
        let out = self.backend.alloc("gated", DType::F32, rows * n)?;
        let seconds = best(|| {
            self.backend.linear(Linear {
                x: &self.x,
                weight: &weight,
                bias: None,
                epilogue: Epilogue::SwiGlu,
                out: &out,
                rows,
            });
            self.backend.fence().wait().map(drop)
        })?;
        Ok((rows * 2 * 2 * n * HIDDEN) as f64 / seconds / 1e9)
    }
}
