//! `ModelRunner`: carries one batch to the device and its results back. The only place where the
//! scheduler's words (requests, rows, pages) become device buffers.

use pd_compute::{Backend, BatchView, ComputeError, DType, DeviceBuffer, HostBytes, Sample};
use pd_compute::{CopyDirection, CopyPages, SampleOut, SamplingRow, SamplingView, Ticket};

use crate::batch::{Batch, Drawn, RowOutput};
use crate::kvcache::PageIdx;
use crate::kvcache::group::KvGroups;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::model::{Model, Step};
use crate::sample::logprobs::SampleTables;
use crate::sample::params::TOP_LOGPROBS_MAX;
use crate::sample::rows::SamplingRows;

/// SGLang's `ModelRunner`.
#[derive(Debug)]
pub(crate) struct ModelRunner<B: Backend> {
    backend: B,
    model: Box<dyn Model<B>>,
    kv: KvGroups<B>,
    device: DeviceInputs<B>,
    host: HostInputs,
}

/// Inputs and outputs of a step, allocated once for the largest.
#[derive(Debug)]
struct DeviceInputs<B: Backend> {
    token_ids: B::Buffer,
    positions: B::Buffer,
    q_indptr: B::Buffer,
    kv_lens: B::Buffer,
    out_slots: B::Buffer,
    logit_rows: B::Buffer,
    /// Grow with what requests need.
    page_table: B::Buffer,
    token_counts: B::Buffer,
    logit_bias: B::Buffer,
    sampling_rows: B::Buffer,
    out_tokens: B::Buffer,
    out_logprobs: B::Buffer,
    top_tokens: B::Buffer,
    top_logprobs: B::Buffer,
}

/// The same on the host; kept to keep their memory.
#[derive(Debug, Default)]
struct HostInputs {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    q_indptr: Vec<u32>,
    kv_lens: Vec<u32>,
    out_slots: Vec<u32>,
    logit_rows: Vec<u32>,
    page_table: Vec<u32>,
    page_table_stride: usize,
    sampling: SamplingRows,
}

/// A step on its way. Results come with [`Launched::wait`].
#[derive(Debug)]
pub(crate) struct Launched<B: Backend> {
    tokens: B::Ticket,
    logprobs: B::Ticket,
    /// With the tables' columns; absent when no row wants the likeliest tokens.
    top: Option<(B::Ticket, B::Ticket, usize)>,
    shapes: Vec<RowShape>,
}

/// Logit rows of one batch row: those of prompt logprobs, then one if it draws.
#[derive(Clone, Copy, Debug)]
struct RowShape {
    prompt_logprobs: usize,
    draws: bool,
}

/// KV of a request in host memory.
#[derive(Debug)]
pub(crate) struct OffloadedKv<B: Backend> {
    host: B::Buffer,
    num_pages: usize,
}

// === impl ModelRunner ===

impl<B: Backend> ModelRunner<B> {
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn new(
        backend: B,
        model: Box<dyn Model<B>>,
        kv: KvGroups<B>,
        max_seqs: usize,
    ) -> Result<Self, ComputeError> {
        let limits = model.limits();
        let device =
            DeviceInputs::alloc(&backend, limits.max_tokens, max_seqs, limits.max_logit_rows)?;
        Ok(Self {
            backend,
            model,
            kv,
            device,
            host: HostInputs::default(),
        })
    }

    pub(crate) fn kv(&self) -> &KvGroups<B> {
        &self.kv
    }

    /// Enqueues one step over `batch`, whose requests hold pages for it, and returns at once.
    ///
    /// # Errors
    /// When the device has no memory for larger tables.
    pub(crate) fn launch(
        &mut self,
        batch: &Batch,
        req_to_token: &ReqToTokenPool,
    ) -> Result<Launched<B>, ComputeError> {
        self.host.fill(batch, req_to_token);
        self.device.upload(&self.backend, &self.host)?;
        let view = self.device.batch_view(&self.host);
        let num_logit_rows = self.host.logit_rows.len();
        let step = Step {
            batch: &view,
            kv: self.kv.views(),
            logit_rows: &self.device.logit_rows,
            num_logit_rows,
        };
        self.model.forward(&step);
        let shapes = batch.rows.iter().map(RowShape::of).collect();
        Ok(self.sample(num_logit_rows, shapes))
    }

    fn sample(&self, rows: usize, shapes: Vec<RowShape>) -> Launched<B> {
        let (backend, device) = (&self.backend, &self.device);
        let top_n_max = self.host.sampling.top_n_max;
        let out = SampleOut {
            tokens: device.out_tokens.slice(0..rows),
            logprobs: device.out_logprobs.slice(0..rows),
            top_n_max,
            top_tokens: device.top_tokens.slice(0..rows * top_n_max),
            top_logprobs: device.top_logprobs.slice(0..rows * top_n_max),
        };
        if rows > 0 {
            backend.sample(Sample {
                logits: self.model.logits(),
                vocab: self.model.config().vocab_size,
                rows,
                params: &SamplingView {
                    rows: device.sampling_rows.clone(),
                    token_counts: device.token_counts.clone(),
                    logit_bias: device.logit_bias.clone(),
                },
                out: &out,
            });
        }
        let read_top = || {
            (
                backend.read(&out.top_tokens),
                backend.read(&out.top_logprobs),
                top_n_max,
            )
        };
        Launched {
            tokens: backend.read(&out.tokens),
            logprobs: backend.read(&out.logprobs),
            top: (top_n_max > 0).then(read_top),
            shapes,
        }
    }

    /// Copies pages to host memory and waits until they are there, so that they may be given away.
    ///
    /// # Errors
    /// When there is no host memory, or the device faulted.
    pub(crate) fn offload(&mut self, pages: &[PageIdx]) -> Result<OffloadedKv<B>, ComputeError> {
        let elements = pages.len() * self.kv.page_elements();
        let host = self
            .backend
            .alloc_host("offloaded KV", self.kv.dtype(), elements)?;
        let offloaded = OffloadedKv {
            host,
            num_pages: pages.len(),
        };
        self.copy_pages(pages, &offloaded, CopyDirection::PoolToHost)?;
        self.backend.fence().wait()?;
        Ok(offloaded)
    }

    /// Copies pages back, in queue order: the next step finds them there.
    ///
    /// # Errors
    /// When the device has no memory for the indices.
    pub(crate) fn reload(
        &mut self,
        pages: &[PageIdx],
        offloaded: &OffloadedKv<B>,
    ) -> Result<(), ComputeError> {
        assert_eq!(
            pages.len(),
            offloaded.num_pages,
            "as many pages come back as went"
        );
        self.copy_pages(pages, offloaded, CopyDirection::HostToPool)
    }

    fn copy_pages(
        &mut self,
        pages: &[PageIdx],
        offloaded: &OffloadedKv<B>,
        direction: CopyDirection,
    ) -> Result<(), ComputeError> {
        let indices: Vec<u32> = pages.iter().map(|page| page.0).collect();
        let page_indices = self
            .backend
            .alloc("page indices", DType::U32, indices.len())?;
        self.backend.upload(&page_indices, &indices);
        let [kv] = self.kv.views() else {
            unreachable!("models of this engine have one KV group");
        };
        self.backend.copy_pages(CopyPages {
            kv,
            page_indices: &page_indices,
            num_pages: pages.len(),
            host: &offloaded.host,
            direction,
        });
        Ok(())
    }
}

// === impl HostInputs ===

impl HostInputs {
    fn fill(&mut self, batch: &Batch, req_to_token: &ReqToTokenPool) {
        self.clear();
        let held =
            |row: &crate::batch::BatchRow| row.positions().end.div_ceil(req_to_token.page_size());
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
    fn alloc(
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

    fn upload(&mut self, backend: &B, host: &HostInputs) -> Result<(), ComputeError> {
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

    fn batch_view(&self, host: &HostInputs) -> BatchView<B> {
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

// === impl Launched ===

impl<B: Backend> Launched<B> {
    /// Blocks until the step is done. One output per batch row, in order.
    ///
    /// # Errors
    /// When the device faulted; it runs nothing more.
    pub(crate) fn wait(self) -> Result<Vec<RowOutput>, ComputeError> {
        let tokens = self.tokens.wait()?;
        let logprobs = self.logprobs.wait()?;
        let (top_tokens, top_logprobs, top_n_max) = match self.top {
            Some((tokens, logprobs, top_n_max)) => (tokens.wait()?, logprobs.wait()?, top_n_max),
            None => (HostBytes::default(), HostBytes::default(), 0),
        };
        let tables = SampleTables {
            tokens: tokens.as_slice(),
            logprobs: logprobs.as_slice(),
            top_tokens: top_tokens.as_slice(),
            top_logprobs: top_logprobs.as_slice(),
            top_n_max,
        };
        let mut rows = 0..;
        let mut next_row = || tables.row(rows.next().expect("rows are counted"));
        let output = |shape: &RowShape| RowOutput {
            prompt_logprobs: (0..shape.prompt_logprobs)
                .filter_map(|_| next_row())
                .collect(),
            drawn: match shape.draws.then(&mut next_row) {
                None => Drawn::NotYet,
                Some(None) => Drawn::NotFinite,
                Some(Some(token)) => Drawn::Token(token),
            },
        };
        Ok(self.shapes.iter().map(output).collect())
    }
}

// === impl RowShape ===

impl RowShape {
    fn of(row: &crate::batch::BatchRow) -> Self {
        Self {
            prompt_logprobs: row.prompt_logprob_positions().len(),
            draws: row.draws(),
        }
    }
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("positions and rows of a step fit 32 bits")
}
