//! A draft layer (multi-token prediction): a layer over entries, of which number i is made of token i + 1 and the
//! model's state of token i after the last norm. What becomes of entry i, after a norm of the draft layer's own, gives
//! the draft of token i + 2 by the model's head, and takes the state's place in the entry after it where that token is
//! itself a draft. The entry of token i has the place of that token: its position, page and slot.
//!
//! Source: DeepSeek-V3 technical report, 2.2; docs/decisions/0090.

use super::{Decoder, Layer};
use crate::model::config::LayerConfig;
use crate::model::decoder::layer_cx::Rows;
use crate::model::decoder::loader::Loader;
use crate::model::load_error::LoadError;
use crate::model::step::Step;
use crate::weights::{DraftRole, Role};
use pd_compute::{Backend, Embed, Epilogue, Linear};

/// A draft layer on a device. T = largest number of tokens in a step, R = largest number of rows with logits. Norm
/// weights are `F32 [hidden]`.
#[derive(Debug)]
pub(super) struct DraftLayer<B: Backend> {
    embedding_norm: B::Buffer,
    hidden_norm: B::Buffer,
    /// The halves of one matrix: of a token's embedding, and of the state before it.
    projections: [B::Weight; 2],
    layer: Layer<B>,
    output_norm: B::Buffer,
    /// `[T][hidden]`: the states of a step's rows, or those that its drafts follow.
    pub(super) states: B::Buffer,
    /// `[2R][hidden]`: [`crate::model::Model::draft_states`].
    pub(super) kept: B::Buffer,
    /// `[R][hidden]`: the same of the last step of drafts.
    chains: B::Buffer,
}

// === impl DraftLayer ===

impl<B: Backend> DraftLayer<B> {
    pub(super) fn load(loader: &mut Loader<'_, B>, layer: &LayerConfig) -> Result<Self, LoadError> {
        let (backend, limits, hidden) = (loader.backend(), loader.limits(), loader.hidden_size());
        let index = loader.config().layers.len();
        let projections = loader.halves(Role::Draft(DraftRole::Projection))?;
        for (half, epilogue) in projections.iter().zip(EPILOGUES) {
            loader.reserve(half, epilogue)?;
        }
        let mut norm = |role| loader.norm(Role::Draft(role), hidden);
        let [embedding_norm, hidden_norm, output_norm] = [
            norm(DraftRole::EmbeddingNorm)?,
            norm(DraftRole::HiddenNorm)?,
            norm(DraftRole::OutputNorm)?,
        ];
        let rows = |name, rows| backend.alloc(name, backend.activation_dtype(), rows * hidden);
        Ok(Self {
            embedding_norm,
            hidden_norm,
            projections,
            layer: Layer::load(loader, index, layer)?,
            output_norm,
            states: rows("states of a step", limits.max_tokens)?,
            kept: rows("states of drafts", 2 * limits.max_logit_rows)?,
            chains: rows("states of chains", limits.max_logit_rows)?,
        })
    }
}

/// Of the products of embeddings and of states.
const EPILOGUES: [Epilogue; 2] = [Epilogue::Store, Epilogue::AddResidual];

// === impl Decoder ===

impl<B: Backend> Decoder<B> {
    /// # Panics
    /// When the model has no draft layer.
    pub(super) fn draft(&self) -> &DraftLayer<B> {
        let draft = self.draft.as_ref();
        draft.expect("steps of drafts are for models that were loaded with a draft layer")
    }

    /// The draft layer's entry of each row of the step.
    pub(super) fn write_entries(
        &self,
        draft: &DraftLayer<B>,
        step: &Step<'_, B>,
        next_tokens: &B::Buffer,
    ) {
        self.join(draft, next_tokens, step.batch.num_tokens);
        let cx = self.cx(step);
        let layer = &draft.layer;
        layer.mixer.write(&cx, &layer.mixer_norm);
        if step.num_logit_rows > 0 {
            layer.mixer.mix(&cx);
            let wanted = self.gather_wanted(step, layer);
            layer.finish(&cx, &wanted);
            self.norm_rows(&draft.output_norm, wanted.x, &draft.kept, wanted.count);
        }
    }

    pub(super) fn begin_chains(&self, draft: &DraftLayer<B>, rows: &B::Buffer, count: usize) {
        self.gather(&draft.kept, rows, &draft.chains, count);
        self.head(&draft.chains, count);
    }

    pub(super) fn continue_chains(
        &self,
        draft: &DraftLayer<B>,
        step: &Step<'_, B>,
        rows: &B::Buffer,
    ) {
        let (batch, space) = (step.batch, &self.workspace);
        let count = batch.num_tokens;
        self.gather(&draft.chains, rows, &draft.states, count);
        self.rope_tables(step);
        self.join(draft, &batch.token_ids, count);
        let cx = self.cx(step);
        let layer = &draft.layer;
        layer.mixer.write(&cx, &layer.mixer_norm);
        layer.mixer.mix(&cx);
        let all = Rows {
            x: &space.x,
            mixed: &space.mixed,
            count,
        };
        layer.finish(&cx, &all);
        self.norm_rows(&draft.output_norm, &space.x, &draft.chains, count);
        self.head(&draft.chains, count);
    }

    /// The residual stream's first values: products of the normed embeddings of `tokens` and the normed states.
    fn join(&self, draft: &DraftLayer<B>, tokens: &B::Buffer, rows: usize) {
        let (backend, space) = (&self.backend, &self.workspace);
        backend.embed(Embed {
            table: &self.embedding,
            token_ids: tokens,
            out: &space.x,
            scale: self.embed_scale,
            rows,
        });
        let parts = [
            (&space.x, &draft.embedding_norm),
            (&draft.states, &draft.hidden_norm),
        ];
        for (((x, norm), weight), epilogue) in
            parts.into_iter().zip(&draft.projections).zip(EPILOGUES)
        {
            self.norm_rows(norm, x, &space.normed, rows);
            backend.linear(Linear {
                x: &space.normed,
                weight,
                bias: None,
                epilogue,
                out: &space.x,
                rows,
            });
        }
    }
}
