//! Speed of packed linears on this machine, beside its peaks measured in the same run.
//!
//! `cargo run --release -p pd-compute --example linear_speed -- [threads] [format or n×k]…`
//!
//! Few rows are bound by reading weights, so they are given as GB/s of packed weights beside the
//! bandwidth of a plain read; each product goes through copies of its weight that exceed the cache.
//! Many rows are bound by arithmetic, given as GF/s beside a loop of fused multiply-adds that stays
//! in registers. Time is the processor time of the busiest thread, in the best of several runs, since
//! other work may share the cores.

#![allow(clippy::print_stdout, reason = "an example prints its results")]
#![allow(unsafe_code, reason = "the register loops, and tasks that write apart")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and rates for people"
)]

mod peaks;

use pd_compute::cpu::Isa;
use pd_compute::cpu::linear_product::{LinearProduct, LinearScratch, SharedOut};
use pd_compute::cpu::pack::{PackTarget, PackedLinear, serially};
use pd_compute::dtype::ComputeDtype;
use pd_compute::{Epilogue, Packing, WeightFormat, WeightSource};
use peaks::{DOTS, peak_gflops, peak_of_dots};
use std::hint::black_box;

/// Weights larger than the caches of the machines we know.
const COLD_BYTES: usize = 192 << 20;

const FORMATS: [(&str, WeightFormat); 9] = [
    ("F32", WeightFormat::F32),
    ("F16", WeightFormat::F16),
    ("BF16", WeightFormat::BF16),
    ("Q8_0", WeightFormat::Q8_0),
    ("Q4_0", WeightFormat::Q4_0),
    ("Q4_1", WeightFormat::Q4_1),
    ("Q4_K", WeightFormat::Q4K),
    ("Q6_K", WeightFormat::Q6K),
    ("MXFP4", WeightFormat::Mxfp4),
];

/// (n, k): SmolLM2's qkv, output, gate and up, down; two larger squares.
const SHAPES: [(usize, usize); 6] = [
    (960, 576),
    (576, 576),
    (3072, 576),
    (576, 1536),
    (2048, 2048),
    (4096, 4096),
];

const FEW_ROWS: [usize; 5] = [1, 2, 4, 8, 12];
const MANY_ROWS: [usize; 3] = [32, 128, 512];

/// Processor seconds of the calling thread.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a clock that every Linux has, and a place for its time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds of the quickest run of `work(thread)` on all threads.
fn best(threads: usize, runs: usize, work: impl Fn(usize) + Sync) -> f64 {
    let timed = |thread| {
        let start = thread_seconds();
        work(thread);
        thread_seconds() - start
    };
    let run = || {
        std::thread::scope(|scope| {
            let timed = &timed;
            let others: Vec<_> = (1..threads)
                .map(|thread| scope.spawn(move || timed(thread)))
                .collect();
            let first = timed(0);
            let others = others
                .into_iter()
                .map(|other| other.join().expect("no panic"));
            others.fold(first, f64::max)
        })
    };
    (0..runs).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Of a packed weight's memory, so on the same pages.
fn read_gbps(threads: usize) -> f64 {
    let (n, k) = (COLD_BYTES / (4 * 4096), 4096);
    let weight = pack(WeightFormat::F32, n, k, PackTarget::any(ComputeDtype::F32));
    let memory = weight.packed_bytes();
    let seconds = best(threads, 10, |thread| {
        let share = memory.len() / threads;
        let bytes = &memory[thread * share..(thread + 1) * share];
        let mut sums = [0_u8; 512];
        for bytes in bytes.as_chunks::<512>().0 {
            sums.iter_mut()
                .zip(bytes)
                .for_each(|(sum, byte)| *sum ^= byte);
        }
        black_box(sums);
    });
    memory.len() as f64 / seconds / 1e9
}

/// Any codes will do, but scales must be numbers: 0x2c2c is an f16 of 0.065.
fn stored(format: WeightFormat, n: usize, k: usize) -> Vec<u8> {
    vec![0x2c; n * format.row_bytes(k).expect("k is a multiple of 32 or 256")]
}

fn pack(format: WeightFormat, n: usize, k: usize, target: PackTarget) -> PackedLinear {
    pack_stored(&stored(format, n, k), format, n, k, target)
}

fn pack_stored(
    bytes: &[u8],
    format: WeightFormat,
    n: usize,
    k: usize,
    target: PackTarget,
) -> PackedLinear {
    let source = WeightSource {
        name: "w",
        format,
        n,
        k,
        bytes,
        scales: &[],
    };
    PackedLinear::pack(&[source], Packing::JOINED, target, &serially).expect("bytes of this shape")
}

/// Stored bytes that one thread packs in a second.
fn pack_gbps(format: WeightFormat) -> f64 {
    let (n, k) = (3072, 4096);
    let bytes = stored(format, n, k);
    let seconds = best(1, 3, |_| {
        black_box(pack_stored(
            &bytes,
            format,
            n,
            k,
            PackTarget::any(ComputeDtype::F32),
        ));
    });
    bytes.len() as f64 / seconds / 1e9
}

/// Seconds of one product, with weights from memory when `cold`.
fn measure(weights: &[PackedLinear], rows: usize, isa: Isa, threads: usize, runs: usize) -> f64 {
    let (k, n) = (weights[0].k(), weights[0].out_len());
    let x = vec![0.5_f32; rows * k];
    let mut outs = vec![0.0_f32; weights.len() * rows * n];
    let products: Vec<_> = weights
        .iter()
        .zip(outs.chunks_exact_mut(rows * n))
        .map(|(weight, out)| LinearProduct {
            weight,
            x: &x,
            x_stride: k,
            x_rows: None,
            rows,
            bias: None,
            epilogue: Epilogue::Store,
            out: SharedOut::new(out, n),
            isa,
        })
        .collect();
    let seconds = best(threads, runs, |thread| {
        let mut scratch = LinearScratch::new();
        for product in &products {
            let tasks = product.tasks(threads);
            for task in (thread..tasks.len()).step_by(threads) {
                // SAFETY: every task of a product is run by one thread.
                unsafe { product.run_task(&tasks.get(task), &mut scratch) };
            }
        }
    });
    seconds / weights.len() as f64
}

/// What to measure: everything, or what the arguments name.
struct Wanted(Vec<String>);

impl Wanted {
    fn named(&self, is_kind: impl Fn(&str) -> bool, name: &str) -> bool {
        let mut of_kind = self.0.iter().filter(|arg| is_kind(arg)).peekable();
        of_kind.peek().is_none() || of_kind.any(|arg| arg == name)
    }

    fn shape(&self, n: usize, k: usize) -> bool {
        self.named(|arg| arg.contains('×'), &format!("{n}×{k}"))
    }

    fn format(&self, name: &str) -> bool {
        self.named(|arg| !arg.contains('×'), name)
    }
}

/// One format on one instruction set.
struct Bench<'a> {
    name: &'a str,
    format: WeightFormat,
    target: PackTarget,
    isa: Isa,
}

fn bench(bench: &Bench<'_>, wanted: &Wanted, threads: usize) {
    let Bench {
        name,
        format,
        target,
        isa,
    } = *bench;
    for (n, k) in SHAPES.into_iter().filter(|(n, k)| wanted.shape(*n, *k)) {
        let Some(row_bytes) = format.row_bytes(k) else {
            continue;
        };
        let copies = COLD_BYTES.div_ceil(n * row_bytes);
        let weights: Vec<_> = (0..copies).map(|_| pack(format, n, k, target)).collect();
        let bytes = weights[0].packed_bytes().len() as f64;
        print!("{name:<9} {n:>5}×{k:<5}");
        for rows in FEW_ROWS {
            let seconds = measure(&weights, rows, isa, threads, 5);
            print!(" {rows:>3}: {:>5.1} GB/s", bytes / seconds / 1e9);
        }
        for rows in MANY_ROWS {
            let flops = (2 * n * k * rows) as f64;
            let repeats = (2e9 / flops).ceil().min(copies as f64) as usize;
            let seconds = measure(&weights[..repeats.max(1)], rows, isa, threads, 5);
            print!(" {rows:>4}: {:>5.0} GF/s", flops / seconds / 1e9);
        }
        println!();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args
        .first()
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(cores);
    let wanted = Wanted(args.into_iter().skip(1).collect());
    let detected = Isa::detect();
    let isas = [Isa::Avx512Vnni, Isa::Avx512, Isa::Avx2]
        .into_iter()
        .filter(|isa| *isa <= detected);
    println!("{threads} threads; read {:.1} GB/s", read_gbps(threads));
    for (name, format) in FORMATS.into_iter().filter(|(name, _)| wanted.format(name)) {
        println!(
            "{name:<9} packed at {:.2} GB/s per thread",
            pack_gbps(format)
        );
    }
    for dot in DOTS.iter().filter(|dot| dot.isa <= detected) {
        println!("{}: peak {:.0} GF/s", dot.name, peak_of_dots(dot, threads));
    }
    for isa in isas {
        println!("{}: peak {:.0} GF/s", isa.name(), peak_gflops(isa, threads));
        for (name, format) in FORMATS.into_iter().filter(|(name, _)| wanted.format(name)) {
            bench(
                &Bench {
                    name,
                    format,
                    target: PackTarget::any(ComputeDtype::F32),
                    isa,
                },
                &wanted,
                threads,
            );
        }
    }
    for (isa, whole) in [(Isa::Avx512Bf16, "vdpbf16ps"), (Isa::Amx, "tdpbf16ps")] {
        if isa > detected || !wanted.format(whole) {
            continue;
        }
        let (format, dtype) = (WeightFormat::BF16, ComputeDtype::BF16);
        for (name, packed_for) in [(whole, Isa::Scalar), ("compact", isa)] {
            let target = PackTarget {
                dtype,
                isa: packed_for,
            };
            let bench_of = Bench {
                name,
                format,
                target,
                isa,
            };
            bench(&bench_of, &wanted, threads);
        }
    }
    println!("read {:.1} GB/s", read_gbps(threads));
}
