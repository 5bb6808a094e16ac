//! The feed-forward of a layer: one of several kinds, which are matched here and nowhere else. A
//! kind has `load`, `scratch` and `forward`.

mod dense;
mod glu;
mod moe;

use super::config::Ffn;
use super::decoder::layer_cx::{LayerCx, Rows};
use super::decoder::loader::Loader;
use super::decoder::scratch::Scratch;
use super::load_error::LoadError;
use dense::DenseLayer;
use moe::MoeLayer;
use pd_compute::{Backend, OpFeature};

/// A feed-forward on a device.
#[derive(Debug)]
pub(super) enum FfnLayer<B: Backend> {
    Dense(DenseLayer<B>),
    Moe(MoeLayer<B>),
}

/// What a feed-forward needs of the workspace.
pub(super) fn scratch(config: &Ffn) -> Scratch {
    match config {
        Ffn::Dense(dense) => dense::scratch(dense),
        Ffn::Moe(moe) => moe::scratch(moe),
    }
}

/// What a feed-forward needs of a backend.
pub(super) fn needs(config: &Ffn) -> Vec<OpFeature> {
    match config {
        Ffn::Dense(dense) => dense::needs(dense),
        Ffn::Moe(moe) => moe::needs(moe),
    }
}

// === impl FfnLayer ===

impl<B: Backend> FfnLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &Ffn,
    ) -> Result<Self, LoadError> {
        match config {
            Ffn::Dense(config) => DenseLayer::load(loader, layer, config).map(Self::Dense),
            Ffn::Moe(config) => MoeLayer::load(loader, layer, config).map(Self::Moe),
        }
    }

    /// What the normed rows become, added to `rows.x`.
    pub(super) fn forward(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer, rows: &Rows<'_, B>) {
        match self {
            Self::Dense(dense) => dense.forward(cx, norm, rows),
            Self::Moe(moe) => moe.forward(cx, norm, rows),
        }
    }
}
