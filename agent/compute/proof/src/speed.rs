//! How fast ops are in the shapes of real models: each is enqueued many times over inputs that exceed
//! the caches, and the whole is waited for once.

use crate::cases::Subject;
use crate::cases::attention::KvShape;
use crate::cases::sampling::{SampleCase, Sampling};
use pd_compute::cuda::driver::{Driver, DriverError, Gemm, Work};
use pd_compute::{
    AttnPaged, AttnValues, Backend, BatchView, DType, Epilogue, GatherRows, KvScales, Linear,
    NO_SLOT, Packing, RmsNorm, SamplingRow, Ticket, WeightFormat, WeightSource, WriteMode,
};
use serde::Serialize;
use std::time::Instant;

/// A dense model's sizes.
#[derive(Clone, Copy, Debug)]
pub struct ModelShape {
    pub name: &'static str,
    pub hidden: usize,
    pub intermediate: usize,
    pub num_q_heads: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
}

/// Source: the models' config.json.
pub const QWEN3: [ModelShape; 3] = [
    ModelShape {
        name: "Qwen3-0.6B",
        hidden: 1024,
        intermediate: 3072,
        num_q_heads: 16,
        num_kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
    },
    ModelShape {
        name: "Qwen3-4B",
        hidden: 2560,
        intermediate: 9728,
        num_q_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
    },
    ModelShape {
        name: "Qwen3-8B",
        hidden: 4096,
        intermediate: 12_288,
        num_q_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
    },
];

/// What is measured, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Plan {
    pub models: Vec<ModelShape>,
    /// Rows of linears.
    pub rows: Vec<usize>,
    /// Keys of each sequence, and sequences, of decode steps.
    pub decodes: Vec<(usize, usize)>,
    /// Tokens of a prompt.
    pub prompts: Vec<usize>,
    pub repeats: usize,
    /// Inputs together exceed this, so that none is found in a cache.
    pub cold_bytes: usize,
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub what: String,
    pub microseconds: f64,
    /// Bytes that must be read or written, per second.
    pub gb_per_s: f64,
    pub tflop_per_s: f64,
}

/// What a device does at best.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bounds {
    /// Read and written by the driver's own copy.
    pub gb_per_s: f64,
    /// By the vendor's library, of bfloat16.
    pub tflop_per_s: f64,
}

/// Bytes of each side of the copy, and rows and columns of the product.
const COPIED_BYTES: usize = 1 << 30;
const MULTIPLIED: usize = 8192;

/// Measures them, where the vendor's library is.
///
/// # Errors
/// The driver's.
pub fn bounds(driver: &dyn Driver) -> Result<Bounds, DriverError> {
    let n = MULTIPLIED;
    let (a, b) = (driver.alloc(COPIED_BYTES)?, driver.alloc(COPIED_BYTES)?);
    let matrices_bytes = 2 * 2 * n * n;
    let noise = driver.alloc_pinned(matrices_bytes)?;
    // SAFETY: just allocated, of this length, and not shared.
    fill_with_noise(unsafe { std::slice::from_raw_parts_mut(noise.as_ptr(), matrices_bytes) });
    // SAFETY: both ranges were just allocated; freeing waits for the copy.
    unsafe {
        driver.copy(a, noise.as_ptr() as u64, matrices_bytes)?;
        driver.free_pinned(noise);
    }
    let product = Gemm {
        x: a,
        weight: a + (2 * n * n) as u64,
        out: b,
        rows: n,
        n,
        k: n,
        adds: false,
        to_f32: false,
    };
    // SAFETY: both allocations are as large as the copy, and hold the three matrices.
    let copy = || unsafe { driver.copy(b, a, COPIED_BYTES) };
    // SAFETY: as above.
    let multiply = || unsafe { driver.enqueue(&Work::Gemm(product)) };
    let copying = seconds_of(driver, &copy);
    let multiplying = seconds_of(driver, &multiply);
    for addr in [a, b] {
        // SAFETY: from `alloc`, and what used it has been waited for.
        unsafe { driver.free(addr) };
    }
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    Ok(Bounds {
        gb_per_s: 2.0 * COPIED_BYTES as f64 / copying? / 1e9,
        tflop_per_s: 2.0 * (n as f64).powi(3) / multiplying? / 1e12,
    })
}

/// Seconds of one, of many that run one after another.
fn seconds_of(
    driver: &dyn Driver,
    enqueue: &dyn Fn() -> Result<(), DriverError>,
) -> Result<f64, DriverError> {
    const RUNS: u32 = 20;
    let settle = || {
        let event = driver.record()?;
        let waited = driver.wait(&event);
        driver.release(event);
        waited
    };
    enqueue()?;
    settle()?;
    let started = Instant::now();
    for _ in 0..RUNS {
        enqueue()?;
    }
    settle()?;
    Ok(started.elapsed().as_secs_f64() / f64::from(RUNS))
}

struct Bench<'a, B: Backend> {
    subject: &'a Subject<B>,
    plan: &'a Plan,
    measured: Vec<Measured>,
    report: &'a mut dyn FnMut(&Measured),
}

/// Measures everything of the plan; `report` gets each result when it is there.
///
/// # Panics
/// When memory does not suffice, or the device faults.
pub fn measure<B: Backend>(
    subject: &Subject<B>,
    plan: &Plan,
    report: &mut dyn FnMut(&Measured),
) -> Vec<Measured> {
    let mut bench = Bench {
        subject,
        plan,
        measured: Vec::new(),
        report,
    };
    bench.copies();
    for model in &plan.models {
        bench.linears(model);
        bench.attention(model);
        bench.norm(model);
        bench.sampling(model);
    }
    bench.measured
}

// === impl Bench ===

impl<B: Backend> Bench<'_, B> {
    /// `enqueue(i)` is the `i`th run; its bytes and operations are those of one run.
    fn time(&mut self, what: String, bytes: usize, flops: usize, enqueue: impl Fn(usize)) {
        let backend = &self.subject.backend;
        let settle = || backend.fence().wait().expect("the device does not fault");
        enqueue(0);
        settle();
        let started = Instant::now();
        for i in 0..self.plan.repeats {
            enqueue(i);
        }
        settle();
        #[allow(clippy::cast_precision_loss, reason = "figures for people")]
        let (seconds, bytes, flops) = (
            started.elapsed().as_secs_f64() / self.plan.repeats as f64,
            bytes as f64,
            flops as f64,
        );
        let measured = Measured {
            what,
            microseconds: seconds * 1e6,
            gb_per_s: bytes / seconds / 1e9,
            tflop_per_s: flops / seconds / 1e12,
        };
        (self.report)(&measured);
        self.measured.push(measured);
    }

    /// How many copies of `bytes` exceed the caches.
    fn copies_of(&self, bytes: usize) -> usize {
        self.plan.cold_bytes.div_ceil(bytes).clamp(1, 64)
    }

    /// The bound of everything that moves bytes: half are read, half written.
    fn copies(&mut self) {
        let subject = self.subject;
        let len = (self.plan.cold_bytes / 4).max(1024);
        let rows = (len / 4096).max(1);
        let (src, out) = (
            subject.zeros(DType::U32, rows * 4096),
            subject.zeros(DType::U32, rows * 4096),
        );
        let indices: Vec<u32> = (0..u32::try_from(rows).expect("rows fit")).collect();
        let indices = subject.words(&indices);
        let bytes = 2 * rows * 4096 * 4;
        self.time("copy of rows".to_owned(), bytes, 0, |_| {
            subject.backend.gather_rows(GatherRows {
                src: &src,
                indices: &indices,
                out: &out,
                row_len: 4096,
                rows,
            });
        });
    }

    fn linears(&mut self, model: &ModelShape) {
        let q = model.num_q_heads * model.head_dim;
        let kv = model.num_kv_heads * model.head_dim;
        let shapes = [
            ("qkv", q + 2 * kv, model.hidden, Epilogue::Store),
            ("o", model.hidden, q, Epilogue::AddResidual),
            (
                "gate_up",
                2 * model.intermediate,
                model.hidden,
                Epilogue::SwiGlu,
            ),
            (
                "down",
                model.hidden,
                model.intermediate,
                Epilogue::AddResidual,
            ),
            ("lm_head", model.vocab, model.hidden, Epilogue::Store),
        ];
        for (name, n, k, epilogue) in shapes {
            let subject = self.subject;
            let weights: Vec<B::Weight> = (0..self.copies_of(n * k * 2))
                .map(|_| weight(subject, n, k, epilogue))
                .collect();
            for rows in self.plan.rows.clone() {
                // Logits of whole prompts are never wanted.
                if name == "lm_head" && rows > 256 {
                    continue;
                }
                let out_dtype = if name == "lm_head" {
                    DType::F32
                } else {
                    subject.dtype()
                };
                let x = subject.zeros(subject.dtype(), rows * k);
                let out_len = epilogue.out_len(n);
                let out = subject.zeros(out_dtype, rows * out_len);
                let what = format!("{} {name} {rows}×{k}→{n}", model.name);
                let bytes = 2 * (n * k + rows * k + rows * out_len);
                self.time(what, bytes, 2 * rows * n * k, |i| {
                    subject.backend.linear(Linear {
                        x: &x,
                        weight: &weights[i % weights.len()],
                        bias: None,
                        epilogue,
                        out: &out,
                        rows,
                    });
                });
            }
        }
    }

    fn attention(&mut self, model: &ModelShape) {
        for (keys, seqs) in self.plan.decodes.clone() {
            self.attend(
                model,
                &vec![(keys, 1); seqs],
                format!("decode {seqs}×{keys}"),
            );
        }
        for tokens in self.plan.prompts.clone() {
            self.attend(model, &[(tokens, tokens)], format!("prefill {tokens}"));
        }
    }

    fn attend(&mut self, model: &ModelShape, seqs: &[(usize, usize)], what: String) {
        let subject = self.subject;
        let page_size = 64;
        let stride = seqs.iter().map(|(keys, _)| keys.div_ceil(page_size)).max();
        let stride = stride.unwrap_or(1);
        let shape = KvShape {
            num_pages: stride * seqs.len(),
            page_size,
            num_kv_heads: model.num_kv_heads,
            head_dim: model.head_dim,
            num_layers: 1,
        };
        let kv = shape.pool(subject, subject.dtype());
        let to_u32 = |len: usize| u32::try_from(len).expect("sizes fit");
        let mut q_indptr = vec![0];
        for (_, queries) in seqs {
            q_indptr.push(q_indptr.last().unwrap_or(&0) + to_u32(*queries));
        }
        let rows = seqs.iter().map(|(_, queries)| queries).sum();
        let lens: Vec<u32> = seqs.iter().map(|(keys, _)| to_u32(*keys)).collect();
        let pages: Vec<u32> = (0..to_u32(shape.num_pages)).rev().collect();
        let batch = BatchView {
            num_tokens: rows,
            num_seqs: seqs.len(),
            token_ids: subject.words(&[0]),
            positions: subject.words(&[0]),
            q_indptr: subject.words(&q_indptr),
            kv_lens: subject.words(&lens),
            page_table: subject.words(&pages),
            page_table_stride: stride,
            out_slots: subject.words(&[NO_SLOT]),
        };
        let width = model.num_q_heads * model.head_dim;
        let kv_width = 2 * model.num_kv_heads * model.head_dim;
        let q = subject.zeros(subject.dtype(), rows * (width + kv_width));
        let out = subject.zeros(subject.dtype(), rows * width);
        let bytes = seqs.iter().map(|(keys, _)| keys * kv_width * 2).sum();
        // Each query sees the keys up to itself.
        let pairs_of = |(keys, queries): &(usize, usize)| queries * (2 * keys - queries + 1) / 2;
        let pairs: usize = seqs.iter().map(pairs_of).sum();
        let what = format!("{} attention, {what}", model.name);
        self.time(what, bytes, 4 * pairs * width, |_| {
            subject.backend.attn_paged(AttnPaged {
                q: &q,
                q_row_stride: width + kv_width,
                num_q_heads: model.num_q_heads,
                scale: 0.1,
                batch: &batch,
                kv: &kv,
                kv_scales: KvScales::ONE,
                layer: 0,
                window: None,
                sinks: None,
                softcap: None,
                values: AttnValues::Own,
                gate: None,
                out: &out,
            });
        });
    }

    fn norm(&mut self, model: &ModelShape) {
        let subject = self.subject;
        let weight = subject.floats(&vec![1.0; model.hidden]);
        for rows in self.plan.rows.clone() {
            let x = subject.zeros(subject.dtype(), rows * model.hidden);
            let out = subject.zeros(subject.dtype(), rows * model.hidden);
            let what = format!("{} norm {rows}×{}", model.name, model.hidden);
            self.time(what, 4 * rows * model.hidden, 0, |_| {
                subject.backend.rms_norm(RmsNorm {
                    x: &x,
                    add: None,
                    weight: &weight,
                    eps: 1e-6,
                    out: &out,
                    into: WriteMode::Store,
                    rows,
                });
            });
        }
    }

    fn sampling(&mut self, model: &ModelShape) {
        let values = crate::cases::values(1, model.vocab);
        let logits: Vec<f32> = values.into_iter().map(|v| 12.0 * v).collect();
        for (name, top_k, top_p) in [
            ("greedy", 1, 1.0),
            ("top-k, top-p", 50, 0.95),
            ("all tokens", 0, 1.0),
            // Keeps more tokens than the CUDA backend lists.
            ("flat top-p", 0, 0.95),
        ] {
            let row = SamplingRow {
                temperature: 0.7,
                top_k,
                top_p,
                ..SamplingRow::greedy()
            };
            for rows in self.plan.rows.iter().copied().filter(|rows| *rows <= 64) {
                let case = SampleCase::new(vec![row; rows], model.vocab);
                let sampling = Sampling::new(self.subject, &case);
                sampling.fill(&case.rows, &logits.repeat(rows));
                let what = format!("{} sampling, {name}, {rows} rows", model.name);
                self.time(what, 4 * rows * model.vocab, 0, |_| sampling.enqueue());
            }
        }
    }
}

/// Small random bfloat16 numbers: zeros would cost a GPU less power than real weights do.
pub fn fill_with_noise(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_u32;
    for word in bytes.as_chunks_mut::<2>().0 {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // Sign and mantissa of the noise, with the exponent of 1/64.
        let [low, high, ..] = state.to_le_bytes();
        *word = [low, 0x3c | high & 0x80];
    }
}

fn weight<B: Backend>(subject: &Subject<B>, n: usize, k: usize, epilogue: Epilogue) -> B::Weight {
    let mut bytes = vec![0; n * k * 2];
    fill_with_noise(&mut bytes);
    let part =
        |name, rows, bytes| WeightSource::unscaled(name, WeightFormat::BF16, (rows, k), bytes);
    let packed = if epilogue.joins_pairs() {
        let (gate, up) = bytes.split_at(bytes.len() / 2);
        subject.backend.pack_linear(
            &[part("gate", n / 2, gate), part("up", n / 2, up)],
            Packing::Interleaved,
        )
    } else {
        subject
            .backend
            .pack_linear(&[part("w", n, &bytes)], Packing::JOINED)
    };
    packed.expect("the device has memory for a layer")
}
