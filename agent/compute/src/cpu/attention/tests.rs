//! Facts about paged attention, above all that a query's bits depend on its own keys alone.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use std::sync::Arc;

use half::{bf16, f16};
use proptest::prelude::*;

use crate::buffer::DeviceBuffer as _;
use crate::cpu::backend::tests::{
    floats, isas, mk_backend, noise_floats, read_floats, words, zeros,
};
use crate::cpu::{CpuBackend, Isa};
use crate::dtype::DType;
use crate::kv::{KvCutView, KvGroupView};
use crate::ops::{AttnPaged, Backend, BatchView};

/// Sequences with all their keys, values and queries, before anyone divides them.
#[derive(Clone, Debug)]
struct Case {
    kv_lens: Vec<usize>,
    num_kv_heads: usize,
    group: usize,
    head_dim: usize,
    dtype: DType,
}

/// One way to compute them.
#[derive(Clone, Debug)]
struct Way {
    isa: Isa,
    threads: usize,
    page_size: usize,
    /// Rotates the order of pages in the pool.
    page_shift: usize,
    /// Queries per call, of every sequence at once.
    chunk: usize,
    num_layers: usize,
    layer: usize,
}

const PLAIN: Way = Way {
    isa: Isa::Scalar,
    threads: 1,
    page_size: 16,
    page_shift: 0,
    chunk: usize::MAX,
    num_layers: 1,
    layer: 0,
};

// === impl Case ===

impl Case {
    fn q_len(&self) -> usize {
        self.num_kv_heads * self.group * self.head_dim
    }

    fn queries(&self, seq: usize) -> Vec<f32> {
        noise_floats(seq as u64, self.kv_lens[seq] * self.q_len())
    }

    /// `[position][kv_head][head_dim]`, as the pool's dtype holds them.
    fn keys(&self, seq: usize, values: bool) -> Vec<f32> {
        let seed = 1000 + 2 * seq as u64 + u64::from(values);
        let len = self.kv_lens[seq] * self.num_kv_heads * self.head_dim;
        let round = |x: f32| match self.dtype {
            DType::F16 => f16::from_f32(x).to_f32(),
            DType::BF16 => bf16::from_f32(x).to_f32(),
            DType::F32 | DType::U32 | DType::U8 => x,
        };
        noise_floats(seed, len)
            .into_iter()
            .map(|x| round(3.0 * x))
            .collect()
    }

    /// The textbook, in f64.
    fn expected(&self, seq: usize, position: usize, head: usize) -> Vec<f64> {
        let (d, kv_head) = (self.head_dim, head / self.group);
        let (q, k, v) = (
            self.queries(seq),
            self.keys(seq, false),
            self.keys(seq, true),
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
        let weights: Vec<f64> = (0..=position)
            .map(|key| (score(key) / (d as f64).sqrt()).exp())
            .collect();
        let total: f64 = weights.iter().sum();
        let mean = |i| {
            weights
                .iter()
                .enumerate()
                .map(|(key, w)| w * at(&v, key, i))
                .sum::<f64>()
        };
        (0..d).map(|i| mean(i) / total).collect()
    }

    /// All outputs, sequence by sequence.
    fn compute(&self, way: &Way) -> Vec<Vec<f32>> {
        let backend = mk_backend(way.threads, way.isa);
        let (kv, page_table, stride) = self.pool(&backend, way);
        let mut outs = vec![Vec::new(); self.kv_lens.len()];
        let longest = *self.kv_lens.iter().max().unwrap();
        for start in (0..longest).step_by(way.chunk.min(longest)) {
            let span = |len: usize| start.min(len)..start.saturating_add(way.chunk).min(len);
            let spans: Vec<_> = self.kv_lens.iter().map(|len| span(*len)).collect();
            let active: Vec<_> = (0..spans.len()).filter(|s| !spans[*s].is_empty()).collect();
            let mut q = Vec::new();
            let (mut q_indptr, mut kv_lens, mut pages) = (vec![0], Vec::new(), Vec::new());
            for seq in &active {
                let span = spans[*seq].clone();
                q.extend(&self.queries(*seq)[span.start * self.q_len()..span.end * self.q_len()]);
                q_indptr.push((q.len() / self.q_len()) as u32);
                kv_lens.push(span.end as u32);
                pages.extend(&page_table[seq * stride..(seq + 1) * stride]);
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
            let out = zeros(&backend, q.len());
            backend.attn_paged(AttnPaged {
                q: &floats(&backend, &q),
                q_row_stride: self.q_len(),
                num_q_heads: self.num_kv_heads * self.group,
                scale: 1.0 / (self.head_dim as f32).sqrt(),
                batch: &batch,
                kv: &kv,
                layer: way.layer,
                out: &out,
            });
            let out = read_floats(&backend, &out);
            for (i, seq) in active.into_iter().enumerate() {
                let rows = q_indptr[i] as usize..q_indptr[i + 1] as usize;
                outs[seq].extend(&out[rows.start * self.q_len()..rows.end * self.q_len()]);
            }
        }
        outs
    }

    /// A pool with every sequence's pages scattered, what belongs to nobody being NaN.
    fn pool(&self, backend: &CpuBackend, way: &Way) -> (KvGroupView<CpuBackend>, Vec<u32>, usize) {
        let Way {
            page_size,
            num_layers,
            layer,
            ..
        } = *way;
        let pages_of = |len: &usize| len.div_ceil(page_size);
        let stride = self.kv_lens.iter().map(pages_of).max().unwrap();
        let num_pages = self.kv_lens.iter().map(pages_of).sum::<usize>() + 1;
        let len = num_pages * self.num_kv_heads * num_layers * 2 * page_size * self.head_dim;
        let region = backend.alloc_exportable("kv", self.dtype, len).unwrap();
        let cut = KvCutView::<CpuBackend>::page_first(
            region.clone(),
            0,
            num_layers,
            self.num_kv_heads,
            page_size,
            self.head_dim,
        );
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
                    for (head, kv) in (0..self.num_kv_heads).flat_map(|h| [(h, 0), (h, 1)]) {
                        let at = next * cut.page_stride
                            + head * cut.head_stride
                            + layer * cut.layer_stride
                            + kv * cut.kv_stride
                            + slot * cut.slot_stride;
                        let from = (position * self.num_kv_heads + head) * self.head_dim;
                        data[at..at + self.head_dim]
                            .copy_from_slice(&keys[kv][from..from + self.head_dim]);
                    }
                }
            }
        }
        match self.dtype {
            DType::F16 => {
                let data: Vec<_> = data
                    .into_iter()
                    .map(|x| f16::from_f32(x).to_bits())
                    .collect();
                backend.upload(&region, &data);
            }
            DType::BF16 => {
                let data: Vec<_> = data
                    .into_iter()
                    .map(|x| bf16::from_f32(x).to_bits())
                    .collect();
                backend.upload(&region, &data);
            }
            DType::F32 | DType::U32 | DType::U8 => backend.upload(&region, &data),
        }
        let kv = KvGroupView {
            dtype: self.dtype,
            page_size,
            num_pages,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            cuts: Arc::new([cut]),
        };
        (kv, page_table, stride)
    }
}

fn bits(outs: &[Vec<f32>]) -> Vec<Vec<u32>> {
    outs.iter()
        .map(|out| out.iter().map(|x| x.to_bits()).collect())
        .collect()
}

fn mk_case(kv_lens: &[usize], head_dim: usize, dtype: DType) -> Case {
    Case {
        kv_lens: kv_lens.to_vec(),
        num_kv_heads: 2,
        group: 3,
        head_dim,
        dtype,
    }
}

#[test]
fn attention_is_the_textbook_formula() {
    for head_dim in [8, 16, 64, 80] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let case = mk_case(&[70, 1], head_dim, dtype);
            for isa in isas() {
                let outs = case.compute(&Way { isa, ..PLAIN });
                for (seq, position, head) in [(0, 0, 0), (0, 63, 2), (0, 69, 5), (1, 0, 3)] {
                    let at = position * case.q_len() + head * head_dim;
                    let expected = case.expected(seq, position, head);
                    for (y, expected) in outs[seq][at..at + head_dim].iter().zip(expected) {
                        let off = (f64::from(*y) - expected).abs();
                        assert!(off < 2e-6, "{} {dtype:?} {y} {expected}", isa.name());
                    }
                }
            }
        }
    }
}

#[test]
fn a_decode_step_equals_the_last_row_of_a_prefill() {
    let case = mk_case(&[130, 65], 32, DType::F32);
    let prefill = bits(&case.compute(&PLAIN));
    for isa in isas() {
        assert_eq!(
            bits(&case.compute(&Way {
                isa,
                chunk: 1,
                ..PLAIN
            })),
            prefill
        );
    }
}

#[test]
fn a_long_sequence_divided_among_threads_gives_the_same_bits() {
    let case = Case {
        num_kv_heads: 1,
        ..mk_case(&[1000], 16, DType::F32)
    };
    let isa = Isa::detect();
    let one = bits(&case.compute(&Way { isa, ..PLAIN }));
    assert_eq!(
        bits(&case.compute(&Way {
            isa,
            threads: 3,
            chunk: 20,
            ..PLAIN
        })),
        one
    );
}

#[test]
fn a_page_beyond_the_pool_faults_the_queue() {
    let case = mk_case(&[5], 16, DType::F32);
    let backend = mk_backend(1, Isa::detect());
    let (kv, _, _) = case.pool(&backend, &PLAIN);
    let batch = BatchView {
        num_tokens: 1,
        num_seqs: 1,
        token_ids: words(&backend, &[0]),
        positions: words(&backend, &[4]),
        q_indptr: words(&backend, &[0, 1]),
        kv_lens: words(&backend, &[5]),
        page_table: words(&backend, &[99]),
        page_table_stride: 1,
        out_slots: words(&backend, &[0]),
    };
    let q = zeros(&backend, case.q_len());
    backend.attn_paged(AttnPaged {
        q: &q,
        q_row_stride: case.q_len(),
        num_q_heads: 6,
        scale: 1.0,
        batch: &batch,
        kv: &kv,
        layer: 0,
        out: &zeros(&backend, case.q_len()).slice(0..case.q_len()),
    });
    let fault = backend
        .health()
        .err()
        .or(crate::Ticket::wait(backend.fence()).err())
        .unwrap();
    assert!(
        fault
            .to_string()
            .contains("page 99 is beyond the pool of 2"),
        "{fault}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bits_do_not_depend_on_the_way(
        kv_lens in prop::collection::vec(1usize..200, 1..4),
        head_dim in prop::sample::select(vec![8usize, 16, 32, 64, 80]),
        dtype in prop::sample::select(vec![DType::F32, DType::F16, DType::BF16]),
        group in 1usize..5,
        isa in prop::sample::select(isas().collect::<Vec<_>>()),
        threads in 1usize..4,
        page_size in prop::sample::select(vec![1usize, 16, 64]),
        page_shift in 0usize..50,
        chunk in prop::sample::select(vec![1usize, 7, 64, usize::MAX]),
        layer in 0usize..2,
    ) {
        let case = Case { group, ..mk_case(&kv_lens, head_dim, dtype) };
        let way = Way { isa, threads, page_size, page_shift, chunk, num_layers: 2, layer };
        let strongest = Way { isa: Isa::detect(), ..PLAIN };
        prop_assert_eq!(bits(&case.compute(&way)), bits(&case.compute(&strongest)));
    }
}
