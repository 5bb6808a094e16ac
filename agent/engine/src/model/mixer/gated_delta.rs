//! A recurrent layer: one linear of q, k, v, the norm's gates and those of the rule, a short convolution over
//! q, k and v, the gated delta rule, and a norm with a gate per head.

use crate::model::config::{GatedDelta, narrow};
use crate::model::decoder::layer_cx::{LayerCx, Rows};
use crate::model::decoder::loader::Loader;
use crate::model::decoder::scratch::Scratch;
use crate::model::kv_pool_spec::{LayerPlace, StateDtype, StateSpec, StateTensorSpec};
use crate::model::load_error::LoadError;
use crate::model::step::StepStates;
use crate::weights::{LayerRole, Matrix, Role};
use pd_compute::{
    Backend, CausalConv, DeviceBuffer, Epilogue, GatedNorm, GdnScan, Linear, OpFeature, Packing,
    SHORT_DELTA_KEYS_MAX, Strided,
};

const CONV: &str = "conv";
const RECURRENT: &str = "recurrent";

/// A gated delta layer on a device.
#[derive(Debug)]
pub(crate) struct GatedDeltaLayer<B: Backend> {
    config: GatedDelta,
    conv_state: LayerPlace,
    recurrent_state: LayerPlace,
    /// The rows of q, k, v, z, b and a.
    qkvzba: B::Weight,
    /// `F32 [taps][qkv width]`.
    conv: B::Buffer,
    /// `F32 [num_v_heads]`.
    decay: B::Buffer,
    /// `F32 [num_v_heads]`.
    dt_bias: B::Buffer,
    /// `F32 [v_dim]`.
    norm: B::Buffer,
    out: B::Weight,
}

pub(super) fn scratch(config: &GatedDelta) -> Scratch {
    Scratch {
        projected: row_width(config),
        convolved: config.qkv_width(),
        mixed: config.v_width(),
        ..Scratch::default()
    }
}

pub(super) fn needs(config: &GatedDelta) -> Vec<OpFeature> {
    let has_long_keys = config.k_dim > SHORT_DELTA_KEYS_MAX;
    let long_keys = has_long_keys.then_some(OpFeature::LongDeltaKeys);
    std::iter::once(OpFeature::GatedDelta)
        .chain(long_keys)
        .collect()
}

/// The last inputs of the convolution, and S of each v head.
pub(super) fn states(config: &GatedDelta) -> Vec<StateSpec> {
    let GatedDelta {
        num_k_heads,
        num_v_heads,
        k_dim,
        v_dim,
        taps,
    } = *config;
    let tensor = |name, dim, elements| StateTensorSpec {
        name,
        dim,
        elements,
    };
    let conv = vec![
        tensor("q", num_k_heads, k_dim * (taps - 1)),
        tensor("k", num_k_heads, k_dim * (taps - 1)),
        tensor("v", num_v_heads, v_dim * (taps - 1)),
    ];
    let recurrent = vec![tensor("s", num_v_heads, k_dim * v_dim)];
    let state = |name, dtype, tensors| StateSpec {
        name,
        dtype,
        layers: Vec::new(),
        tensors,
    };
    vec![
        state(CONV, StateDtype::Activations, conv),
        state(RECURRENT, StateDtype::F32, recurrent),
    ]
}

/// Of q, k, v, z, b and a.
fn row_width(config: &GatedDelta) -> usize {
    config.qkv_width() + config.v_width() + 2 * config.num_v_heads
}

/// The rows of q, k, v, z, b and a, in this order.
fn projection<'a, B: Backend>(
    loader: &mut Loader<'a, B>,
    layer: usize,
    config: &GatedDelta,
) -> Result<Vec<Matrix<'a>>, LoadError> {
    let (hidden, heads) = (loader.hidden_size(), config.num_v_heads);
    let (qkv_width, v_width) = (config.qkv_width(), config.v_width());
    let role = |role| Role::Layer(layer, role);
    if !loader.has_name(role(LayerRole::DeltaQkvz)) {
        return Ok(vec![
            loader.matrix(role(LayerRole::DeltaQkv), qkv_width, hidden)?,
            loader.matrix(role(LayerRole::DeltaZ), v_width, hidden)?,
            loader.matrix(role(LayerRole::DeltaB), heads, hidden)?,
            loader.matrix(role(LayerRole::DeltaA), heads, hidden)?,
        ]);
    }
    let qkvz = loader.matrix(role(LayerRole::DeltaQkvz), qkv_width + v_width, hidden)?;
    let ba = loader.matrix(role(LayerRole::DeltaBa), 2 * heads, hidden)?;
    let (groups, of_group) = (config.num_k_heads, heads / config.num_k_heads);
    let (k, v) = (config.k_dim, of_group * config.v_dim);
    Ok(vec![
        qkvz.rows(ungrouped(groups, [k, k, v, v])),
        ba.rows(ungrouped(groups, [of_group; 2])),
    ])
}

/// Where the rows of each part of all groups lie, part after part, in rows that are ordered by group.
fn ungrouped<const N: usize>(groups: usize, lens: [usize; N]) -> impl Iterator<Item = usize> {
    let group_len: usize = lens.iter().sum();
    let mut start = 0;
    lens.into_iter().flat_map(move |len| {
        let first = start;
        start += len;
        (0..groups).flat_map(move |group| {
            let at = group * group_len + first;
            at..at + len
        })
    })
}

// === impl GatedDeltaLayer ===

impl<B: Backend> GatedDeltaLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &GatedDelta,
    ) -> Result<Self, LoadError> {
        let (hidden, heads) = (loader.hidden_size(), config.num_v_heads);
        let (qkv_width, v_width) = (config.qkv_width(), config.v_width());
        let role = |role| Role::Layer(layer, role);
        let parts = projection(loader, layer, config)?;
        let out = loader.matrix(role(LayerRole::DeltaOut), hidden, v_width)?;
        // In f64, so that rounding does not depend on a library's version.
        let decay = |log: f32| narrow(-f64::from(log).exp());
        Ok(Self {
            config: *config,
            conv_state: loader.pool().state_of(layer, CONV),
            recurrent_state: loader.pool().state_of(layer, RECURRENT),
            qkvzba: loader.pack(&parts, Packing::JOINED)?,
            conv: loader.transposed(role(LayerRole::Conv), qkv_width, config.taps)?,
            decay: loader.mapped(role(LayerRole::ALog), heads, decay)?,
            dt_bias: loader.vector(role(LayerRole::DtBias), heads)?,
            norm: loader.vector(role(LayerRole::DeltaNorm), config.v_dim)?,
            out: loader.pack(&[out], Packing::SUMMED)?,
        })
    }

    pub(super) fn width(&self) -> usize {
        self.config.v_width()
    }

    /// All but the norm: states are those after the step's last rows, and what the rule makes is in `mixed`.
    pub(super) fn write(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer) {
        let (space, batch) = (cx.space, cx.step.batch);
        let rows = batch.num_tokens;
        let projection = Linear {
            x: &space.normed,
            weight: &self.qkvzba,
            bias: None,
            epilogue: Epilogue::Store,
            out: &space.projected,
            rows,
        };
        cx.backend
            .norm_linear(cx.norm(&space.x, norm, rows), projection);
        let states = cx.step.states.as_ref();
        let states = states.expect("a step of a model with recurrent layers has states");
        let StepStates {
            views,
            rows: state_rows,
        } = *states;
        cx.backend.causal_conv(CausalConv {
            x: self.columns(&space.projected),
            weight: &self.conv,
            taps: self.config.taps,
            batch,
            states: &views[self.conv_state.group],
            state_rows,
            layer: self.conv_state.ordinal,
            out: &space.convolved,
        });
        let b = columns_from(&space.projected, self.config.qkv_width() + self.width());
        let a = columns_from(&b, self.config.num_v_heads);
        cx.backend.gdn_scan(GdnScan {
            qkv: &space.convolved,
            num_k_heads: self.config.num_k_heads,
            k_dim: self.config.k_dim,
            a: self.columns(&a),
            b: self.columns(&b),
            decay: &self.decay,
            dt_bias: &self.dt_bias,
            batch,
            states: &views[self.recurrent_state.group],
            state_rows,
            layer: self.recurrent_state.ordinal,
            out: &space.mixed,
        });
    }

    pub(super) fn mix(&self, cx: &LayerCx<'_, B>) {
        let z = columns_from(&cx.space.projected, self.config.qkv_width());
        cx.backend.gated_norm(GatedNorm {
            x: &cx.space.mixed,
            z: self.columns(&z),
            weight: &self.norm,
            eps: cx.eps,
            num_heads: self.config.num_v_heads,
            rows: cx.step.batch.num_tokens,
        });
    }

    pub(super) fn project(&self, cx: &LayerCx<'_, B>, rows: &Rows<'_, B>) {
        cx.backend.linear(Linear {
            x: rows.mixed,
            weight: &self.out,
            bias: None,
            epilogue: Epilogue::AddResidual,
            out: rows.x,
            rows: rows.count,
        });
    }

    fn columns<'a>(&self, values: &'a B::Buffer) -> Strided<'a, B> {
        Strided {
            values,
            row_stride: row_width(&self.config),
        }
    }
}

/// A buffer of rows without its first `columns` elements.
fn columns_from<T: DeviceBuffer>(buffer: &T, columns: usize) -> T {
    buffer.slice(columns..buffer.len())
}
