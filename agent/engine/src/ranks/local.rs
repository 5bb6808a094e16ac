//! `LocalRank`: one rank on one backend. Here alone plans become device buffers.

mod hashes;
mod inputs;

use super::{HostKv, PageSpan, Ranks};
use crate::kvcache::group::KvGroups;
use crate::kvcache::{PageIdx, StateSlot};
use crate::model::{Model, Step};
use crate::observe::PayloadHash;
use crate::step::{StepOutput, StepPlan};
use inputs::{StepBuffers, StepInputs};
use pd_compute::{Backend, ComputeError, CopyDirection, CopyPages, DType, GatherRows};
use pd_compute::{DeviceBuffer, HostBytes, Sample, SampleOut, Ticket};
use std::collections::{HashMap, VecDeque};

/// SGLang's `ModelRunner`.
#[derive(Debug)]
pub(crate) struct LocalRank<B: Backend> {
    backend: B,
    model: Box<dyn Model<B>>,
    kv: KvGroups<B>,
    buffers: StepBuffers<B>,
    in_flight: VecDeque<Launched<B>>,
    offloaded: HashMap<HostKv, B::Buffer>,
    last_offload: u64,
}

/// Read-backs of a step in flight.
#[derive(Debug)]
struct Launched<B: Backend> {
    tokens: B::Ticket,
    logprobs: B::Ticket,
    /// Absent if no row wants the likeliest tokens.
    top: Option<(B::Ticket, B::Ticket)>,
    top_n_max: usize,
    is_graph: bool,
}

// === impl LocalRank ===

impl<B: Backend> LocalRank<B> {
    /// # Errors
    /// If the allocation fails.
    pub(crate) fn new(
        backend: B,
        model: Box<dyn Model<B>>,
        kv: KvGroups<B>,
        max_seqs: usize,
    ) -> Result<Self, ComputeError> {
        let limits = model.limits();
        let buffers =
            StepBuffers::alloc(&backend, limits.max_tokens, max_seqs, limits.max_logit_rows)?;
        Ok(Self {
            backend,
            model,
            kv,
            buffers,
            in_flight: VecDeque::new(),
            offloaded: HashMap::new(),
            last_offload: 0,
        })
    }

    fn forward(&mut self, inputs: &StepInputs<B>, out: &SampleOut<B>) {
        let rows = inputs.num_logit_rows;
        if let Some(carried_rows) = &inputs.carried_rows {
            self.backend.gather_rows(GatherRows {
                src: self.buffers.tokens(),
                indices: carried_rows,
                out: &inputs.batch.token_ids,
                row_len: 1,
                rows: inputs.batch.num_tokens,
            });
        }
        self.model.forward(&Step {
            batch: &inputs.batch,
            kv: self.kv.views(),
            states: None,
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

    fn copy_pages(
        &self,
        pages: &[PageIdx],
        host: &B::Buffer,
        direction: CopyDirection,
    ) -> Result<(), ComputeError> {
        let indices: Vec<u32> = pages.iter().map(|page| page.0).collect();
        let page_indices = self
            .backend
            .alloc("pages to copy", DType::U32, indices.len())?;
        self.backend.upload(&page_indices, &indices);
        let mut start = 0;
        for (kv, elements) in self.kv.views().iter().zip(self.kv.page_elements()) {
            let end = start + pages.len() * elements;
            self.backend.copy_pages(CopyPages {
                kv,
                page_indices: &page_indices,
                num_pages: pages.len(),
                host: &host.slice(start..end),
                direction,
            });
            start = end;
        }
        Ok(())
    }
}

impl<B: Backend> Ranks for LocalRank<B> {
    fn launch(&mut self, plan: &StepPlan) -> Result<(), ComputeError> {
        let inputs = self.buffers.upload(&self.backend, plan)?;
        let out = self.buffers.outputs(&plan.shape);
        let backend = self.backend.clone();
        let is_graph = if plan.shape.is_padded {
            backend.replay(|| self.forward(&inputs, &out))
        } else {
            self.forward(&inputs, &out);
            false
        };
        let launched = Launched::new(&backend, &out, plan.shape.num_outputs, is_graph);
        self.in_flight.push_back(launched);
        Ok(())
    }

    fn wait(&mut self) -> Result<StepOutput, ComputeError> {
        let oldest = self.in_flight.pop_front();
        oldest.expect("a step is in flight").wait()
    }

    fn offload(
        &mut self,
        pages: &[PageIdx],
        slot: Option<StateSlot>,
    ) -> Result<HostKv, ComputeError> {
        assert_eq!(slot, None, "no model of this engine has recurrent state");
        let elements = pages.len() * self.kv.page_elements().sum::<usize>();
        let host = self
            .backend
            .alloc_host("offloaded KV", self.kv.dtype(), elements)?;
        self.copy_pages(pages, &host, CopyDirection::PoolToHost)?;
        self.backend.fence().wait()?;
        self.last_offload += 1;
        self.offloaded.insert(HostKv(self.last_offload), host);
        Ok(HostKv(self.last_offload))
    }

    fn reload(
        &mut self,
        kv: HostKv,
        pages: &[PageIdx],
        slot: Option<StateSlot>,
    ) -> Result<(), ComputeError> {
        assert_eq!(slot, None, "no model of this engine has recurrent state");
        let host = self.offloaded.remove(&kv);
        let host = host.expect("offloaded KV is kept until it is reloaded");
        self.copy_pages(pages, &host, CopyDirection::HostToPool)
    }

    fn hash_pages(&mut self, spans: &[PageSpan]) -> Result<Vec<PayloadHash>, ComputeError> {
        let hash =
            |span: &PageSpan| hashes::hash_slots(&self.backend, &self.kv, span.page, &span.slots);
        spans.iter().map(hash).collect()
    }

    fn forget(&mut self, kv: HostKv) {
        self.offloaded.remove(&kv);
    }
}

// === impl Launched ===

impl<B: Backend> Launched<B> {
    /// Enqueues the read-back of the first `wanted` rows of `out`, behind the step that fills them.
    fn new(backend: &B, out: &SampleOut<B>, wanted: usize, is_graph: bool) -> Self {
        let read = |buffer: &B::Buffer, len: usize| backend.read(&buffer.slice(0..len));
        let top_n_max = out.top_n_max;
        let read_top = || {
            let len = wanted * top_n_max;
            (read(&out.top_tokens, len), read(&out.top_logprobs, len))
        };
        Self {
            tokens: read(&out.tokens, wanted),
            logprobs: read(&out.logprobs, wanted),
            top: (top_n_max > 0).then(read_top),
            top_n_max,
            is_graph,
        }
    }

    fn wait(self) -> Result<StepOutput, ComputeError> {
        let tokens = self.tokens.wait()?;
        let logprobs = self.logprobs.wait()?;
        let (top_tokens, top_logprobs) = match self.top {
            Some((tokens, logprobs)) => (tokens.wait()?, logprobs.wait()?),
            None => (HostBytes::default(), HostBytes::default()),
        };
        Ok(StepOutput {
            tokens: tokens.as_slice().to_vec(),
            logprobs: logprobs.as_slice().to_vec(),
            top_n_max: self.top_n_max,
            top_tokens: top_tokens.as_slice().to_vec(),
            top_logprobs: top_logprobs.as_slice().to_vec(),
            is_graph: self.is_graph,
        })
    }
}
