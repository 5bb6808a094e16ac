//! Speed of the ops of one gated delta layer, of the shape of Qwen3.5-4B's, beside what its states cost alone.
//!
//! `cargo run --release -p pd-compute --example delta_speed -- [threads] [isa]`
//!
//! Of each op, the processor time of all threads in the best of several batches, since other work may share
//! the cores. A token reads and writes the whole recurrent state of its sequence. So the bounds are a loop
//! that multiplies as many floats by a constant: in pieces that stay in the L1 cache for a prompt, where the
//! state of a task does, and over all states for a decode step, where they come from further away.

#![allow(clippy::print_stdout, reason = "an example prints its results")]
#![allow(unsafe_code, reason = "the processor's clock")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "sizes and rates for people"
)]

use pd_compute::cpu::{CpuBackend, CpuBuffer, CpuConfig, Isa};
use pd_compute::{
    Backend, BatchView, CausalConv, DType, DeviceBuffer, GatedNorm, GdnScan, NO_SLOT, StateRows,
    StateTensorView, StateView, Strided, Ticket,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

const K_HEADS: usize = 16;
const V_HEADS: usize = 32;
const DIM: usize = 128;
const TAPS: usize = 4;
const CHANNELS: usize = (2 * K_HEADS + V_HEADS) * DIM;
/// qkv, z, b, a.
const PROJECTED: usize = CHANNELS + V_HEADS * DIM + 2 * V_HEADS;
/// Floats of the recurrent state.
const STATE: usize = V_HEADS * DIM * DIM;
/// Floats that a task keeps in the L1 cache.
const PIECE: usize = 32 * DIM;
/// Sequences and their rows.
const STEPS: [(usize, usize); 4] = [(1, 512), (1, 1), (8, 1), (32, 1)];
const SEQS_MAX: usize = 32;
const BATCH: Duration = Duration::from_millis(400);
const BATCHES: usize = 5;

struct Layer {
    backend: CpuBackend,
    projected: CpuBuffer,
    convolved: CpuBuffer,
    out: CpuBuffer,
    weight: CpuBuffer,
    per_head: CpuBuffer,
    norm: CpuBuffer,
    conv: StateView<CpuBackend>,
    recurrent: StateView<CpuBackend>,
}

struct Step {
    batch: BatchView<CpuBackend>,
    state_rows: StateRows<CpuBackend>,
}

fn noise(len: usize) -> Vec<f32> {
    let value = |i: usize| (i * 2_654_435_761 % 1000) as f32 / 500.0 - 1.0;
    (0..len).map(value).collect()
}

fn floats(backend: &CpuBackend, values: &[f32]) -> CpuBuffer {
    let buffer = backend.alloc("floats", DType::F32, values.len());
    let buffer = buffer.expect("it fits");
    backend.upload(&buffer, values);
    buffer
}

fn words(backend: &CpuBackend, values: &[u32]) -> CpuBuffer {
    let buffer = backend.alloc("words", DType::U32, values.len());
    let buffer = buffer.expect("it fits");
    backend.upload(&buffer, values);
    buffer
}

/// Processor seconds of all threads so far.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a clock that every Linux has, and a place for its time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor seconds of a run, in the quickest of several batches: long ones, since the clock of other threads
/// may lag by a tick.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let mut batch = |_| {
        let (started, processor) = (Instant::now(), processor_seconds());
        let mut runs = 0;
        while started.elapsed() < BATCH {
            run();
            runs += 1;
        }
        (processor_seconds() - processor) / f64::from(runs)
    };
    (0..BATCHES).map(&mut batch).fold(f64::INFINITY, f64::min)
}

/// Multiplies `len` floats of a piece, `times` over, and so on through all pieces.
fn scale_pieces(values: &mut [f32], piece: usize, times: usize) {
    for piece in values.chunks_mut(piece) {
        for _ in 0..times {
            for x in black_box(&mut *piece) {
                *x *= 0.999;
            }
        }
    }
}

// === impl Layer ===

impl Layer {
    fn new(threads: usize, isa: Isa) -> Self {
        let config = CpuConfig {
            threads,
            isa,
            ..CpuConfig::default()
        };
        let backend = CpuBackend::start(config).expect("the backend starts");
        let rows = STEPS.iter().map(|(seqs, rows)| seqs * rows).max();
        let rows = rows.unwrap_or(0);
        let view = |tensors: &[StateTensorView]| {
            let mut view = StateView {
                region: floats(&backend, &[]),
                num_slots: SEQS_MAX,
                num_layers: 1,
                tensors: tensors.into(),
            };
            view.region = floats(&backend, &noise(SEQS_MAX * view.item_len()));
            view
        };
        let conv = |heads| StateTensorView {
            heads,
            elements: DIM * (TAPS - 1),
        };
        let recurrent = StateTensorView {
            heads: V_HEADS,
            elements: DIM * DIM,
        };
        Self {
            projected: floats(&backend, &noise(rows * PROJECTED)),
            convolved: floats(&backend, &noise(rows * CHANNELS)),
            out: floats(&backend, &noise(rows * V_HEADS * DIM)),
            weight: floats(&backend, &noise(TAPS * CHANNELS)),
            per_head: floats(&backend, &[-0.1; V_HEADS]),
            norm: floats(&backend, &[1.0; DIM]),
            conv: view(&[conv(K_HEADS), conv(K_HEADS), conv(V_HEADS)]),
            recurrent: view(&[recurrent]),
            backend,
        }
    }

    fn step(&self, seqs: usize, rows: usize) -> Step {
        let backend = &self.backend;
        let none = words(backend, &[]);
        let count = |n: usize| 0..u32::try_from(n).expect("few sequences");
        let ends: Vec<u32> = count(seqs + 1).map(|seq| seq * rows as u32).collect();
        let slots: Vec<u32> = count(seqs).collect();
        Step {
            batch: BatchView {
                num_tokens: seqs * rows,
                num_seqs: seqs,
                token_ids: none.clone(),
                positions: none.clone(),
                q_indptr: words(backend, &ends),
                kv_lens: none.clone(),
                page_table: none.clone(),
                page_table_stride: 0,
                out_slots: none,
            },
            state_rows: StateRows {
                read: words(backend, &slots),
                write: words(backend, &slots),
                snapshot: words(backend, &vec![NO_SLOT; seqs * rows]),
            },
        }
    }

    /// The columns of the joined linear's output from `first` on.
    fn columns<R>(&self, first: usize, f: impl FnOnce(Strided<'_, CpuBackend>) -> R) -> R {
        let values = self.projected.slice(first..self.projected.len());
        f(Strided {
            values: &values,
            row_stride: PROJECTED,
        })
    }

    fn conv(&self, step: &Step) {
        self.columns(0, |x| {
            self.backend.causal_conv(CausalConv {
                x,
                weight: &self.weight,
                taps: TAPS,
                batch: &step.batch,
                states: &self.conv,
                state_rows: &step.state_rows,
                layer: 0,
                out: &self.convolved,
            });
        });
        self.wait();
    }

    fn scan(&self, step: &Step) {
        let gates = CHANNELS + V_HEADS * DIM;
        self.columns(gates, |b| {
            self.columns(gates + V_HEADS, |a| {
                self.backend.gdn_scan(GdnScan {
                    qkv: &self.convolved,
                    num_k_heads: K_HEADS,
                    k_dim: DIM,
                    a,
                    b,
                    decay: &self.per_head,
                    dt_bias: &self.per_head,
                    batch: &step.batch,
                    states: &self.recurrent,
                    state_rows: &step.state_rows,
                    layer: 0,
                    out: &self.out,
                });
            });
        });
        self.wait();
    }

    fn norm(&self, step: &Step) {
        self.columns(CHANNELS, |z| {
            self.backend.gated_norm(GatedNorm {
                x: &self.out,
                z,
                weight: &self.norm,
                eps: 1e-6,
                num_heads: V_HEADS,
                rows: step.batch.num_tokens,
            });
        });
        self.wait();
    }

    fn wait(&self) {
        self.backend.fence().wait().expect("the queue runs");
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().map_or(1, |n| n.parse().expect("a number"));
    let isa = args
        .next()
        .map(|name| Isa::from_name(&name).expect("an instruction set"));
    let layer = Layer::new(threads, isa.unwrap_or_else(Isa::detect));
    println!(
        "{threads} threads, {:?}; one layer, milliseconds",
        layer.backend.config().isa
    );
    for (seqs, rows) in STEPS {
        let step = layer.step(seqs, rows);
        let mut states = noise(seqs * STATE);
        let bound = if rows > 1 {
            best(|| scale_pieces(&mut states, PIECE, rows))
        } else {
            best(|| scale_pieces(&mut states, STATE, 1))
        };
        let [conv, scan, norm] = [
            best(|| layer.conv(&step)),
            best(|| layer.scan(&step)),
            best(|| layer.norm(&step)),
        ]
        .map(|seconds| seconds * 1e3);
        let rate = 7.0 * (seqs * rows * STATE) as f64 / scan / 1e6;
        println!(
            "{seqs:>3} × {rows:<4} conv {conv:8.3}  scan {scan:8.3} ({rate:.1} GF/s, its states alone {:.3})  \
             norm {norm:8.3}",
            bound * 1e3
        );
    }
}
