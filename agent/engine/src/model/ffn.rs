//! The feed-forward of a layer: one of several kinds, which are matched here and nowhere else. A
//! kind has `load`, `scratch` and `forward`.

mod dense;

use super::LoadError;
use super::config::Ffn;
use super::decoder::loader::Loader;
use super::decoder::workspace::Scratch;
use super::decoder::{LayerCx, Rows};
use dense::DenseLayer;
use pd_compute::{Backend, OpFeature};

/// A feed-forward on a device.
#[derive(Debug)]
pub(super) enum FfnLayer<B: Backend> {
    Dense(DenseLayer<B>),
}

/// What a feed-forward needs of the workspace.
pub(super) fn scratch(config: &Ffn) -> Scratch {
    match config {
        Ffn::Dense(dense) => dense::scratch(dense),
    }
}

/// What a feed-forward needs of a backend.
pub(super) fn needs(config: &Ffn) -> Vec<OpFeature> {
    match config {
        Ffn::Dense(_) => Vec::new(),
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
        }
    }

    /// What the normed rows become, added to `rows.x`.
    pub(super) fn forward(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer, rows: &Rows<'_, B>) {
        match self {
            Self::Dense(dense) => dense.forward(cx, norm, rows),
        }
    }
}
