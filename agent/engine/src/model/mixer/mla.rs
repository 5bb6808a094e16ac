//! Multi-head latent attention, absorbed: the product that makes a head's keys of latents is done to its query
//! instead, and the one that makes its values to what attention adds up. So attention reads latents alone, at every
//! step in the same order.

use crate::model::config::Mla;
use crate::model::decoder::layer_cx::{LayerCx, Rows};
use crate::model::decoder::loader::Loader;
use crate::model::decoder::out_linear::OutLinear;
use crate::model::decoder::scratch::Scratch;
use crate::model::decoder::workspace::LatentSpace;
use crate::model::kv_pool_spec::{KvGroupSpec, LayerPlace};
use crate::model::load_error::LoadError;
use crate::weights::{LayerRole, Matrix, Role};
use pd_compute::{
    AttnPaged, AttnValues, Backend, Epilogue, HeadLinear, HeadRows, KvScales, Linear, MlaPrep,
    OpFeature, Packing, RmsNorm, WriteMode,
};

/// Of the norms within this kind of attention; the configuration has that of the others.
const NORM_EPS: f32 = 1e-6;

/// Latent attention of a layer on a device.
#[derive(Debug)]
pub(crate) struct MlaLayer<B: Backend> {
    config: Mla,
    place: LayerPlace,
    /// Of latents.
    kv_scales: KvScales,
    queries: Queries<B>,
    /// The rows of the latent and of its key.
    kv_a: B::Weight,
    /// `F32 [kv_lora_rank]`.
    kv_norm: B::Buffer,
    /// Of each head `[kv_lora_rank][nope_dim]`: what makes keys of latents, transposed.
    absorb: B::Weight,
    /// Of each head `[v_dim][kv_lora_rank]`.
    values: B::Weight,
    o: OutLinear<B>,
}

/// What makes queries.
#[derive(Debug)]
enum Queries<B: Backend> {
    Direct(B::Weight),
    /// By way of a narrow row, which is normed.
    Narrow {
        a: B::Weight,
        /// `F32 [q_lora_rank]`.
        norm: B::Buffer,
        b: B::Weight,
    },
}

pub(super) fn scratch(config: &Mla) -> Scratch {
    let narrow = config.q_lora_rank.unwrap_or(0);
    Scratch {
        projected: config.q_width(),
        mixed: config.v_width(),
        latent: config.key_dim(),
        absorbed: config.num_heads * config.key_dim(),
        attended: narrow.max(config.num_heads * config.kv_lora_rank),
        ..Scratch::default()
    }
}

pub(super) fn needs() -> Vec<OpFeature> {
    vec![OpFeature::LatentAttention]
}

/// One head, whose only tensor is both keys and values.
pub(super) fn kv_group(config: &Mla) -> KvGroupSpec {
    KvGroupSpec {
        name: "mla",
        layers: Vec::new(),
        tensors: 1,
        total_heads: 1,
        head_dim: config.key_dim(),
        window: None,
    }
}

fn store<'a, B: Backend>(
    x: &'a B::Buffer,
    weight: &'a B::Weight,
    out: &'a B::Buffer,
    rows: usize,
) -> Linear<'a, B> {
    Linear {
        x,
        weight,
        bias: None,
        epilogue: Epilogue::Store,
        out,
        rows,
    }
}

/// The rows of all query heads, in the order of a rotation by halves.
fn by_halves<'a>(config: &Mla, q: Matrix<'a>) -> Matrix<'a> {
    if config.rope_interleaved {
        q.unpermuted(config.num_heads, config.nope_dim)
    } else {
        q
    }
}

// === impl Queries ===

impl<B: Backend> Queries<B> {
    fn load(loader: &mut Loader<'_, B>, layer: usize, config: &Mla) -> Result<Self, LoadError> {
        let (hidden, width) = (loader.hidden_size(), config.q_width());
        let role = |role| Role::Layer(layer, role);
        let Some(rank) = config.q_lora_rank else {
            let q = loader.matrix(role(LayerRole::Q), width, hidden)?;
            let q = by_halves(config, q);
            return Ok(Self::Direct(loader.pack(&[q], Packing::JOINED)?));
        };
        let a = loader.matrix(role(LayerRole::QA), rank, hidden)?;
        let b = loader.matrix(role(LayerRole::QB), width, rank)?;
        let b = by_halves(config, b);
        Ok(Self::Narrow {
            a: loader.pack(&[a], Packing::JOINED)?,
            norm: loader.vector(role(LayerRole::QANorm), rank)?,
            b: loader.pack(&[b], Packing::JOINED)?,
        })
    }
}

// === impl MlaLayer ===

impl<B: Backend> MlaLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &Mla,
    ) -> Result<Self, LoadError> {
        let Mla {
            num_heads,
            kv_lora_rank: rank,
            nope_dim,
            v_dim,
            ..
        } = *config;
        let hidden = loader.hidden_size();
        let role = |role| Role::Layer(layer, role);
        let queries = Queries::load(loader, layer, config)?;
        let kv_a = loader.matrix(role(LayerRole::KvA), config.key_dim(), hidden)?;
        let kv_a = if config.rope_interleaved {
            kv_a.unpermuted(1, rank)
        } else {
            kv_a
        };
        // Of each head, the rows that make its keys and those that make its values.
        let head_rows = nope_dim + v_dim;
        let kv_b = loader.matrix(role(LayerRole::KvB), num_heads * head_rows, rank)?;
        let keys_of = |head| head * head_rows..head * head_rows + nope_dim;
        let values_of = |head| head * head_rows + nope_dim..(head + 1) * head_rows;
        let values: Vec<_> = (0..num_heads)
            .map(|head| kv_b.rows(values_of(head)))
            .collect();
        let absorb: Vec<_> = (0..num_heads)
            .map(|head| {
                let rows = kv_b.rows(keys_of(head)).expanded();
                rows.columns(0..nope_dim, 0..rank)
            })
            .collect();
        let o = loader.matrix(role(LayerRole::O), hidden, config.v_width())?;
        Ok(Self {
            config: *config,
            place: loader.pool().pages_of(layer),
            kv_scales: loader.kv_scales(layer)?,
            queries,
            kv_a: loader.pack(&[kv_a], Packing::JOINED)?,
            kv_norm: loader.vector(role(LayerRole::KvANorm), rank)?,
            absorb: loader.pack(&absorb, Packing::JOINED)?,
            values: loader.pack(&values, Packing::JOINED)?,
            o: OutLinear::load(loader, o, None, None)?,
        })
    }

    pub(super) fn width(&self) -> usize {
        self.config.v_width()
    }

    /// Norm, queries and latents; latents go to the pool, queries stay in the workspace.
    pub(super) fn write(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer) {
        let (space, batch) = (cx.space, cx.step.batch);
        let (latents, rows) = (latents(cx), batch.num_tokens);
        cx.backend.rms_norm(cx.norm(&space.x, norm, rows));
        let product = |x, weight, out| cx.backend.linear(store(x, weight, out, rows));
        product(&space.normed, &self.kv_a, &latents.latent);
        match &self.queries {
            Queries::Direct(q) => product(&space.normed, q, &space.projected),
            Queries::Narrow { a, norm, b } => {
                let narrow = &latents.attended;
                product(&space.normed, a, narrow);
                cx.backend.rms_norm(RmsNorm {
                    x: narrow,
                    add: None,
                    weight: norm,
                    eps: NORM_EPS,
                    out: narrow,
                    into: WriteMode::Store,
                    rows,
                });
                product(narrow, b, &space.projected);
            }
        }
        cx.backend.mla_prep(MlaPrep {
            q: &space.projected,
            num_heads: self.config.num_heads,
            nope_dim: self.config.nope_dim,
            latent: &latents.latent,
            norm: &self.kv_norm,
            eps: NORM_EPS,
            rope: &space.ropes[self.config.rope],
            batch,
            kv: &cx.step.kv[self.place.group],
            kv_scales: self.kv_scales,
            layer: self.place.ordinal,
            q_out: &latents.absorbed,
        });
    }

    pub(super) fn mix(&self, cx: &LayerCx<'_, B>) {
        let (space, latents) = (cx.space, latents(cx));
        let Mla {
            num_heads: heads,
            kv_lora_rank: rank,
            v_dim,
            scale,
            ..
        } = self.config;
        let rows = cx.step.batch.num_tokens;
        let heads_of = |values, head_stride| HeadRows {
            values,
            head_stride,
        };
        let (q_dim, key_dim) = (self.config.q_dim(), self.config.key_dim());
        cx.backend.head_linear(HeadLinear {
            x: heads_of(&space.projected, q_dim),
            weight: &self.absorb,
            heads,
            out: heads_of(&latents.absorbed, key_dim),
            rows,
        });
        cx.backend.attn_paged(AttnPaged {
            q: &latents.absorbed,
            q_row_stride: heads * key_dim,
            num_q_heads: heads,
            scale,
            batch: cx.step.batch,
            kv: &cx.step.kv[self.place.group],
            kv_scales: self.kv_scales,
            layer: self.place.ordinal,
            window: None,
            sinks: None,
            softcap: None,
            values: AttnValues::OfKey(rank),
            gate: None,
            out: &latents.attended,
        });
        cx.backend.head_linear(HeadLinear {
            x: heads_of(&latents.attended, rank),
            weight: &self.values,
            heads,
            out: heads_of(&space.mixed, v_dim),
            rows,
        });
    }

    pub(super) fn project(&self, cx: &LayerCx<'_, B>, rows: &Rows<'_, B>) {
        self.o.add(cx, rows.mixed, rows);
    }
}

fn latents<'a, B: Backend>(cx: &LayerCx<'a, B>) -> &'a LatentSpace<B> {
    let latents = cx.space.latents.as_ref();
    latents.expect("a model with latent attention has memory for it")
}
