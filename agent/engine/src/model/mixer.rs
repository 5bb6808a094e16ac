//! The mixer of a layer: one of several kinds, which are matched here and nowhere else. A kind has
//! `load`, `scratch` and the three parts of its work, between which a decoder may leave rows
//! behind: `write` is done for all rows, `project` only for those that go on.

mod attention;

use super::config::Mixer;
use super::decoder::loader::Loader;
use super::decoder::workspace::Scratch;
use super::decoder::{LayerCx, Rows};
use super::{KvGroupSpec, LoadError};
use attention::AttentionLayer;
use pd_compute::{Backend, OpFeature};

/// A mixer on a device.
#[derive(Debug)]
pub(super) enum MixerLayer<B: Backend> {
    Attention(AttentionLayer<B>),
}

/// What a mixer needs of the workspace.
pub(super) fn scratch(config: &Mixer) -> Scratch {
    match config {
        Mixer::Attention(attention) => attention::scratch(attention),
    }
}

/// What a mixer needs of a backend.
pub(super) fn needs(config: &Mixer) -> Vec<OpFeature> {
    match config {
        Mixer::Attention(attention) => attention::needs(attention),
    }
}

/// The group of layers whose keys and values lie beside those of this mixer.
pub(super) fn kv_group(config: &Mixer) -> KvGroupSpec {
    match config {
        Mixer::Attention(attention) => attention::kv_group(attention),
    }
}

// === impl MixerLayer ===

impl<B: Backend> MixerLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &Mixer,
    ) -> Result<Self, LoadError> {
        match config {
            Mixer::Attention(config) => {
                AttentionLayer::load(loader, layer, config).map(Self::Attention)
            }
        }
    }

    /// Elements per row of what the mixer makes.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.width(),
        }
    }

    /// Norms the residual stream, and writes to the pool what later tokens need of the step's rows.
    pub(super) fn write(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer) {
        match self {
            Self::Attention(attention) => attention.write(cx, norm),
        }
    }

    /// What every row takes from its sequence, to the workspace's `mixed`.
    pub(super) fn mix(&self, cx: &LayerCx<'_, B>) {
        match self {
            Self::Attention(attention) => attention.mix(cx),
        }
    }

    /// The output projection of `rows.mixed`, added to `rows.x`.
    pub(super) fn project(&self, cx: &LayerCx<'_, B>, rows: &Rows<'_, B>) {
        match self {
            Self::Attention(attention) => attention.project(cx, rows),
        }
    }
}
