//! `LocalRank`: one rank on one backend. Here alone plans become device buffers.

mod hashes;
mod inputs;

use super::{HostKv, PageSpan, Ranks};
use crate::kvcache::group::KvGroups;
use crate::kvcache::{KvPlaces, StateSlot};
use crate::model::{Model, Step, StepStates};
use crate::observe::PayloadHash;
use crate::step::{Drafting, StepOutput, StepPlan, StepShape};
use inputs::{StepBuffers, StepInputs};
use pd_compute::{Backend, ComputeError, CopyDirection, CopyPages, CopyStates, DType, GatherRows};
use pd_compute::{DeviceBuffer, HostBytes, KvGroupView, Sample, SampleOut, Ticket};
use std::collections::{HashMap, VecDeque};

/// SGLang's `ModelRunner`.
#[derive(Debug)]
pub(crate) struct LocalRank<B: Backend> {
    backend: B,
    model: Box<dyn Model<B>>,
    kv: KvGroups<B>,
    buffers: StepBuffers<B>,
    in_flight: VecDeque<Launched<B>>,
    offloaded: HashMap<HostKv, Offloaded<B>>,
    last_offload: u64,
    /// Values that were written at the end of their dtype's range until the last step's end.
    kv_saturations: u64,
}

/// KV of a request in host memory.
#[derive(Debug)]
struct Offloaded<B: Backend> {
    /// One per group of the model.
    groups: Vec<B::Buffer>,
    /// One per state of the model.
    states: Vec<B::Buffer>,
}

/// Read-backs of a step in flight.
#[derive(Debug)]
struct Launched<B: Backend> {
    tokens: B::Ticket,
    logprobs: B::Ticket,
    /// Absent if no row wants the likeliest tokens.
    top: Option<(B::Ticket, B::Ticket)>,
    top_n_max: usize,
    /// Absent if no row asks for tokens' log probabilities.
    asked: Option<B::Ticket>,
    asked_max: usize,
    /// Absent unless the states of drafts are read back.
    draft_states: Option<B::Ticket>,
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
        let vocab = model.config().vocab_size;
        let buffers = StepBuffers::alloc(&backend, model.limits(), max_seqs, vocab)?;
        Ok(Self {
            backend,
            model,
            kv,
            buffers,
            in_flight: VecDeque::new(),
            offloaded: HashMap::new(),
            last_offload: 0,
            kv_saturations: 0,
        })
    }

    /// Computes the logits of a step.
    fn compute(&mut self, drafting: Drafting, inputs: &StepInputs<B>) {
        match drafting {
            Drafting::Off | Drafting::Entries { .. } => self.forward(inputs),
            Drafting::First => {
                let rows = inputs.num_logit_rows;
                self.model.first_drafts(&inputs.draft_rows, rows);
            }
            Drafting::Next => {
                let step = step_of(&self.kv, inputs);
                self.model.more_drafts(&step, &inputs.draft_rows);
            }
        }
    }

    /// Draws from the logits, and does what needs the tokens.
    fn draw(&mut self, drafting: Drafting, inputs: &StepInputs<B>, out: &SampleOut<B>) {
        self.sample(inputs, out);
        if matches!(drafting, Drafting::Entries { .. }) {
            self.extend_drafts(inputs);
        }
    }

    /// Enqueues the step. Returns whether it is a graph.
    fn enqueue(&mut self, plan: &StepPlan, inputs: &StepInputs<B>, out: &SampleOut<B>) -> bool {
        let StepShape {
            drafting,
            is_padded,
            ..
        } = plan.shape;
        let backend = self.backend.clone();
        let replayed = |step: &mut dyn FnMut()| {
            if is_padded {
                backend.replay(step)
            } else {
                step();
                false
            }
        };
        if plan.masks.is_empty() {
            return replayed(&mut || {
                self.compute(drafting, inputs);
                self.draw(drafting, inputs, out);
            });
        }
        let is_graph = replayed(&mut || self.compute(drafting, inputs));
        // The device computes meanwhile. A graph would have to begin with the masks.
        let masks = plan.masks.wait();
        backend.upload(self.buffers.masks(), &masks);
        self.draw(drafting, inputs, out);
        is_graph
    }

    fn forward(&mut self, inputs: &StepInputs<B>) {
        if let Some(carried_rows) = &inputs.carried_rows {
            self.backend.gather_rows(GatherRows {
                src: self.buffers.tokens(),
                indices: carried_rows,
                out: &inputs.batch.token_ids,
                row_len: 1,
                rows: inputs.batch.num_tokens,
            });
        }
        self.model.forward(&step_of(&self.kv, inputs));
    }

    /// The draft layer's entries, once the tokens are drawn that some of them need.
    fn extend_drafts(&mut self, inputs: &StepInputs<B>) {
        if inputs.num_logit_rows > 0 {
            self.backend.gather_rows(GatherRows {
                src: self.buffers.tokens(),
                indices: &inputs.next_rows,
                out: &inputs.next_tokens,
                row_len: 1,
                rows: inputs.batch.num_tokens,
            });
        }
        let step = step_of(&self.kv, inputs);
        self.model.extend_drafts(&step, &inputs.next_tokens);
    }

    /// Puts states that were computed elsewhere behind those of outputs.
    fn give_states(&self, plan: &StepPlan) {
        let words = &plan.words[plan.places.draft_states.clone()];
        if !words.is_empty() {
            let states = self.model.draft_states();
            let elsewhere = states.slice(states.len() / 2..states.len());
            self.backend.upload(&elsewhere, words);
        }
    }

    /// Enqueues the read-back of what the draft layer made of the first `wanted` outputs.
    fn read_states(&self, drafting: Drafting, wanted: usize) -> Option<B::Ticket> {
        let row_len = self.model.config().hidden_size;
        let reads = matches!(drafting, Drafting::Entries { reads_states: true });
        (reads && wanted > 0).then(|| {
            let states = self.model.draft_states();
            self.backend.read(&states.slice(0..wanted * row_len))
        })
    }

    fn sample(&self, inputs: &StepInputs<B>, out: &SampleOut<B>) {
        let rows = inputs.num_logit_rows;
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

    fn copy(
        &self,
        places: &KvPlaces,
        host: &Offloaded<B>,
        direction: CopyDirection,
    ) -> Result<(), ComputeError> {
        let indices = |list: &[u32]| -> Result<B::Buffer, ComputeError> {
            let indices = self.backend.alloc("KV to copy", DType::U32, list.len())?;
            self.backend.upload(&indices, list);
            Ok(indices)
        };
        let pages: Vec<u32> = places.pages.iter().map(|page| page.0).collect();
        let window: Vec<u32> = places.window.iter().map(|page| page.0).collect();
        let full_indices = indices(&pages)?;
        let window_indices = (!window.is_empty()).then(|| indices(&window)).transpose()?;
        for ((kv, is_window), host) in self.kv.spaces().zip(&host.groups) {
            let (page_indices, num_pages) = match &window_indices {
                Some(indices) if is_window => (indices, window.len()),
                None if is_window => continue,
                Some(_) | None => (&full_indices, pages.len()),
            };
            self.backend.copy_pages(CopyPages {
                kv,
                page_indices,
                num_pages,
                host,
                direction,
            });
        }
        if let Some(slot) = places.slot {
            let slots = indices(&[slot.0])?;
            for (states, host) in self.kv.states().iter().zip(&host.states) {
                self.backend.copy_states(CopyStates {
                    states,
                    slots: &slots,
                    num_slots: 1,
                    host,
                    direction,
                });
            }
        }
        Ok(())
    }
}

impl<B: Backend> Ranks for LocalRank<B> {
    fn launch(&mut self, plan: &StepPlan) -> Result<(), ComputeError> {
        let inputs = self.buffers.upload(&self.backend, plan)?;
        let out = self.buffers.outputs(&plan.shape);
        let (drafting, wanted) = (plan.shape.drafting, plan.shape.num_outputs);
        self.give_states(plan);
        let is_graph = self.enqueue(plan, &inputs, &out);
        let launched = Launched::new(&self.backend, &out, wanted, is_graph);
        self.in_flight.push_back(Launched {
            draft_states: self.read_states(drafting, wanted),
            ..launched
        });
        Ok(())
    }

    fn wait(&mut self) -> Result<StepOutput, ComputeError> {
        let oldest = self.in_flight.pop_front();
        let mut output = oldest.expect("a step is in flight").wait()?;
        let before = self.kv_saturations;
        self.kv_saturations = self.backend.kv_saturations();
        output.kv_saturations = self.kv_saturations - before;
        Ok(output)
    }

    fn offload(&mut self, places: &KvPlaces) -> Result<HostKv, ComputeError> {
        let host = |dtype, len| self.backend.alloc_host("offloaded KV", dtype, len);
        let groups = self.kv.spaces().map(|(view, is_window)| {
            let pages = if is_window {
                places.window.len()
            } else {
                places.pages.len()
            };
            host(view.dtype, pages * page_elements(view))
        });
        let states = self.kv.states().iter().filter(|_| places.slot.is_some());
        let offloaded = Offloaded {
            groups: groups.collect::<Result<_, _>>()?,
            states: states
                .map(|view| host(view.region.dtype(), view.item_len()))
                .collect::<Result<_, _>>()?,
        };
        self.copy(places, &offloaded, CopyDirection::PoolToHost)?;
        self.backend.fence().wait()?;
        self.last_offload += 1;
        self.offloaded.insert(HostKv(self.last_offload), offloaded);
        Ok(HostKv(self.last_offload))
    }

    fn reload(&mut self, kv: HostKv, places: &KvPlaces) -> Result<(), ComputeError> {
        let offloaded = self.offloaded.remove(&kv);
        let offloaded = offloaded.expect("offloaded KV is kept until it is reloaded");
        self.copy(places, &offloaded, CopyDirection::HostToPool)
    }

    fn hash_pages(&mut self, spans: &[PageSpan]) -> Result<Vec<PayloadHash>, ComputeError> {
        let hash = |span: &PageSpan| hashes::hash_slots(&self.backend, &self.kv, span);
        spans.iter().map(hash).collect()
    }

    fn hash_states(&mut self, slot: StateSlot) -> Result<Vec<PayloadHash>, ComputeError> {
        let views = self.kv.states().iter();
        let hash = |view| hashes::hash_state(&self.backend, view, slot);
        views.map(hash).collect()
    }

    fn forget(&mut self, kv: HostKv) {
        self.offloaded.remove(&kv);
    }
}

/// Of one page over all cuts.
fn page_elements<B: Backend>(view: &KvGroupView<B>) -> usize {
    view.cuts.iter().map(|cut| cut.page_stride).sum()
}

/// The step that inputs describe.
fn step_of<'a, B: Backend>(kv: &'a KvGroups<B>, inputs: &'a StepInputs<B>) -> Step<'a, B> {
    Step {
        batch: &inputs.batch,
        window_batch: inputs.window_batch.as_ref(),
        kv: kv.views(),
        states: inputs.states.as_ref().map(|rows| StepStates {
            views: kv.states(),
            rows,
        }),
        logit_rows: &inputs.logit_rows,
        num_logit_rows: inputs.num_logit_rows,
    }
}

// === impl Launched ===

impl<B: Backend> Launched<B> {
    /// Enqueues the read-back of the first `wanted` rows of `out`, behind the step that fills them.
    fn new(backend: &B, out: &SampleOut<B>, wanted: usize, is_graph: bool) -> Self {
        let read = |buffer: &B::Buffer, len: usize| backend.read(&buffer.slice(0..len));
        let (top_n_max, asked_max) = (out.top_n_max, out.asked_max);
        let read_top = || {
            let len = wanted * top_n_max;
            (read(&out.top_tokens, len), read(&out.top_logprobs, len))
        };
        Self {
            tokens: read(&out.tokens, wanted),
            logprobs: read(&out.logprobs, wanted),
            top: (top_n_max > 0).then(read_top),
            top_n_max,
            asked: (asked_max > 0).then(|| read(&out.asked_logprobs, wanted * asked_max)),
            asked_max,
            draft_states: None,
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
        let asked_logprobs = self.asked.map(Ticket::wait).transpose()?;
        let draft_states = self.draft_states.map(Ticket::wait).transpose()?;
        let draft_states = draft_states.unwrap_or_default();
        Ok(StepOutput {
            tokens: tokens.as_slice().to_vec(),
            logprobs: logprobs.as_slice().to_vec(),
            top_n_max: self.top_n_max,
            top_tokens: top_tokens.as_slice().to_vec(),
            top_logprobs: top_logprobs.as_slice().to_vec(),
            asked_max: self.asked_max,
            asked_logprobs: asked_logprobs.unwrap_or_default().as_slice().to_vec(),
            is_graph: self.is_graph,
            draft_states: draft_states.as_slice().to_vec(),
            kv_saturations: 0,
        })
    }
}
