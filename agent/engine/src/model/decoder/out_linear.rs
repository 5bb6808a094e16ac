//! The last linear of a mixer or a feed-forward.

use super::layer_cx::{LayerCx, Rows};
use super::loader::Loader;
use crate::model::load_error::LoadError;
use crate::weights::{Matrix, Role};
use pd_compute::{Backend, Epilogue, Linear, Packing, RmsNorm, WriteMode};

/// What a layer's part adds to the residual stream: a product, which a norm may be taken of first.
#[derive(Debug)]
pub(crate) struct OutLinear<B: Backend> {
    weight: B::Weight,
    /// `F32 [hidden]`.
    bias: Option<B::Buffer>,
    /// `F32 [hidden]`.
    norm: Option<B::Buffer>,
}

// === impl OutLinear ===

impl<B: Backend> OutLinear<B> {
    pub(crate) fn load(
        loader: &mut Loader<'_, B>,
        matrix: Matrix<'_>,
        bias: Option<Role>,
        norm: Option<Role>,
    ) -> Result<Self, LoadError> {
        let hidden = loader.hidden_size();
        Ok(Self {
            weight: loader.pack(&[matrix], Packing::SUMMED)?,
            bias: bias.map(|role| loader.vector(role, hidden)).transpose()?,
            norm: norm.map(|role| loader.norm(role, hidden)).transpose()?,
        })
    }

    /// Adds the product of `x`, a row for each of `rows`, to `rows.x`.
    pub(crate) fn add(&self, cx: &LayerCx<'_, B>, x: &B::Buffer, rows: &Rows<'_, B>) {
        let product = |epilogue, out| {
            cx.backend.linear(Linear {
                x,
                weight: &self.weight,
                bias: self.bias.as_ref(),
                epilogue,
                out,
                rows: rows.count,
            });
        };
        let Some(weight) = &self.norm else {
            return product(Epilogue::AddResidual, rows.x);
        };
        // The norm before the part is done with by now.
        let unnormed = &cx.space.normed;
        product(Epilogue::Store, unnormed);
        cx.backend.rms_norm(RmsNorm {
            x: unnormed,
            add: None,
            weight,
            eps: cx.eps,
            out: rows.x,
            into: WriteMode::Add,
            rows: rows.count,
        });
    }
}
