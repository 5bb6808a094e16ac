//! The mixer of a layer: one of several kinds, which are matched here and nowhere else. A kind has
//! `load`, `scratch` and the three parts of its work, between which a decoder may leave rows
//! behind: `write` is done for all rows, `project` only for those that go on.

mod attention;
mod gated_delta;
mod mla;

use super::config::Mixer;
use super::decoder::layer_cx::{LayerCx, Rows};
use super::decoder::loader::Loader;
use super::decoder::scratch::Scratch;
use super::kv_pool_spec::{KvGroupSpec, StateSpec};
use super::load_error::LoadError;
use attention::AttentionLayer;
use gated_delta::GatedDeltaLayer;
use mla::MlaLayer;
use pd_compute::{Backend, OpFeature};

/// A mixer on a device.
#[derive(Debug)]
pub(super) enum MixerLayer<B: Backend> {
    Attention(AttentionLayer<B>),
    Mla(MlaLayer<B>),
    GatedDelta(GatedDeltaLayer<B>),
}

/// What a layer keeps of a sequence in the pool. Which layers are stored alike is not said here.
pub(super) enum LayerStorage {
    Pages(KvGroupSpec),
    States(Vec<StateSpec>),
}

/// What a mixer needs of the workspace.
pub(super) fn scratch(config: &Mixer) -> Scratch {
    match config {
        Mixer::Attention(attention) => attention::scratch(attention),
        Mixer::Mla(mla) => mla::scratch(mla),
        Mixer::GatedDelta(delta) => gated_delta::scratch(delta),
    }
}

/// What a mixer needs of a backend.
pub(super) fn needs(config: &Mixer) -> Vec<OpFeature> {
    match config {
        Mixer::Attention(attention) => attention::needs(attention),
        Mixer::Mla(_) => mla::needs(),
        Mixer::GatedDelta(delta) => gated_delta::needs(delta),
    }
}

pub(super) fn storage(config: &Mixer) -> LayerStorage {
    match config {
        Mixer::Attention(attention) => LayerStorage::Pages(attention::kv_group(attention)),
        Mixer::Mla(mla) => LayerStorage::Pages(mla::kv_group(mla)),
        Mixer::GatedDelta(delta) => LayerStorage::States(gated_delta::states(delta)),
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
            Mixer::Mla(config) => MlaLayer::load(loader, layer, config).map(Self::Mla),
            Mixer::GatedDelta(config) => {
                GatedDeltaLayer::load(loader, layer, config).map(Self::GatedDelta)
            }
        }
    }

    /// Elements per row of what the mixer makes.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.width(),
            Self::Mla(mla) => mla.width(),
            Self::GatedDelta(delta) => delta.width(),
        }
    }

    /// Norms the residual stream, and writes to the pool what later tokens need of the step's rows.
    pub(super) fn write(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer) {
        match self {
            Self::Attention(attention) => attention.write(cx, norm),
            Self::Mla(mla) => mla.write(cx, norm),
            Self::GatedDelta(delta) => delta.write(cx, norm),
        }
    }

    /// What every row takes from its sequence, to the workspace's `mixed`.
    pub(super) fn mix(&self, cx: &LayerCx<'_, B>) {
        match self {
            Self::Attention(attention) => attention.mix(cx),
            Self::Mla(mla) => mla.mix(cx),
            Self::GatedDelta(delta) => delta.mix(cx),
        }
    }

    /// The output projection of `rows.mixed`, added to `rows.x`.
    pub(super) fn project(&self, cx: &LayerCx<'_, B>, rows: &Rows<'_, B>) {
        match self {
            Self::Attention(attention) => attention.project(cx, rows),
            Self::Mla(mla) => mla.project(cx, rows),
            Self::GatedDelta(delta) => delta.project(cx, rows),
        }
    }
}
