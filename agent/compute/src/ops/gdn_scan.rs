//! The gated delta rule: a memory per head that each token decays, corrects and reads.

use super::batch::BatchView;
use super::strided::Strided;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::states::{StateRows, StateTensorView, StateView};

/// Added to a sum of squares before its root is taken.
pub(crate) const L2_EPS: f32 = 1e-6;

/// Per v head, from token to token, with `q̂ = q·(Σq² + 1e-6)^-½·k_dim^-½` and
/// `k̂ = k·(Σk² + 1e-6)^-½` of k head `h / (num_v_heads / num_k_heads)`, the decay
/// `e^(decay·softplus(a + dt_bias))` and `β = sigmoid(b)`:
///
/// `S ← decay·S; S ← S + k̂ ⊗ β·(v − k̂ᵀS); out = q̂ᵀS`.
#[derive(Debug)]
pub struct GdnScan<'a, B: DeviceTypes> {
    /// `[num_tokens][2·num_k_heads·k_dim + num_v_heads·v_dim]`: the heads of q, of k and of v.
    pub qkv: &'a B::Buffer,
    pub num_k_heads: usize,
    pub k_dim: usize,
    /// `[num_tokens][num_v_heads]`.
    pub a: Strided<'a, B>,
    /// `[num_tokens][num_v_heads]`.
    pub b: Strided<'a, B>,
    /// `F32 [num_v_heads]`, not above 0.
    pub decay: &'a B::Buffer,
    /// `F32 [num_v_heads]`.
    pub dt_bias: &'a B::Buffer,
    pub batch: &'a BatchView<B>,
    /// `F32`, one tensor: S of each v head, `[k_dim][v_dim]`.
    pub states: &'a StateView<B>,
    pub state_rows: &'a StateRows<B>,
    /// Layer among those of `states`.
    pub layer: usize,
    /// `[num_tokens][num_v_heads·v_dim]`.
    pub out: &'a B::Buffer,
}

/// Sizes of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GdnShape {
    pub(crate) num_k_heads: usize,
    pub(crate) num_v_heads: usize,
    pub(crate) k_dim: usize,
    pub(crate) v_dim: usize,
}

// === impl GdnShape ===

impl GdnShape {
    /// Elements of a row of q, k and v.
    pub(crate) fn qkv_width(self) -> usize {
        2 * self.k_width() + self.v_width()
    }

    pub(crate) fn k_width(self) -> usize {
        self.num_k_heads * self.k_dim
    }

    pub(crate) fn v_width(self) -> usize {
        self.num_v_heads * self.v_dim
    }
}

// === impl GdnScan ===

impl<B: DeviceTypes> GdnScan<'_, B> {
    /// # Panics
    /// When the states are not of one tensor of whole heads.
    pub(crate) fn shape(&self) -> GdnShape {
        let Self {
            num_k_heads, k_dim, ..
        } = *self;
        let [StateTensorView { heads, elements }] = *self.states.tensors else {
            panic!("{:?} is no one tensor of delta states", self.states.tensors);
        };
        assert!(
            num_k_heads > 0 && heads.is_multiple_of(num_k_heads),
            "{heads} v heads are no multiple of {num_k_heads} k heads"
        );
        assert!(
            k_dim > 0 && elements.is_multiple_of(k_dim),
            "delta states of {elements} elements are no {k_dim} rows"
        );
        GdnShape {
            num_k_heads,
            num_v_heads: heads,
            k_dim,
            v_dim: elements / k_dim,
        }
    }

    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let shape = self.shape();
        let Self {
            qkv,
            num_k_heads: _,
            k_dim: _,
            a,
            b,
            decay,
            dt_bias,
            batch,
            states,
            state_rows,
            layer,
            out,
        } = *self;
        let (rows, heads) = (batch.num_tokens, shape.num_v_heads);
        states.check("delta states", DType::F32, layer);
        state_rows.check(batch.num_seqs, rows);
        qkv.expect_elements("delta qkv", &[activations], rows * shape.qkv_width());
        a.expect_rows("delta a", activations, rows, heads);
        b.expect_rows("delta b", activations, rows, heads);
        decay.expect_elements("delta decay", &[DType::F32], heads);
        dt_bias.expect_elements("delta dt_bias", &[DType::F32], heads);
        out.expect_elements("delta out", &[activations], rows * shape.v_width());
        let inputs = [qkv, a.values, b.values, decay, dt_bias];
        out.expect_apart("delta out", &inputs);
        states.region.expect_apart("delta states", &inputs);
        states.region.expect_apart("delta states", &[out]);
    }
}
