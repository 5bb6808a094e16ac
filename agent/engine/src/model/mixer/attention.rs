//! Attention over pages of keys and values: grouped queries, with a norm over each query and key
//! head or a bias where the family has them, rotated by position.

use crate::model::config::Attention;
use crate::model::decoder::layer_cx::{LayerCx, Rows};
use crate::model::decoder::loader::Loader;
use crate::model::decoder::out_linear::OutLinear;
use crate::model::decoder::scratch::Scratch;
use crate::model::kv_pool_spec::{KvGroupSpec, LayerPlace};
use crate::model::load_error::LoadError;
use crate::weights::{LayerRole, Role};
use pd_compute::{
    AttnPaged, AttnValues, Backend, DeviceBuffer, Epilogue, KvScales, Linear, OpFeature, Packing,
    QkvPrep, Strided,
};

/// Attention of a layer on a device.
#[derive(Debug)]
pub(crate) struct AttentionLayer<B: Backend> {
    config: Attention,
    rotary_dim: usize,
    place: LayerPlace,
    /// Its pages are those of the window space.
    is_window: bool,
    /// Of a pool of E4M3.
    kv_scales: KvScales,
    /// The rows of q, k and v, and of the gates of q's heads.
    qkv: B::Weight,
    /// `F32 [qkv width]`.
    bias: Option<B::Buffer>,
    /// `F32 [head_dim]`.
    q_norm: Option<B::Buffer>,
    /// `F32 [head_dim]`.
    k_norm: Option<B::Buffer>,
    /// `F32 [num_heads]`.
    sinks: Option<B::Buffer>,
    o: OutLinear<B>,
}

pub(super) fn scratch(config: &Attention) -> Scratch {
    Scratch {
        projected: config.row_width(),
        mixed: config.q_width(),
        ..Scratch::default()
    }
}

pub(super) fn needs(config: &Attention) -> Vec<OpFeature> {
    let window = config.window.map(|_| OpFeature::AttnWindow);
    let gate = [OpFeature::AttnGate, OpFeature::StridedQkv];
    let gate = gate.into_iter().filter(|_| config.gated);
    let others = [
        (config.out_norm, OpFeature::NormAdd),
        (config.o_bias, OpFeature::LinearBias),
        (config.sinks, OpFeature::AttnSinks),
    ];
    let others = others.into_iter().filter(|(is_used, _)| *is_used);
    let others = others.map(|(_, feature)| feature);
    window.into_iter().chain(gate).chain(others).collect()
}

pub(super) fn kv_group(config: &Attention) -> KvGroupSpec {
    KvGroupSpec {
        name: match config.window {
            None => "full",
            Some(_) => "sliding_window",
        },
        layers: Vec::new(),
        tensors: 2,
        total_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        window: config.window,
    }
}

// === impl AttentionLayer ===

impl<B: Backend> AttentionLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &Attention,
    ) -> Result<Self, LoadError> {
        let Attention {
            num_heads,
            num_kv_heads,
            head_dim,
            qk_norm,
            qkv_bias,
            o_bias,
            sinks,
            out_norm,
            ..
        } = *config;
        let hidden = loader.hidden_size();
        let role = |role| Role::Layer(layer, role);
        let (q_width, kv_width) = (config.q_width(), num_kv_heads * head_dim);
        let (q, gate) = if config.gated {
            let (q, gate) = loader.gated(role(LayerRole::Q), (num_heads, head_dim))?;
            (q, Some(gate))
        } else {
            let q = loader.rotated(role(LayerRole::Q), (num_heads, head_dim))?;
            (q, None)
        };
        let k = loader.rotated(role(LayerRole::K), (num_kv_heads, head_dim))?;
        let v = loader.matrix(role(LayerRole::V), kv_width, hidden)?;
        let qkv: Vec<_> = [q, k, v].into_iter().chain(gate).collect();
        let o = loader.matrix(role(LayerRole::O), hidden, q_width)?;
        let biases = [
            (role(LayerRole::QBias), q_width),
            (role(LayerRole::KBias), kv_width),
            (role(LayerRole::VBias), kv_width),
        ];
        let mut head_norm = |kind| -> Result<Option<B::Buffer>, LoadError> {
            let norm = qk_norm.then(|| loader.norm(role(kind), head_dim));
            norm.transpose()
        };
        let (q_norm, k_norm) = (head_norm(LayerRole::QNorm)?, head_norm(LayerRole::KNorm)?);
        let sinks = sinks.then(|| loader.vector(role(LayerRole::Sinks), num_heads));
        let place = loader.pool().pages_of(layer);
        let o_bias = o_bias.then(|| role(LayerRole::OBias));
        let out_norm = out_norm.then(|| role(LayerRole::MixerOutNorm));
        Ok(Self {
            config: *config,
            rotary_dim: loader.rotary_dim(config.rope),
            place,
            is_window: loader.pool().groups[place.group].window.is_some(),
            kv_scales: loader.kv_scales(layer)?,
            qkv: loader.pack(&qkv, Packing::JOINED)?,
            bias: qkv_bias.then(|| loader.joined(&biases)).transpose()?,
            q_norm,
            k_norm,
            sinks: sinks.transpose()?,
            o: OutLinear::load(loader, o, o_bias, out_norm)?,
        })
    }

    pub(super) fn width(&self) -> usize {
        self.config.q_width()
    }

    /// Norm, q, k and v; k and v go to the pool, q stays in the workspace.
    pub(super) fn write(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer) {
        let (space, batch) = (cx.space, cx.step.batch_in(self.is_window));
        let rows = batch.num_tokens;
        let qkv = Linear {
            x: &space.normed,
            weight: &self.qkv,
            bias: None,
            epilogue: Epilogue::Store,
            out: &space.projected,
            rows,
        };
        cx.backend.norm_linear(cx.norm(&space.x, norm, rows), qkv);
        let kv = &cx.step.kv[self.place.group];
        cx.backend.qkv_prep(QkvPrep {
            qkv: &space.projected,
            row_stride: self.config.row_width(),
            bias: self.bias.as_ref(),
            q_norm: self.q_norm.as_ref(),
            k_norm: self.k_norm.as_ref(),
            eps: cx.eps,
            rope: &space.ropes[self.config.rope],
            rotary_dim: self.rotary_dim,
            num_q_heads: self.config.num_heads,
            batch,
            kv,
            kv_scales: self.kv_scales,
            layer: self.place.ordinal,
        });
    }

    pub(super) fn mix(&self, cx: &LayerCx<'_, B>) {
        let projected = &cx.space.projected;
        let row_stride = self.config.row_width();
        let gates = projected.slice(self.config.qkv_width()..projected.len());
        let kv = &cx.step.kv[self.place.group];
        cx.backend.attn_paged(AttnPaged {
            q: projected,
            q_row_stride: row_stride,
            num_q_heads: self.config.num_heads,
            scale: self.config.scale,
            batch: cx.step.batch_in(self.is_window),
            kv,
            kv_scales: self.kv_scales,
            layer: self.place.ordinal,
            window: self.config.window,
            sinks: self.sinks.as_ref(),
            softcap: None,
            values: AttnValues::Own,
            gate: self.config.gated.then_some(Strided {
                values: &gates,
                row_stride,
            }),
            out: &cx.space.mixed,
        });
    }

    pub(super) fn project(&self, cx: &LayerCx<'_, B>, rows: &Rows<'_, B>) {
        self.o.add(cx, rows.mixed, rows);
    }
}
