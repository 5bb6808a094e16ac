//! `ModelRunner`: carries one batch to the device and its results back. The only place where the
//! scheduler's words (requests, rows, pages) become device buffers.

mod inputs;
mod launched;

use pd_compute::{Backend, ComputeError, CopyDirection, CopyPages, DType, DeviceBuffer, Sample};
use pd_compute::{SampleOut, SamplingView, Ticket};

use crate::batch::Batch;
use crate::kvcache::PageIdx;
use crate::kvcache::group::KvGroups;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::model::{Model, Step};
use inputs::{DeviceInputs, HostInputs};
pub(crate) use launched::Launched;
use launched::RowShape;

/// SGLang's `ModelRunner`.
#[derive(Debug)]
pub(crate) struct ModelRunner<B: Backend> {
    backend: B,
    model: Box<dyn Model<B>>,
    kv: KvGroups<B>,
    device: DeviceInputs<B>,
    host: HostInputs,
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
