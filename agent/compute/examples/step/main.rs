//! Times the ops of a SmolLM2-135M-shaped forward step on the CPU backend, with made-up weights and keys: each op by
//! itself, the whole step, and what it costs to enqueue. Best of several rounds.
//!
//! `cargo run --release -p pd-compute --example step -- [threads] [isa] [Q4_1 or BF16] [part of a name]`

#![allow(clippy::print_stdout, reason = "a program whose output is its result")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod model;
mod workspace;

use model::Model;
use pd_compute::cpu::{CpuBackend, CpuBuffer, CpuConfig, CpuEmbedding, Isa};
use pd_compute::{
    AttnPaged, AttnValues, Backend, BatchView, DType, DeviceTypes, Embed, Epilogue, GatherRows,
    KvCutView, KvGroupView, KvScales, Linear, Packing, QkvPrep, RmsNorm, RopeTable, Sample, Ticket,
    WeightFormat, WeightSource, WriteMode,
};
use std::time::Instant;
use workspace::Workspace;

const LAYERS: usize = 30;
const HIDDEN: usize = 576;
const Q_HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const QKV: usize = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM;
const INTERMEDIATE: usize = 1536;
const VOCAB: usize = 49_152;
const PAGE_SIZE: usize = 16;

type Weight = <CpuBackend as DeviceTypes>::Weight;

struct Bench {
    backend: CpuBackend,
    embedding: CpuEmbedding,
    norm: CpuBuffer,
    qkv: Vec<Weight>,
    o: Vec<Weight>,
    gate_up: Vec<Weight>,
    down: Vec<Weight>,
    logits: Weight,
    kv: KvGroupView<CpuBackend>,
    workspace: Workspace,
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
    let model = match std::env::args().nth(3).as_deref() {
        None | Some("Q4_1") => Model::Q4_1,
        Some("BF16") => Model::BF16,
        Some(_) => return Err("Q4_1 or BF16".into()),
    };
    config.compute_dtype = model.activations;
    println!("{} threads, {}", config.threads, config.isa.name());
    let start = Instant::now();
    let bench = Bench::new(CpuBackend::start(config)?, &model)?;
    println!("packed in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    bench.enqueue()?;
    let wanted = std::env::args().nth(4).unwrap_or_default();
    for (what, seqs, q_len, kv_len) in [
        ("decode, 1 sequence, 500 keys", 1, 1, 500),
        ("decode, 8 sequences, 500 keys", 8, 1, 500),
        ("decode, 1 sequence, 8,000 keys", 1, 1, 8000),
        ("prefill, 512 tokens", 1, 512, 512),
    ] {
        if what.contains(&wanted) {
            bench.report(what, seqs, q_len, kv_len)?;
        }
    }
    Ok(())
}

// === impl Bench ===

impl Bench {
    fn new(backend: CpuBackend, model: &Model) -> Result<Self, pd_compute::ComputeError> {
        let weight = |n: usize, k: usize, packing: Packing, format: WeightFormat| {
            // 0x11 bytes are small normal numbers in every format.
            let bytes = vec![0x11; n * format.row_bytes(k).expect("whole blocks")];
            let source = WeightSource::unscaled("made up", format, (n, k), &bytes);
            let parts = if packing.interleaves() { 2 } else { 1 };
            backend.pack_linear(&vec![source; parts], packing)
        };
        let layers = |n, k, packing| {
            (0..LAYERS)
                .map(|_| weight(n, k, packing, model.weights))
                .collect::<Result<_, _>>()
        };
        let table = vec![0x11; VOCAB * 2 * HIDDEN];
        let shape = (VOCAB, HIDDEN);
        let table = WeightSource::unscaled("embedding", WeightFormat::F16, shape, &table);
        let embedding = backend.pack_embedding(&table)?;
        let norm = backend.alloc("norm", DType::F32, HIDDEN)?;
        backend.upload(&norm, &[1.0f32; HIDDEN]);
        let num_pages = 8192 / PAGE_SIZE;
        let page_len = KV_HEADS * LAYERS * 2 * PAGE_SIZE * HEAD_DIM;
        let region = backend.alloc("kv", model.kv, num_pages * page_len)?;
        // Small numbers in every dtype.
        backend.upload(
            &region,
            &vec![0x3d_u8; num_pages * page_len * model.kv.size_bytes()],
        );
        let cut = KvCutView::page_first(region, 0..LAYERS, 2, KV_HEADS, PAGE_SIZE, HEAD_DIM);
        let kv = KvGroupView {
            dtype: model.kv,
            page_size: PAGE_SIZE,
            num_pages,
            num_kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            tensors: 2,
            cuts: [cut].into(),
        };
        Ok(Self {
            qkv: layers(QKV, HIDDEN, Packing::JOINED)?,
            o: layers(HIDDEN, HIDDEN, Packing::SUMMED)?,
            gate_up: layers(INTERMEDIATE, HIDDEN, Packing::Interleaved)?,
            down: layers(HIDDEN, INTERMEDIATE, Packing::SUMMED)?,
            logits: weight(VOCAB, HIDDEN, Packing::JOINED, model.logits)?,
            workspace: Workspace::new(&backend)?,
            backend,
            embedding,
            norm,
            kv,
        })
    }

    fn enqueue(&self) -> Result<(), pd_compute::ComputeError> {
        let best = (0..20).map(|_| {
            let start = Instant::now();
            (0..300).for_each(|_| self.norm(&self.workspace.hidden, &self.workspace.normed, 1));
            let enqueued = start.elapsed().as_secs_f64();
            self.backend.fence().wait()?;
            Ok((enqueued, start.elapsed().as_secs_f64()))
        });
        let best = best.collect::<Result<Vec<_>, pd_compute::ComputeError>>()?;
        let enqueued = 1e6 * best.iter().map(|b| b.0).fold(f64::INFINITY, f64::min);
        let done = 1e6 * best.iter().map(|b| b.1).fold(f64::INFINITY, f64::min);
        println!("300 norms of one row: enqueued in {enqueued:.0} µs, done in {done:.0} µs");
        Ok(())
    }

    fn report(
        &self,
        what: &str,
        seqs: usize,
        q_len: usize,
        kv_len: usize,
    ) -> Result<(), pd_compute::ComputeError> {
        println!("{what}");
        let (batch, rows) = (self.batch(seqs, q_len, kv_len)?, seqs * q_len);
        let linears = self.time(|| (0..LAYERS).for_each(|layer| self.linears(layer, rows)))?;
        let logits = self.time(|| self.logits(seqs))?;
        let attention = self.time(|| (0..LAYERS).for_each(|layer| self.attend(&batch, layer)))?;
        let prep = self.time(|| (0..LAYERS).for_each(|layer| self.prep(&batch, layer)))?;
        let work = &self.workspace;
        let norms = self.time(|| {
            (0..2 * LAYERS).for_each(|_| self.norm(&work.hidden, &work.normed, rows));
        })?;
        let begin = self.time(|| self.begin(&batch))?;
        let sample = self.time(|| self.sample(seqs))?;
        let step = self.time(|| {
            self.begin(&batch);
            for layer in 0..LAYERS {
                self.norm(&work.hidden, &work.normed, rows);
                self.linear(
                    &self.qkv[layer],
                    &work.normed,
                    &work.qkv,
                    Epilogue::Store,
                    rows,
                );
                self.prep(&batch, layer);
                self.attend(&batch, layer);
                let (down, o) = (&self.down[layer], &self.o[layer]);
                self.linear(o, &work.attn, &work.hidden, Epilogue::AddResidual, rows);
                self.norm(&work.hidden, &work.normed, rows);
                let gate_up = &self.gate_up[layer];
                self.linear(gate_up, &work.normed, &work.mlp, Epilogue::SwiGlu, rows);
                self.linear(down, &work.mlp, &work.hidden, Epilogue::AddResidual, rows);
            }
            self.norm(&work.hidden, &work.normed, seqs);
            self.logits(seqs);
            self.sample(seqs);
        })?;
        for (name, seconds) in [
            ("linears", linears),
            ("logits", logits),
            ("attention", attention),
            ("qkv_prep", prep),
            ("norms", norms),
            ("embed and rope", begin),
            ("sample", sample),
            ("whole step", step),
        ] {
            println!(
                "  {name:<16}{:>10.3} ms  {:>5.1} %",
                seconds * 1e3,
                100.0 * seconds / step
            );
        }
        Ok(())
    }

    /// Seconds that what `enqueue` enqueues takes, best of many.
    fn time(&self, enqueue: impl Fn()) -> Result<f64, pd_compute::ComputeError> {
        let mut best = f64::INFINITY;
        let begin = Instant::now();
        // The first round also pays for memory touched for the first time.
        for round in 0.. {
            if round >= 3 && begin.elapsed().as_secs_f64() > 0.5 {
                break;
            }
            let start = Instant::now();
            enqueue();
            self.backend.fence().wait()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    }

    fn batch(
        &self,
        seqs: usize,
        q_len: usize,
        kv_len: usize,
    ) -> Result<BatchView<CpuBackend>, pd_compute::ComputeError> {
        let index = |i: usize| u32::try_from(i).expect("small");
        let stride = kv_len.div_ceil(PAGE_SIZE);
        let words = |name, values: Vec<u32>| {
            let buffer = self.backend.alloc(name, DType::U32, values.len())?;
            self.backend.upload(&buffer, &values);
            Ok(buffer)
        };
        // Every other page, so that neighbours in the sequence are not in memory; the last slots
        // take what is written.
        let pages = |i: usize| index(i * 2 % (8192 / PAGE_SIZE - 1));
        let positions = |i: usize| index(kv_len - q_len + i % q_len);
        Ok(BatchView {
            num_tokens: seqs * q_len,
            num_seqs: seqs,
            token_ids: words("token_ids", (0..seqs * q_len).map(index).collect())?,
            positions: words("positions", (0..seqs * q_len).map(positions).collect())?,
            q_indptr: words("q_indptr", (0..=seqs).map(|s| index(s * q_len)).collect())?,
            kv_lens: words("kv_lens", vec![index(kv_len); seqs])?,
            page_table: words("page_table", (0..seqs * stride).map(pages).collect())?,
            page_table_stride: stride,
            out_slots: words(
                "out_slots",
                (0..seqs * q_len).map(|i| index(8191 - i)).collect(),
            )?,
        })
    }

    fn norm(&self, x: &CpuBuffer, out: &CpuBuffer, rows: usize) {
        let weight = &self.norm;
        self.backend.rms_norm(RmsNorm {
            x,
            add: None,
            weight,
            eps: 1e-5,
            out,
            into: WriteMode::Store,
            rows,
        });
    }

    fn linear(&self, w: &Weight, x: &CpuBuffer, out: &CpuBuffer, epilogue: Epilogue, rows: usize) {
        self.backend.linear(Linear {
            x,
            weight: w,
            bias: None,
            epilogue,
            out,
            rows,
        });
    }

    fn linears(&self, layer: usize, rows: usize) {
        let work = &self.workspace;
        for (weight, x, out, epilogue) in [
            (&self.qkv, &work.normed, &work.qkv, Epilogue::Store),
            (&self.o, &work.attn, &work.normed, Epilogue::Store),
            (&self.gate_up, &work.normed, &work.mlp, Epilogue::SwiGlu),
            (&self.down, &work.mlp, &work.hidden, Epilogue::Store),
        ] {
            self.linear(&weight[layer], x, out, epilogue, rows);
        }
    }

    fn logits(&self, rows: usize) {
        let work = &self.workspace;
        self.linear(
            &self.logits,
            &work.normed,
            &work.logits,
            Epilogue::Store,
            rows,
        );
    }

    fn begin(&self, batch: &BatchView<CpuBackend>) {
        let (work, rows) = (&self.workspace, batch.num_tokens);
        let BatchView {
            token_ids,
            positions,
            ..
        } = batch;
        self.backend.embed(Embed {
            table: &self.embedding,
            token_ids,
            out: &work.hidden,
            scale: None,
            rows,
        });
        self.backend.rope_table(RopeTable {
            positions,
            inv_freq: &work.inv_freq,
            factor: 1.0,
            out: &work.rope,
            rows,
        });
    }

    fn prep(&self, batch: &BatchView<CpuBackend>, layer: usize) {
        self.backend.qkv_prep(QkvPrep {
            qkv: &self.workspace.qkv,
            row_stride: QKV,
            bias: None,
            q_norm: None,
            k_norm: None,
            eps: 1e-5,
            rope: &self.workspace.rope,
            rotary_dim: HEAD_DIM,
            num_q_heads: Q_HEADS,
            batch,
            kv: &self.kv,
            kv_scales: KvScales::ONE,
            layer,
        });
    }

    fn attend(&self, batch: &BatchView<CpuBackend>, layer: usize) {
        self.backend.attn_paged(AttnPaged {
            q: &self.workspace.qkv,
            q_row_stride: QKV,
            num_q_heads: Q_HEADS,
            scale: 0.125,
            batch,
            kv: &self.kv,
            kv_scales: KvScales::ONE,
            layer,
            window: None,
            sinks: None,
            softcap: None,
            values: AttnValues::Own,
            gate: None,
            out: &self.workspace.attn,
        });
    }

    fn sample(&self, rows: usize) {
        let work = &self.workspace;
        self.backend.gather_rows(GatherRows {
            src: &work.out.tokens,
            indices: &work.out.top_tokens,
            out: &work.params.token_counts,
            row_len: 1,
            rows: 1,
        });
        self.backend.sample(Sample {
            logits: &work.logits,
            vocab: VOCAB,
            rows,
            params: &work.params,
            out: &work.out,
        });
    }
}
