//! The dense decoder of llama and qwen3: per layer, attention and a gated feed-forward, each after
//! a norm and added to the residual stream. A [`DenseFamily`] holds the differences.
//!
//! A step enqueues some ten ops per layer and allocates nothing. Rows without wanted logits stop
//! after the last layer's attention (after its keys and values where a step wants no logits at all).

mod loader;
mod workspace;

use super::{KvPoolSpec, Model, ModelConfig, Step, StepLimits};
use pd_compute::{
    AttnPaged, Backend, Embed, Epilogue, GatherRows, Linear, QkvPrep, RmsNorm, RopeTable,
};
use workspace::Workspace;

/// The differences between families of dense decoders.
#[derive(Clone, Copy, Debug)]
pub(super) struct DenseFamily {
    /// Queries and keys are normed per head before they are rotated.
    pub(super) qk_norm: bool,
    /// GGUF files hold Q and K rows in the order of an interleaved rotation.
    pub(super) gguf_permutes_qk: bool,
}

/// A dense decoder on a device.
#[derive(Debug)]
pub(super) struct DenseDecoder<B: Backend> {
    backend: B,
    config: ModelConfig,
    limits: StepLimits,
    embedding: B::Embedding,
    layers: Vec<Layer<B>>,
    /// `F32 [hidden]`.
    output_norm: B::Buffer,
    lm_head: B::Weight,
    /// `F32 [head_dim / 2]`.
    inv_freq: B::Buffer,
    workspace: Workspace<B>,
}

#[derive(Debug)]
struct Layer<B: Backend> {
    attn_norm: B::Buffer,
    qkv: B::Weight,
    q_norm: Option<B::Buffer>,
    k_norm: Option<B::Buffer>,
    o: B::Weight,
    ffn_norm: B::Buffer,
    gate_up: B::Weight,
    down: B::Weight,
}

/// The residual stream and the attention output of the rows that a feed-forward works on.
struct Rows<'a, B: Backend> {
    x: &'a B::Buffer,
    attn: &'a B::Buffer,
    count: usize,
}

// === impl DenseDecoder ===

impl<B: Backend> Model<B> for DenseDecoder<B> {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn kv_pool_spec(&self) -> KvPoolSpec {
        KvPoolSpec::full_attention(&self.config)
    }

    fn limits(&self) -> StepLimits {
        self.limits
    }

    fn forward(&mut self, step: &Step<'_, B>) {
        self.check(step);
        let batch = step.batch;
        let rows = batch.num_tokens;
        let space = &self.workspace;
        self.backend.embed(Embed {
            table: &self.embedding,
            token_ids: &batch.token_ids,
            out: &space.x,
            rows,
        });
        self.backend.rope_table(RopeTable {
            positions: &batch.positions,
            inv_freq: &self.inv_freq,
            factor: 1.0,
            out: &space.rope,
            rows,
        });
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            self.write_kv(step, index, layer);
            if index < last {
                self.attend(step, index);
                let rows = Rows {
                    x: &space.x,
                    attn: &space.attn,
                    count: rows,
                };
                self.finish_layer(layer, &rows);
            } else if step.num_logit_rows > 0 {
                self.attend(step, index);
                self.finish_step(step, layer);
            }
        }
    }

    fn logits(&self) -> &B::Buffer {
        &self.workspace.logits
    }

    fn hidden(&self) -> &B::Buffer {
        &self.workspace.hidden
    }
}

impl<B: Backend> DenseDecoder<B> {
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

    /// Norm, q, k and v of a layer; k and v go to the pool, q stays in the workspace.
    fn write_kv(&self, step: &Step<'_, B>, index: usize, layer: &Layer<B>) {
        let (space, config) = (&self.workspace, &self.config);
        let rows = step.batch.num_tokens;
        let norm = RmsNorm {
            x: &space.x,
            add: None,
            weight: &layer.attn_norm,
            eps: config.rms_norm_eps,
            out: &space.normed,
            rows,
        };
        let qkv = Linear {
            x: &space.normed,
            weight: &layer.qkv,
            epilogue: Epilogue::Store,
            out: &space.qkv,
            rows,
        };
        self.backend.norm_linear(norm, qkv);
        self.backend.qkv_prep(QkvPrep {
            qkv: &space.qkv,
            bias: None,
            q_norm: layer.q_norm.as_ref(),
            k_norm: layer.k_norm.as_ref(),
            eps: config.rms_norm_eps,
            rope: &space.rope,
            rotary_dim: config.head_dim,
            num_q_heads: config.num_heads,
            batch: step.batch,
            kv: &step.kv[0],
            layer: index,
        });
    }

    fn attend(&self, step: &Step<'_, B>, index: usize) {
        let (space, config) = (&self.workspace, &self.config);
        self.backend.attn_paged(AttnPaged {
            q: &space.qkv,
            q_row_stride: config.qkv_width(),
            num_q_heads: config.num_heads,
            scale: self.workspace.attn_scale,
            batch: step.batch,
            kv: &step.kv[0],
            layer: index,
            out: &space.attn,
        });
    }

    /// Attention's output projection and the feed-forward, both added to `rows.x`.
    fn finish_layer(&self, layer: &Layer<B>, rows: &Rows<'_, B>) {
        let space = &self.workspace;
        let count = rows.count;
        self.backend.linear(Linear {
            x: rows.attn,
            weight: &layer.o,
            epilogue: Epilogue::AddResidual,
            out: rows.x,
            rows: count,
        });
        let norm = RmsNorm {
            x: rows.x,
            add: None,
            weight: &layer.ffn_norm,
            eps: self.config.rms_norm_eps,
            out: &space.normed,
            rows: count,
        };
        let gate_up = Linear {
            x: &space.normed,
            weight: &layer.gate_up,
            epilogue: Epilogue::SwiGlu,
            out: &space.gated,
            rows: count,
        };
        self.backend.norm_linear(norm, gate_up);
        self.backend.linear(Linear {
            x: &space.gated,
            weight: &layer.down,
            epilogue: Epilogue::AddResidual,
            out: rows.x,
            rows: count,
        });
    }

    /// The last layer, the final norm and the logits, for the wanted rows only.
    fn finish_step(&self, step: &Step<'_, B>, layer: &Layer<B>) {
        let (space, config) = (&self.workspace, &self.config);
        let count = step.num_logit_rows;
        let gather = |src: &B::Buffer, out: &B::Buffer, row_len: usize| {
            self.backend.gather_rows(GatherRows {
                src,
                indices: step.logit_rows,
                out,
                row_len,
                rows: count,
            });
        };
        gather(&space.x, &space.hidden, config.hidden_size);
        gather(&space.attn, &space.wanted_attn, config.q_width());
        let rows = Rows {
            x: &space.hidden,
            attn: &space.wanted_attn,
            count,
        };
        self.finish_layer(layer, &rows);
        self.backend.rms_norm(RmsNorm {
            x: &space.hidden,
            add: None,
            weight: &self.output_norm,
            eps: config.rms_norm_eps,
            out: &space.hidden,
            rows: count,
        });
        self.backend.linear(Linear {
            x: &space.hidden,
            weight: &self.lm_head,
            epilogue: Epilogue::Store,
            out: &space.logits,
            rows: count,
        });
    }
}
