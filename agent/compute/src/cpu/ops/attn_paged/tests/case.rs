//! Sequences, the textbook's answer, and the ways to have them attended.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use crate::buffer::DeviceBuffer as _;
use crate::cpu::backend::tests::{floats, noise_floats, read_floats, words, zeros};
use crate::cpu::{CpuBackend, CpuBuffer, CpuConfig, Isa};
use crate::dtype::{ComputeDtype, DType};
use crate::e4m3;
use crate::export::Reach;
use crate::kv::{KvCutView, KvGroupView, KvScales};
use crate::ops::{AttnPaged, AttnValues, Backend, BatchView, Strided};
use half::{bf16, f16};
use std::sync::Arc;

/// In the page table, of a page that holds no key that a query of the step sees.
const GIVEN_AWAY: u32 = u32::MAX;

/// Sequences with all their keys, values and queries, before anyone divides them.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) kv_lens: Vec<usize>,
    pub(super) num_kv_heads: usize,
    pub(super) group: usize,
    pub(super) head_dim: usize,
    pub(super) dtype: DType,
    pub(super) form: Form,
}

/// What attention has beyond a causal mask.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    pub(super) window: Option<usize>,
    pub(super) softcap: Option<f32>,
    pub(super) has_sinks: bool,
    pub(super) has_gate: bool,
    /// Values are the first elements of keys, as many as given.
    pub(super) of_key: Option<usize>,
    /// A position whose key and value are NaN.
    pub(super) poisoned: Option<usize>,
}

/// One way to compute them.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) isa: Isa,
    pub(super) activations: ComputeDtype,
    pub(super) threads: usize,
    pub(super) page_size: usize,
    /// Rotates the order of pages in the pool.
    pub(super) page_shift: usize,
    /// Queries per call, of every sequence at once.
    pub(super) chunk: usize,
    pub(super) num_layers: usize,
    pub(super) layer: usize,
}

pub(super) const PLAIN: Way = Way {
    isa: Isa::Scalar,
    activations: ComputeDtype::F32,
    threads: 1,
    page_size: 16,
    page_shift: 0,
    chunk: usize::MAX,
    num_layers: 1,
    layer: 0,
};

// === impl Case ===

impl Case {
    pub(super) fn q_len(&self) -> usize {
        self.num_kv_heads * self.group * self.head_dim
    }

    /// Elements of a value.
    pub(super) fn value_dim(&self) -> usize {
        self.form.of_key.unwrap_or(self.head_dim)
    }

    /// Elements of a row of the result.
    pub(super) fn out_len(&self) -> usize {
        self.num_kv_heads * self.group * self.value_dim()
    }

    /// Per layer of the pool.
    fn tensors(&self) -> usize {
        if self.form.of_key.is_some() { 1 } else { 2 }
    }

    pub(super) fn queries(&self, seq: usize) -> Vec<f32> {
        noise_floats(seq as u64, self.kv_lens[seq] * self.q_len())
    }

    /// In E4M3, twice a K and three halves of a V are stored.
    fn kv_scales(&self) -> KvScales {
        KvScales { k: 0.5, v: 1.5 }.of_pool(self.dtype)
    }

    /// `[position][kv_head][head_dim]`, as the pool's dtype holds them.
    pub(super) fn keys(&self, seq: usize, values: bool) -> Vec<f32> {
        let seed = 1000 + 2 * seq as u64 + u64::from(values);
        let len = self.kv_lens[seq] * self.num_kv_heads * self.head_dim;
        let KvScales { k, v } = self.kv_scales();
        let scale = if values { v } else { k };
        let round = |x: f32| match self.dtype {
            DType::F8E4M3 => scale * e4m3::value(e4m3::rounded(x / scale)),
            DType::F16 => f16::from_f32(x).to_f32(),
            DType::BF16 => bf16::from_f32(x).to_f32(),
            DType::F32 | DType::U32 | DType::U8 => x,
        };
        let mut keys = noise_floats(seed, len);
        keys.iter_mut().for_each(|x| *x = round(3.0 * *x));
        if let Some(position) = self.form.poisoned {
            let slot_len = self.num_kv_heads * self.head_dim;
            keys[position * slot_len..(position + 1) * slot_len].fill(f32::NAN);
        }
        keys
    }

    /// Of each query head.
    fn sinks(&self) -> Vec<f32> {
        let sinks = noise_floats(5000, self.num_kv_heads * self.group);
        sinks.into_iter().map(|x| 2.0 * x).collect()
    }

    /// As the results.
    fn gates(&self, seq: usize) -> Vec<f32> {
        let gates = noise_floats(6000 + seq as u64, self.kv_lens[seq] * self.out_len());
        gates.into_iter().map(|x| 4.0 * x).collect()
    }

    /// The first position that the query at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        let window = self.form.window.unwrap_or(usize::MAX);
        (position + 1).saturating_sub(window)
    }

    /// The textbook, in f64.
    pub(super) fn expected(&self, seq: usize, position: usize, head: usize) -> Vec<f64> {
        let (d, kv_head) = (self.head_dim, head / self.group);
        let (q, k, v) = (
            self.queries(seq),
            self.keys(seq, false),
            self.keys(seq, self.form.of_key.is_none()),
        );
        let q = &q[position * self.q_len() + head * d..][..d];
        let at = |x: &[f32], key: usize, i: usize| {
            f64::from(x[(key * self.num_kv_heads + kv_head) * d + i])
        };
        let score = |key| {
            (0..d)
                .map(|i| f64::from(q[i]) * at(&k, key, i))
                .sum::<f64>()
        };
        let weight = |key| {
            let score = score(key) / (d as f64).sqrt();
            let cap = self.form.softcap.map(f64::from);
            cap.map_or(score, |cap| cap * (score / cap).tanh()).exp()
        };
        let seen = self.first_seen(position)..position + 1;
        let sink = f64::from(self.sinks()[head]).exp();
        let total: f64 = seen.clone().map(weight).sum();
        let total = if self.form.has_sinks {
            total + sink
        } else {
            total
        };
        let gates = self.gates(seq);
        let result = |i| {
            let mean = seen
                .clone()
                .map(|key| weight(key) * at(&v, key, i))
                .sum::<f64>()
                / total;
            let gate = f64::from(gates[position * self.out_len() + head * self.value_dim() + i]);
            if self.form.has_gate {
                mean / (1.0 + (-gate).exp())
            } else {
                mean
            }
        };
        (0..self.value_dim()).map(result).collect()
    }

    /// All outputs, sequence by sequence.
    pub(super) fn compute(&self, way: &Way) -> Vec<Vec<f32>> {
        let config = CpuConfig {
            threads: way.threads,
            isa: way.isa,
            compute_dtype: way.activations,
        };
        let backend = CpuBackend::start(config).unwrap();
        let (kv, page_table, stride) = self.pool(&backend, way);
        let mut outs = vec![Vec::new(); self.kv_lens.len()];
        let longest = *self.kv_lens.iter().max().unwrap();
        for start in (0..longest).step_by(way.chunk.min(longest)) {
            let span = |len: usize| start.min(len)..start.saturating_add(way.chunk).min(len);
            let spans: Vec<_> = self.kv_lens.iter().map(|len| span(*len)).collect();
            let active: Vec<_> = (0..spans.len()).filter(|s| !spans[*s].is_empty()).collect();
            let (mut q, mut gate) = (Vec::new(), Vec::new());
            let (mut q_indptr, mut kv_lens, mut pages) = (vec![0], Vec::new(), Vec::new());
            for seq in &active {
                let span = spans[*seq].clone();
                let rows = |len: usize| span.start * len..span.end * len;
                q.extend(&self.queries(*seq)[rows(self.q_len())]);
                gate.extend(&self.gates(*seq)[rows(self.out_len())]);
                q_indptr.push((q.len() / self.q_len()) as u32);
                kv_lens.push(span.end as u32);
                let gone = self.first_seen(span.start) / way.page_size;
                let of_seq = page_table[seq * stride..(seq + 1) * stride]
                    .iter()
                    .enumerate();
                pages.extend(of_seq.map(|(i, page)| if i < gone { GIVEN_AWAY } else { *page }));
            }
            let num_tokens = q.len() / self.q_len();
            let none = words(&backend, &[]);
            let batch = BatchView {
                num_tokens,
                num_seqs: active.len(),
                token_ids: none.clone(),
                positions: none.clone(),
                q_indptr: words(&backend, &q_indptr),
                kv_lens: words(&backend, &kv_lens),
                page_table: words(&backend, &pages),
                page_table_stride: stride,
                out_slots: none,
            };
            let out = zeros(&backend, num_tokens * self.out_len());
            let (sinks, gate) = (floats(&backend, &self.sinks()), floats(&backend, &gate));
            let form = self.form;
            backend.attn_paged(AttnPaged {
                q: &floats(&backend, &q),
                q_row_stride: self.q_len(),
                num_q_heads: self.num_kv_heads * self.group,
                scale: 1.0 / (self.head_dim as f32).sqrt(),
                batch: &batch,
                kv: &kv,
                kv_scales: self.kv_scales(),
                layer: way.layer,
                window: form.window,
                sinks: form.has_sinks.then_some(&sinks),
                softcap: form.softcap,
                values: form.of_key.map_or(AttnValues::Own, AttnValues::OfKey),
                gate: form.has_gate.then_some(Strided {
                    values: &gate,
                    row_stride: self.out_len(),
                }),
                out: &out,
            });
            let out = read_floats(&backend, &out);
            for (i, seq) in active.into_iter().enumerate() {
                let row = |at: u32| at as usize * self.out_len();
                outs[seq].extend(&out[row(q_indptr[i])..row(q_indptr[i + 1])]);
            }
        }
        outs
    }

    /// A pool with every sequence's pages scattered, with NaN in the pages of no sequence.
    pub(super) fn pool(
        &self,
        backend: &CpuBackend,
        way: &Way,
    ) -> (KvGroupView<CpuBackend>, Vec<u32>, usize) {
        let Way {
            page_size,
            num_layers,
            layer,
            ..
        } = *way;
        let pages_of = |len: &usize| len.div_ceil(page_size);
        let stride = self.kv_lens.iter().map(pages_of).max().unwrap();
        let num_pages = self.kv_lens.iter().map(pages_of).sum::<usize>() + 1;
        let len =
            num_pages * self.num_kv_heads * num_layers * self.tensors() * page_size * self.head_dim;
        let region = backend
            .alloc_exportable("kv", self.dtype, len, Reach::Process)
            .unwrap();
        let cut = KvCutView::<CpuBackend>::page_first(
            region.clone(),
            0..num_layers,
            self.tensors(),
            self.num_kv_heads,
            page_size,
            self.head_dim,
        );
        let KvScales { k, v } = self.kv_scales();
        let mut data = vec![f32::NAN; len];
        let mut page_table = vec![u32::MAX; self.kv_lens.len() * stride];
        let mut next = way.page_shift;
        for (seq, kv_len) in self.kv_lens.iter().enumerate() {
            let keys = [self.keys(seq, false), self.keys(seq, true)];
            for i in 0..pages_of(kv_len) {
                // 7 and num_pages may share a factor; stepping by one page is always a permutation.
                next = (next + 1) % num_pages;
                page_table[seq * stride + i] = next as u32;
                for (slot, position) in (i * page_size..*kv_len).take(page_size).enumerate() {
                    let heads = (0..self.num_kv_heads).flat_map(|h| [(h, 0), (h, 1)]);
                    for (head, kv) in heads.filter(|(_, kv)| *kv < self.tensors()) {
                        let at = next * cut.page_stride
                            + head * cut.head_stride
                            + layer * cut.layer_stride
                            + kv * cut.kv_stride
                            + slot * cut.slot_stride;
                        let from = (position * self.num_kv_heads + head) * self.head_dim;
                        let stored = keys[kv][from..from + self.head_dim].iter();
                        let stored = stored.map(|x| x / [k, v][kv]);
                        let places = data[at..at + self.head_dim].iter_mut();
                        places.zip(stored).for_each(|(place, x)| *place = x);
                    }
                }
            }
        }
        upload(backend, &region, data);
        let kv = KvGroupView {
            dtype: self.dtype,
            page_size,
            num_pages,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            tensors: self.tensors(),
            cuts: Arc::new([cut]),
        };
        (kv, page_table, stride)
    }
}

/// Values as the pool's dtype has them.
fn upload(backend: &CpuBackend, region: &CpuBuffer, data: Vec<f32>) {
    match region.dtype() {
        DType::F16 => {
            let data: Vec<_> = data
                .into_iter()
                .map(|x| f16::from_f32(x).to_bits())
                .collect();
            backend.upload(region, &data);
        }
        DType::BF16 => {
            let data: Vec<_> = data
                .into_iter()
                .map(|x| bf16::from_f32(x).to_bits())
                .collect();
            backend.upload(region, &data);
        }
        DType::F8E4M3 => {
            let data: Vec<_> = data.into_iter().map(e4m3::rounded).collect();
            backend.upload(region, &data);
        }
        DType::F32 | DType::U32 | DType::U8 => backend.upload(region, &data),
    }
}
