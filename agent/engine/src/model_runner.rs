//! `ModelRunner`: sends one batch to the device and reads its results. Only here do the scheduler's
//! objects (requests, rows, pages) become device buffers.

mod inputs;
mod launched;

use crate::batch::{Batch, BatchRow};
use crate::kvcache::PageIdx;
use crate::kvcache::group::KvGroups;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::model::{Model, Step};
use inputs::{DeviceInputs, HostInputs, StepInputs};
pub(crate) use launched::Launched;
use launched::LaunchedRow;
use pd_compute::{Backend, ComputeError, CopyDirection, CopyPages, DType, GatherRows};
use pd_compute::{Sample, SampleOut, Ticket};

/// SGLang's `ModelRunner`.
#[derive(Debug)]
pub(crate) struct ModelRunner<B: Backend> {
    backend: B,
    model: Box<dyn Model<B>>,
    kv: KvGroups<B>,
    device: DeviceInputs<B>,
    host: HostInputs,
    max_seqs: usize,
    /// Largest decode step that is replayed.
    graph_max_seqs: usize,
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
    /// If the allocation fails.
    pub(crate) fn new(
        backend: B,
        model: Box<dyn Model<B>>,
        kv: KvGroups<B>,
        max_seqs: usize,
        graph_max_seqs: usize,
    ) -> Result<Self, ComputeError> {
        let limits = model.limits();
        let device =
            DeviceInputs::alloc(&backend, limits.max_tokens, max_seqs, limits.max_logit_rows)?;
        Ok(Self {
            graph_max_seqs: if backend.replays() { graph_max_seqs } else { 0 },
            max_seqs,
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

    /// Enqueues one step over `batch`, whose requests hold pages for it, and returns immediately.
    ///
    /// # Errors
    /// If allocating larger tables fails.
    pub(crate) fn launch(
        &mut self,
        batch: &Batch,
        req_to_token: &ReqToTokenPool,
    ) -> Result<Launched<B>, ComputeError> {
        self.host.clear();
        for row in &batch.rows {
            self.host.push(row, req_to_token);
        }
        self.set_pages(batch.rows.iter(), req_to_token);
        let rows = batch.rows.iter().map(LaunchedRow::of).collect();
        self.enqueue(rows, batch.is_decode())
    }

    /// Enqueues the step after the one over `batch`, which was launched as `before` and whose
    /// results are not known yet, for those of its requests that may continue. They hold pages for
    /// one more token.
    ///
    /// # Errors
    /// If allocating larger tables fails.
    pub(crate) fn launch_ahead(
        &mut self,
        batch: &Batch,
        before: &Launched<B>,
        req_to_token: &ReqToTokenPool,
    ) -> Result<Launched<B>, ComputeError> {
        let rows = || batch.rows.iter().filter(|row| row.may_go_on());
        // In the same order, except for those that have ended.
        let mut places = before.ids().enumerate();
        self.host.clear();
        for row in rows() {
            let (place, _) = places
                .find(|(_, id)| *id == row.req.id)
                .expect("a request that goes on was in the step before");
            self.host.push_ahead(row, place, req_to_token);
        }
        self.set_pages(rows(), req_to_token);
        self.enqueue(rows().map(LaunchedRow::of).collect(), true)
    }

    fn set_pages<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a BatchRow>,
        req_to_token: &ReqToTokenPool,
    ) {
        let longest = self.host.longest();
        let stride = longest.div_ceil(req_to_token.page_size());
        let stride = if self.graph_max_seqs > 0 {
            stride.next_power_of_two()
        } else {
            stride
        };
        self.host.set_pages(rows, req_to_token, stride);
    }

    fn enqueue(
        &mut self,
        rows: Vec<LaunchedRow>,
        is_decode: bool,
    ) -> Result<Launched<B>, ComputeError> {
        let is_replayed = is_decode && self.host.num_seqs() <= self.graph_max_seqs;
        if is_replayed {
            let padded = padded_seqs(self.host.num_seqs());
            self.host.pad(padded.min(self.max_seqs));
        }
        let inputs = self.device.upload(&self.backend, &mut self.host)?;
        let out = self.device.outputs(inputs.num_logit_rows, inputs.top_n_max);
        let backend = self.backend.clone();
        let is_graph = if is_replayed {
            backend.replay(|| self.forward(&inputs, &out))
        } else {
            self.forward(&inputs, &out);
            false
        };
        let wanted = rows.iter().map(LaunchedRow::num_outputs).sum();
        Ok(Launched::new(&backend, &out, wanted, (rows, is_graph)))
    }

    fn forward(&mut self, inputs: &StepInputs<B>, out: &SampleOut<B>) {
        let rows = inputs.num_logit_rows;
        if let Some(sampled_rows) = &inputs.sampled_rows {
            self.backend.gather_rows(GatherRows {
                src: &self.device.out_tokens,
                indices: sampled_rows,
                out: &inputs.batch.token_ids,
                row_len: 1,
                rows: inputs.batch.num_tokens,
            });
        }
        self.model.forward(&Step {
            batch: &inputs.batch,
            kv: self.kv.views(),
            logit_rows: &inputs.logit_rows,
            num_logit_rows: rows,
        });
        if rows > 0 {
            self.backend.sample(Sample {
                logits: self.model.logits(),
                vocab: self.model.config().vocab_size,
                rows,
                params: &inputs.sampling,
                out,
            });
        }
    }

    /// Copies pages to host memory and waits for the copy, so that they may be reused.
    ///
    /// # Errors
    /// When there is too little host memory, or the device faulted.
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
    /// If allocating the indices fails.
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

/// Sizes of replayed steps: few different ones, with little padding.
fn padded_seqs(num_seqs: usize) -> usize {
    match num_seqs {
        0..=4 => num_seqs.next_power_of_two(),
        5..=64 => num_seqs.next_multiple_of(8),
        _ => num_seqs.next_multiple_of(16),
    }
}
