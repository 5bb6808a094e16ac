//! A step's inputs: gathered on the host, then uploaded to buffers that were allocated once.

use pd_compute::{Backend, BatchView, ComputeError, DType, DeviceBuffer, SamplingRow};

use crate::batch::{Batch, BatchRow};
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::sample::params::TOP_LOGPROBS_MAX;
use crate::sample::rows::SamplingRows;

/// Inputs and outputs of a step, allocated once for the largest.
#[derive(Debug)]
pub(super) struct DeviceInputs<B: Backend> {
    pub(super) token_ids: B::Buffer,
    pub(super) positions: B::Buffer,
    pub(super) q_indptr: B::Buffer,
    pub(super) kv_lens: B::Buffer,
    pub(super) out_slots: B::Buffer,
    pub(super) logit_rows: B::Buffer,
    /// Grow with what requests need.
    pub(super) page_table: B::Buffer,
    pub(super) token_counts: B::Buffer,
    pub(super) logit_bias: B::Buffer,
    pub(super) sampling_rows: B::Buffer,
    pub(super) out_tokens: B::Buffer,
    pub(super) out_logprobs: B::Buffer,
    pub(super) top_tokens: B::Buffer,
    pub(super) top_logprobs: B::Buffer,
}

/// The same on the host; kept to keep their memory.
#[derive(Debug, Default)]
pub(super) struct HostInputs {
    pub(super) token_ids: Vec<u32>,
    pub(super) positions: Vec<u32>,
    pub(super) q_indptr: Vec<u32>,
    pub(super) kv_lens: Vec<u32>,
    pub(super) out_slots: Vec<u32>,
    pub(super) logit_rows: Vec<u32>,
    pub(super) page_table: Vec<u32>,
    pub(super) page_table_stride: usize,
    pub(super) sampling: SamplingRows,
}

// === impl HostInputs ===

impl HostInputs {
    pub(super) fn fill(&mut self, batch: &Batch, req_to_token: &ReqToTokenPool) {
        self.clear();
        let held = |row: &BatchRow| row.positions().end.div_ceil(req_to_token.page_size());
        self.page_table_stride = batch.rows.iter().map(held).max().unwrap_or(0);
        self.q_indptr.push(0);
        for row in &batch.rows {
            let kv = row
                .req
                .kv
                .as_ref()
                .expect("a request in a batch holds pages");
            let first_row = self.token_ids.len();
            for position in row.positions() {
                self.token_ids.push(row.req.tokens[position]);
                self.positions.push(to_u32(position));
                self.out_slots.push(req_to_token.slot(kv.idx, position));
            }
            self.q_indptr.push(to_u32(self.token_ids.len()));
            self.kv_lens.push(to_u32(row.positions().end));
            let pages = req_to_token.pages(kv.idx).iter().map(|page| page.0);
            self.page_table.extend(
                pages
                    .chain(std::iter::repeat(0))
                    .take(self.page_table_stride),
            );
            let start = row.positions().start;
            for position in row.prompt_logprob_positions() {
                self.logit_rows.push(to_u32(first_row + position - start));
                let given = row.req.tokens[position + 1];
                self.sampling.push_given(given, row.req.top_logprobs_num());
            }
            if row.draws() {
                self.logit_rows.push(to_u32(self.token_ids.len() - 1));
                self.sampling.push_draw(&row.req);
            }
        }
    }

    fn clear(&mut self) {
        let Self {
            token_ids,
            positions,
            q_indptr,
            kv_lens,
            out_slots,
            logit_rows,
            page_table,
            page_table_stride: _,
            sampling,
        } = self;
        for list in [
            token_ids, positions, q_indptr, kv_lens, out_slots, logit_rows, page_table,
        ] {
            list.clear();
        }
        sampling.clear();
    }
}

// === impl DeviceInputs ===

impl<B: Backend> DeviceInputs<B> {
    pub(super) fn alloc(
        backend: &B,
        max_tokens: usize,
        max_seqs: usize,
        max_logit_rows: usize,
    ) -> Result<Self, ComputeError> {
        let u32s = |name: &str, len: usize| backend.alloc(name, DType::U32, len);
        let f32s = |name: &str, len: usize| backend.alloc(name, DType::F32, len);
        let top_len = max_logit_rows * TOP_LOGPROBS_MAX as usize;
        Ok(Self {
            token_ids: u32s("token ids", max_tokens)?,
            positions: u32s("positions", max_tokens)?,
            q_indptr: u32s("query offsets", max_seqs + 1)?,
            kv_lens: u32s("KV lengths", max_seqs)?,
            out_slots: u32s("out slots", max_tokens)?,
            logit_rows: u32s("logit rows", max_logit_rows)?,
            page_table: u32s("page table", max_seqs)?,
            token_counts: u32s("token counts", 2)?,
            logit_bias: u32s("logit bias", 2)?,
            sampling_rows: u32s("sampling rows", max_logit_rows * SamplingRow::WORDS)?,
            out_tokens: u32s("sampled tokens", max_logit_rows)?,
            out_logprobs: f32s("logprobs", max_logit_rows)?,
            top_tokens: u32s("top tokens", top_len)?,
            top_logprobs: f32s("top logprobs", top_len)?,
        })
    }

    pub(super) fn upload(&mut self, backend: &B, host: &HostInputs) -> Result<(), ComputeError> {
        backend.upload(&self.token_ids, &host.token_ids);
        backend.upload(&self.positions, &host.positions);
        backend.upload(&self.q_indptr, &host.q_indptr);
        backend.upload(&self.kv_lens, &host.kv_lens);
        backend.upload(&self.out_slots, &host.out_slots);
        backend.upload(&self.logit_rows, &host.logit_rows);
        backend.upload(&self.sampling_rows, &host.sampling.rows);
        let counts: &[u32] = bytemuck::cast_slice(&host.sampling.token_counts);
        let biases: &[u32] = bytemuck::cast_slice(&host.sampling.logit_bias);
        grow(
            backend,
            &mut self.page_table,
            "page table",
            host.page_table.len(),
        )?;
        grow(
            backend,
            &mut self.token_counts,
            "token counts",
            counts.len(),
        )?;
        grow(backend, &mut self.logit_bias, "logit bias", biases.len())?;
        backend.upload(&self.page_table, &host.page_table);
        backend.upload(&self.token_counts, counts);
        backend.upload(&self.logit_bias, biases);
        Ok(())
    }

    pub(super) fn batch_view(&self, host: &HostInputs) -> BatchView<B> {
        BatchView {
            num_tokens: host.token_ids.len(),
            num_seqs: host.kv_lens.len(),
            token_ids: self.token_ids.clone(),
            positions: self.positions.clone(),
            q_indptr: self.q_indptr.clone(),
            kv_lens: self.kv_lens.clone(),
            page_table: self.page_table.clone(),
            page_table_stride: host.page_table_stride,
            out_slots: self.out_slots.clone(),
        }
    }
}

/// Doubles, so that a growing context costs few allocations.
fn grow<B: Backend>(
    backend: &B,
    buffer: &mut B::Buffer,
    name: &str,
    len: usize,
) -> Result<(), ComputeError> {
    if buffer.len() < len {
        *buffer = backend.alloc(name, DType::U32, len.next_power_of_two())?;
    }
    Ok(())
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("positions and rows of a step fit 32 bits")
}
