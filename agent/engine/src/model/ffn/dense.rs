//! A gated feed-forward that every token goes through.

use crate::model::config::DenseFfn;
use crate::model::decoder::layer_cx::{LayerCx, Rows};
use crate::model::decoder::loader::Loader;
use crate::model::decoder::out_linear::OutLinear;
use crate::model::decoder::scratch::Scratch;
use crate::model::ffn::glu;
use crate::model::load_error::LoadError;
use crate::weights::{LayerRole, Role};
use pd_compute::{Backend, Epilogue, Linear, OpFeature, Packing};

/// A dense feed-forward of a layer on a device.
#[derive(Debug)]
pub(crate) struct DenseLayer<B: Backend> {
    /// The rows of gate and up, in turns.
    gate_up: B::Weight,
    glu: Epilogue,
    down: OutLinear<B>,
}

pub(super) fn scratch(config: &DenseFfn) -> Scratch {
    Scratch {
        gated: config.width,
        ..Scratch::default()
    }
}

pub(super) fn needs(config: &DenseFfn) -> Vec<OpFeature> {
    let norm = config.out_norm.then_some(OpFeature::NormAdd);
    glu::needs(config.glu).into_iter().chain(norm).collect()
}

// === impl DenseLayer ===

impl<B: Backend> DenseLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &DenseFfn,
    ) -> Result<Self, LoadError> {
        let (hidden, width) = (loader.hidden_size(), config.width);
        let role = |role| Role::Layer(layer, role);
        let gate_up = [
            loader.matrix(role(LayerRole::Gate), width, hidden)?,
            loader.matrix(role(LayerRole::Up), width, hidden)?,
        ];
        let down = loader.matrix(role(LayerRole::Down), hidden, width)?;
        let gate_up = loader.pack(&gate_up, Packing::Interleaved)?;
        let glu = glu::epilogue(config.glu);
        loader.reserve(&gate_up, glu)?;
        let norm = config.out_norm.then(|| role(LayerRole::FfnOutNorm));
        Ok(Self {
            gate_up,
            glu,
            down: OutLinear::load(loader, down, None, norm)?,
        })
    }

    pub(super) fn forward(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer, rows: &Rows<'_, B>) {
        let space = cx.space;
        let gate_up = Linear {
            x: &space.normed,
            weight: &self.gate_up,
            bias: None,
            epilogue: self.glu,
            out: &space.gated,
            rows: rows.count,
        };
        cx.backend
            .norm_linear(cx.norm(rows.x, norm, rows.count), gate_up);
        self.down.add(cx, &space.gated, rows);
    }
}
