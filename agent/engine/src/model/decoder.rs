//! A decoder of any family: the embedding, layers of a mixer and a feed-forward, each after a norm
//! and added to the residual stream, and the head.
//!
//! A step enqueues some ten ops per layer and allocates nothing. Rows without wanted logits stop
//! in the last layer once their keys and values are written, or after its mixer where another row
//! of the step wants logits. In a model with a draft layer, which reads what becomes of every row, none stop.

mod draft;
pub(super) mod layer_cx;
pub(super) mod loader;
pub(super) mod out_linear;
pub(super) mod scratch;
pub(super) mod workspace;

use super::config::{LayerConfig, ModelConfig};
use super::ffn::{self, FfnLayer};
use super::files::ModelFiles;
use super::kv_pool_spec::KvPoolSpec;
use super::load_error::LoadError;
use super::mixer::{self, MixerLayer};
use super::network::Model;
use super::step::{Step, StepLimits};
use draft::DraftLayer;
use half::{bf16, f16};
use layer_cx::{LayerCx, Rows};
use loader::Loader;
use pd_compute::{
    Backend, DType, Embed, Epilogue, GatherRows, Linear, RmsNorm, RopeTable, WriteMode,
};
use scratch::Scratch;
use workspace::Workspace;

/// A decoder on a device.
#[derive(Debug)]
pub(super) struct Decoder<B: Backend> {
    backend: B,
    config: ModelConfig,
    kv: KvPoolSpec,
    limits: StepLimits,
    embedding: B::Embedding,
    embed_scale: Option<f32>,
    layers: Vec<Layer<B>>,
    draft: Option<DraftLayer<B>>,
    /// `F32 [hidden]`.
    output_norm: B::Buffer,
    lm_head: B::Weight,
    /// `F32 [rotary_dim / 2]` of each of the config's ropes.
    inv_freqs: Vec<B::Buffer>,
    workspace: Workspace<B>,
}

/// A layer on a device. Norm weights are `F32 [hidden]`.
#[derive(Debug)]
struct Layer<B: Backend> {
    mixer_norm: B::Buffer,
    mixer: MixerLayer<B>,
    ffn_norm: B::Buffer,
    ffn: FfnLayer<B>,
}

/// What the layers of a model need of the workspace, which they share.
fn scratch(config: &ModelConfig) -> Scratch {
    let layers = config.kept_layers();
    let scratches = layers.map(|layer| mixer::scratch(&layer.mixer).max(ffn::scratch(&layer.ffn)));
    scratches.fold(Scratch::default(), Scratch::max)
}

/// A number as tensors of the dtype have it.
fn rounded(number: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F32 | DType::U32 | DType::U8 | DType::F8E4M3 => number,
        DType::F16 => f16::from_f32(number).to_f32(),
        DType::BF16 => bf16::from_f32(number).to_f32(),
    }
}

// === impl Decoder ===

impl<B: Backend> Model<B> for Decoder<B> {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn kv_pool_spec(&self) -> KvPoolSpec {
        self.kv.clone()
    }

    fn limits(&self) -> StepLimits {
        self.limits
    }

    fn forward(&mut self, step: &Step<'_, B>) {
        self.check(step);
        self.embed(step);
        let space = &self.workspace;
        let all = Rows {
            x: &space.x,
            mixed: &space.mixed,
            count: step.batch.num_tokens,
        };
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let cx = self.cx(step);
            layer.mixer.write(&cx, &layer.mixer_norm);
            if index < last || self.draft.is_some() {
                layer.mixer.mix(&cx);
                layer.finish(&cx, &all);
            } else if step.num_logit_rows > 0 {
                layer.mixer.mix(&cx);
                layer.finish(&cx, &self.gather_wanted(step, layer));
                self.norm_wanted(step);
            }
        }
        if let Some(draft) = &self.draft {
            self.norm_all(step, &draft.states);
        }
        if step.num_logit_rows > 0 {
            self.head(&self.workspace.hidden, step.num_logit_rows);
        }
    }

    fn extend_drafts(&mut self, step: &Step<'_, B>, next_tokens: &B::Buffer) {
        self.check(step);
        self.write_entries(self.draft(), step, next_tokens);
    }

    fn first_drafts(&mut self, rows: &B::Buffer, count: usize) {
        self.begin_chains(self.draft(), rows, count);
    }

    fn more_drafts(&mut self, step: &Step<'_, B>, rows: &B::Buffer) {
        self.check(step);
        self.continue_chains(self.draft(), step, rows);
    }

    fn draft_states(&self) -> &B::Buffer {
        &self.draft().kept
    }

    fn logits(&self) -> &B::Buffer {
        &self.workspace.logits
    }

    fn hidden(&self) -> &B::Buffer {
        &self.workspace.hidden
    }
}

impl<B: Backend> Decoder<B> {
    /// Packs the weights of `files` and allocates activations for steps up to `limits`.
    pub(super) fn load(
        backend: &B,
        files: &ModelFiles,
        kv_dtype: DType,
        limits: StepLimits,
    ) -> Result<Self, LoadError> {
        let pool = KvPoolSpec::of(&files.config);
        let mut loader = Loader::new(backend, files, limits, (pool, kv_dtype));
        let model = Self::load_with(&mut loader)?;
        loader.finish();
        Ok(model)
    }

    pub(super) fn load_with(loader: &mut Loader<'_, B>) -> Result<Self, LoadError> {
        let (backend, config, limits) = (loader.backend(), loader.config(), loader.limits());
        let (embedding, lm_head) = loader.tables()?;
        let mut layers = Vec::with_capacity(config.layers.len());
        for (index, layer) in config.layers.iter().enumerate() {
            layers.push(Layer::load(loader, index, layer)?);
        }
        let draft = config
            .draft_layer
            .map(|layer| DraftLayer::load(loader, &layer))
            .transpose()?;
        Ok(Self {
            backend: backend.clone(),
            kv: loader.pool().clone(),
            limits,
            embedding,
            embed_scale: config
                .embed_scale
                .map(|scale| rounded(scale, backend.activation_dtype())),
            layers,
            draft,
            output_norm: loader.output_norm()?,
            lm_head,
            inv_freqs: loader.inv_freqs()?,
            workspace: Workspace::alloc(backend, config, limits, scratch(config))?,
            config: config.clone(),
        })
    }

    fn check(&self, step: &Step<'_, B>) {
        let limits = self.limits;
        assert!(
            step.batch.num_tokens <= limits.max_tokens
                && step.num_logit_rows <= limits.max_logit_rows,
            "a step of {} tokens and {} logit rows exceeds {limits:?}",
            step.batch.num_tokens,
            step.num_logit_rows
        );
    }

    fn cx<'a>(&'a self, step: &'a Step<'a, B>) -> LayerCx<'a, B> {
        LayerCx {
            backend: &self.backend,
            step,
            space: &self.workspace,
            eps: self.config.rms_norm_eps,
        }
    }

    /// The residual stream's first values, and the tables that layers rotate by.
    fn embed(&self, step: &Step<'_, B>) {
        let (space, batch) = (&self.workspace, step.batch);
        let rows = batch.num_tokens;
        self.backend.embed(Embed {
            table: &self.embedding,
            token_ids: &batch.token_ids,
            out: &space.x,
            scale: self.embed_scale,
            rows,
        });
        self.rope_tables(step);
    }

    /// The tables that layers rotate by.
    fn rope_tables(&self, step: &Step<'_, B>) {
        let (space, batch) = (&self.workspace, step.batch);
        let rows = batch.num_tokens;
        let tables = self.inv_freqs.iter().zip(&space.ropes);
        for (rope, (inv_freq, out)) in self.config.ropes.iter().zip(tables) {
            self.backend.rope_table(RopeTable {
                positions: &batch.positions,
                inv_freq,
                factor: rope.attention_factor(),
                out,
                rows,
            });
        }
    }

    /// The rows of the last layer whose logits are wanted.
    fn gather_wanted(&self, step: &Step<'_, B>, layer: &Layer<B>) -> Rows<'_, B> {
        let space = &self.workspace;
        let gather = |src: &B::Buffer, out: &B::Buffer, row_len: usize| {
            self.backend.gather_rows(GatherRows {
                src,
                indices: step.logit_rows,
                out,
                row_len,
                rows: step.num_logit_rows,
            });
        };
        gather(&space.x, &space.hidden, self.config.hidden_size);
        gather(&space.mixed, &space.wanted_mixed, layer.mixer.width());
        Rows {
            x: &space.hidden,
            mixed: &space.wanted_mixed,
            count: step.num_logit_rows,
        }
    }

    /// The final norm of the wanted rows, which are gathered.
    fn norm_wanted(&self, step: &Step<'_, B>) {
        let hidden = &self.workspace.hidden;
        self.norm_rows(&self.output_norm, hidden, hidden, step.num_logit_rows);
    }

    /// The final norm of all rows, to `states`, and the wanted ones of them.
    fn norm_all(&self, step: &Step<'_, B>, states: &B::Buffer) {
        let space = &self.workspace;
        self.norm_rows(&self.output_norm, &space.x, states, step.batch.num_tokens);
        if step.num_logit_rows > 0 {
            self.gather(states, step.logit_rows, &space.hidden, step.num_logit_rows);
        }
    }

    /// Rows of `hidden`.
    fn gather(&self, src: &B::Buffer, indices: &B::Buffer, out: &B::Buffer, rows: usize) {
        self.backend.gather_rows(GatherRows {
            src,
            indices,
            out,
            row_len: self.config.hidden_size,
            rows,
        });
    }

    fn norm_rows(&self, weight: &B::Buffer, x: &B::Buffer, out: &B::Buffer, rows: usize) {
        self.backend.rms_norm(RmsNorm {
            x,
            add: None,
            weight,
            eps: self.config.rms_norm_eps,
            out,
            into: WriteMode::Store,
            rows,
        });
    }

    /// The logits of normed rows.
    fn head(&self, hidden: &B::Buffer, rows: usize) {
        let space = &self.workspace;
        self.backend.linear(Linear {
            x: hidden,
            weight: &self.lm_head,
            bias: None,
            epilogue: self
                .config
                .final_softcap
                .map_or(Epilogue::Store, Epilogue::SoftCap),
            out: &space.logits,
            rows,
        });
    }
}

// === impl Layer ===

impl<B: Backend> Layer<B> {
    fn load(
        loader: &mut Loader<'_, B>,
        index: usize,
        config: &LayerConfig,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            mixer_norm: loader.input_norm(index)?,
            mixer: MixerLayer::load(loader, index, &config.mixer)?,
            ffn_norm: loader.ffn_norm(index)?,
            ffn: FfnLayer::load(loader, index, &config.ffn)?,
        })
    }

    /// The mixer's output projection and the feed-forward, both added to `rows.x`.
    fn finish(&self, cx: &LayerCx<'_, B>, rows: &Rows<'_, B>) {
        self.mixer.project(cx, rows);
        self.ffn.forward(cx, &self.ffn_norm, rows);
    }
}
