//! What the parts of a layer share in a step.

use super::workspace::Workspace;
use crate::model::step::Step;
use pd_compute::{Backend, RmsNorm, WriteMode};

/// What a layer's parts work with in a step.
pub(crate) struct LayerCx<'a, B: Backend> {
    pub(crate) backend: &'a B,
    pub(crate) step: &'a Step<'a, B>,
    pub(crate) space: &'a Workspace<B>,
    pub(crate) eps: f32,
}

/// Rows that go through a layer to its end.
pub(crate) struct Rows<'a, B: Backend> {
    /// `[count][hidden]`: the residual stream.
    pub(crate) x: &'a B::Buffer,
    /// `[count][the mixer's width]`: what the mixer made, before its output projection.
    pub(crate) mixed: &'a B::Buffer,
    pub(crate) count: usize,
}

// === impl LayerCx ===

impl<B: Backend> LayerCx<'_, B> {
    /// The norm of `x`'s first `rows` rows, into the workspace.
    pub(crate) fn norm<'a>(
        &'a self,
        x: &'a B::Buffer,
        weight: &'a B::Buffer,
        rows: usize,
    ) -> RmsNorm<'a, B> {
        RmsNorm {
            x,
            add: None,
            weight,
            eps: self.eps,
            out: &self.space.normed,
            into: WriteMode::Store,
            rows,
        }
    }
}
