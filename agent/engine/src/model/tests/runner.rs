//! Runs a model over sequences with a small KV pool of its own. Pages and state slots are dealt out
//! backwards, so that no test passes because they happen to be in order, and each step writes a
//! sequence's states to another slot than it reads. Shared by the tests beside it and the
//! `fidelity` example.

use super::{KvGroupSpec, Model, ModelFiles, StateSpec, Step, StepLimits, StepStates, load};
use pd_compute::cpu::{CpuBackend, CpuConfig};
use pd_compute::{
    Backend, BatchView, DType, KvCutView, KvGroupView, NO_SLOT, Reach, StateRows, StateView, Ticket,
};
use std::path::Path;

/// How large a runner's steps and sequences may be.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) page_size: usize,
    pub(super) max_seqs: usize,
    pub(super) max_seq_len: usize,
    pub(super) step: StepLimits,
}

pub(super) struct Runner<B: Backend> {
    backend: B,
    model: Box<dyn Model<B>>,
    /// One per group of the model; all have the same pages.
    kv: Vec<KvGroupView<B>>,
    /// One per state of the model; all have the same slots.
    states: Vec<StateView<B>>,
    /// Steps so far of each sequence.
    turns: Vec<usize>,
    sizes: Sizes,
}

/// New tokens of a sequence.
pub(super) struct Piece<'a> {
    seq: usize,
    /// Tokens of the sequence before these.
    start: usize,
    tokens: &'a [u32],
    all_rows: bool,
    /// It goes on from the snapshot of its sequence.
    resumes: bool,
    /// So many of the tokens are done when a snapshot is taken.
    snapshot: Option<usize>,
}

/// A step's buffers.
pub(super) struct Inputs<B: Backend> {
    batch: BatchView<B>,
    logit_rows: B::Buffer,
    pub(super) num_wanted: usize,
    state_rows: StateRows<B>,
}

/// For states of a sequence: two in turns, and one for a snapshot.
const SLOTS_PER_SEQ: usize = 3;

// === impl Piece ===

impl<'a> Piece<'a> {
    /// With the logits of every token.
    pub(super) fn all(seq: usize, start: usize, tokens: &'a [u32]) -> Self {
        Self {
            seq,
            start,
            tokens,
            all_rows: true,
            resumes: false,
            snapshot: None,
        }
    }

    /// With the logits of the last token.
    pub(super) fn last_row(seq: usize, start: usize, tokens: &'a [u32]) -> Self {
        Self {
            all_rows: false,
            ..Self::all(seq, start, tokens)
        }
    }

    /// From the snapshot of its sequence, which was taken `start` tokens from its beginning.
    pub(super) fn resumed(self) -> Self {
        Self {
            resumes: true,
            ..self
        }
    }

    /// With a snapshot after the first `done` of the tokens.
    pub(super) fn keeping(self, done: usize) -> Self {
        Self {
            snapshot: Some(done),
            ..self
        }
    }
}

pub(super) fn backend() -> CpuBackend {
    CpuBackend::start(CpuConfig::default()).unwrap()
}

// === impl Runner ===

impl<B: Backend> Runner<B> {
    pub(super) fn new(backend: B, path: &Path, sizes: Sizes) -> Self {
        let kv_dtype = backend.activation_dtype();
        Self::with_kv(backend, path, sizes, kv_dtype)
    }

    /// With keys and values in a dtype of their own.
    pub(super) fn with_kv(backend: B, path: &Path, sizes: Sizes, dtype: DType) -> Self {
        Self::of_files(backend, &ModelFiles::open(path).unwrap(), sizes, dtype)
    }

    pub(super) fn of_files(backend: B, files: &ModelFiles, sizes: Sizes, dtype: DType) -> Self {
        let activations = backend.activation_dtype();
        let page_size = sizes.page_size;
        let model = load(&backend, files, dtype, sizes.step).unwrap();
        let num_pages = sizes.max_seqs * sizes.max_seq_len / page_size;
        let pool = |spec: &KvGroupSpec| {
            let len = num_pages * page_size * spec.elements_per_token();
            let region = backend
                .alloc_exportable(spec.name, dtype, len, Reach::Process)
                .unwrap();
            let (layers, heads) = (spec.layers.len(), spec.total_heads);
            let cut = KvCutView::page_first(
                region,
                0..layers,
                spec.tensors,
                heads,
                page_size,
                spec.head_dim,
            );
            KvGroupView {
                dtype,
                page_size,
                num_pages,
                num_kv_heads: heads,
                head_dim: spec.head_dim,
                tensors: spec.tensors,
                cuts: vec![cut].into(),
            }
        };
        let spec = model.kv_pool_spec();
        let num_slots = SLOTS_PER_SEQ * sizes.max_seqs;
        let states = |spec: &StateSpec| {
            let len = num_slots * spec.item_elements();
            let region = backend.alloc_exportable(
                spec.name,
                spec.dtype.of(activations),
                len,
                Reach::Process,
            );
            spec.view::<B>(region.unwrap(), num_slots)
        };
        Self {
            states: spec.states.iter().map(states).collect(),
            turns: vec![0; sizes.max_seqs],
            kv: spec.groups.iter().map(pool).collect(),
            backend,
            model,
            sizes,
        }
    }

    pub(super) fn model(&self) -> &dyn Model<B> {
        self.model.as_ref()
    }

    fn pages_per_seq(&self) -> usize {
        self.sizes.max_seq_len / self.sizes.page_size
    }

    fn page(&self, seq: usize, index: usize) -> usize {
        self.kv[0].num_pages - 1 - (seq * self.pages_per_seq() + index)
    }

    /// Of a sequence: where its states are, where they will be, and where its snapshot is.
    fn slots(&self, seq: usize) -> [usize; SLOTS_PER_SEQ] {
        let slot = |nth| SLOTS_PER_SEQ * (self.sizes.max_seqs - seq) - 1 - nth;
        let turn = self.turns[seq] % 2;
        [slot(turn), slot(1 - turn), slot(2)]
    }

    /// Which slots the next step reads and writes; the step counts as done then.
    fn state_rows(&mut self, pieces: &[Piece<'_>]) -> StateRows<B> {
        let (mut read, mut write, mut snapshot) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let [from, to, kept] = self.slots(piece.seq);
            read.push(match (piece.start, piece.resumes) {
                (0, _) => NO_SLOT as usize,
                (_, true) => kept,
                (_, false) => from,
            });
            write.push(to);
            let is_kept = |done| piece.snapshot == Some(done);
            let rows = 1..=piece.tokens.len();
            snapshot.extend(rows.map(|done| {
                if is_kept(done) {
                    kept
                } else {
                    NO_SLOT as usize
                }
            }));
            self.turns[piece.seq] += 1;
        }
        StateRows {
            read: self.upload(&read),
            write: self.upload(&write),
            snapshot: self.upload(&snapshot),
        }
    }

    pub(super) fn upload(&self, values: &[usize]) -> B::Buffer {
        let values: Vec<u32> = values
            .iter()
            .map(|&value| u32::try_from(value).unwrap())
            .collect();
        let buffer = self
            .backend
            .alloc("test input", DType::U32, values.len())
            .unwrap();
        self.backend.upload(&buffer, &values);
        buffer
    }

    /// One step over `pieces`; the wanted rows' logits, piece by piece.
    pub(super) fn forward(&mut self, pieces: &[Piece<'_>]) -> Vec<Vec<f32>> {
        let inputs = self.inputs(pieces);
        self.run(&inputs, |model, step| model.forward(step));
        self.logits(inputs.num_wanted)
    }

    /// Lays out a step over `pieces`, whose states count as advanced then.
    pub(super) fn inputs(&mut self, pieces: &[Piece<'_>]) -> Inputs<B> {
        let page_size = self.sizes.page_size;
        let (mut ids, mut positions, mut out_slots) = (Vec::new(), Vec::new(), Vec::new());
        let (mut indptr, mut kv_lens, mut page_table) = (vec![0], Vec::new(), Vec::new());
        let mut wanted = Vec::new();
        for piece in pieces {
            for (offset, &token) in piece.tokens.iter().enumerate() {
                let position = piece.start + offset;
                let page = self.page(piece.seq, position / page_size);
                if piece.all_rows || offset + 1 == piece.tokens.len() {
                    wanted.push(ids.len());
                }
                ids.push(token as usize);
                positions.push(position);
                out_slots.push(page * page_size + position % page_size);
            }
            indptr.push(ids.len());
            kv_lens.push(piece.start + piece.tokens.len());
            page_table.extend((0..self.pages_per_seq()).map(|index| self.page(piece.seq, index)));
        }
        let batch = BatchView {
            num_tokens: ids.len(),
            num_seqs: pieces.len(),
            token_ids: self.upload(&ids),
            positions: self.upload(&positions),
            q_indptr: self.upload(&indptr),
            kv_lens: self.upload(&kv_lens),
            page_table: self.upload(&page_table),
            page_table_stride: self.pages_per_seq(),
            out_slots: self.upload(&out_slots),
        };
        Inputs {
            batch,
            logit_rows: self.upload(&wanted),
            num_wanted: wanted.len(),
            state_rows: self.state_rows(pieces),
        }
    }

    /// Enqueues what `work` does with the step.
    pub(super) fn run(
        &mut self,
        inputs: &Inputs<B>,
        work: impl FnOnce(&mut dyn Model<B>, &Step<'_, B>),
    ) {
        let states = StepStates {
            views: &self.states,
            rows: &inputs.state_rows,
        };
        let step = Step {
            batch: &inputs.batch,
            window_batch: None,
            kv: &self.kv,
            states: (!self.states.is_empty()).then_some(states),
            logit_rows: &inputs.logit_rows,
            num_logit_rows: inputs.num_wanted,
        };
        work(self.model.as_mut(), &step);
    }

    /// The first `count` rows of the model's logits.
    pub(super) fn logits(&self, count: usize) -> Vec<Vec<f32>> {
        let vocab = self.model.config().vocab_size;
        let logits = self.backend.read(self.model.logits()).wait().unwrap();
        let rows = logits.as_slice::<f32>().chunks(vocab).take(count);
        rows.map(<[f32]>::to_vec).collect()
    }
}
