//! The expert that every token goes through, by a factor that a token may decide for itself.

use crate::model::config;
use crate::model::decoder::layer_cx::LayerCx;
use crate::model::decoder::loader::Loader;
use crate::model::decoder::workspace::ExpertSpace;
use crate::model::load_error::LoadError;
use crate::weights::{ExpertRole, LayerRole, Role};
use pd_compute::{Backend, Epilogue, Linear, Packing, SharedRows};

/// A shared expert on a device.
#[derive(Debug)]
pub(super) struct SharedExpert<B: Backend> {
    /// The rows of gate and up, in turns.
    gate_up: B::Weight,
    down: B::Weight,
    /// One row: the factor before its sigmoid.
    gate: Option<B::Weight>,
}

// === impl SharedExpert ===

impl<B: Backend> SharedExpert<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &config::SharedExpert,
    ) -> Result<Self, LoadError> {
        let (hidden, width) = (loader.hidden_size(), config.width);
        let role = |role| Role::Layer(layer, role);
        let shared = |part| role(LayerRole::Shared(part));
        let gate_up = [
            loader.matrix(shared(ExpertRole::Gate), width, hidden)?,
            loader.matrix(shared(ExpertRole::Up), width, hidden)?,
        ];
        let down = loader.matrix(shared(ExpertRole::Down), hidden, width)?;
        let gate = if config.gated {
            Some(loader.matrix(role(LayerRole::SharedGate), 1, hidden)?)
        } else {
            None
        };
        let gate_up = loader.pack(&gate_up, Packing::Interleaved)?;
        loader.reserve(&gate_up, Epilogue::SwiGlu)?;
        Ok(Self {
            gate_up,
            down: loader.pack(&[down], Packing::SUMMED)?,
            gate: gate
                .map(|gate| loader.pack(&[gate], Packing::JOINED))
                .transpose()?,
        })
    }

    /// What it makes of the normed rows.
    pub(super) fn forward<'a>(
        &self,
        cx: &LayerCx<'_, B>,
        space: &'a ExpertSpace<B>,
        rows: usize,
    ) -> SharedRows<'a, B> {
        let shared = space.shared.as_ref();
        let shared = shared.expect("a model with a shared expert has memory for it");
        let linear = |x, weight, epilogue, out| {
            cx.backend.linear(Linear {
                x,
                weight,
                bias: None,
                epilogue,
                out,
                rows,
            });
        };
        let (normed, gated) = (&cx.space.normed, &cx.space.gated);
        linear(normed, &self.gate_up, Epilogue::SwiGlu, gated);
        linear(gated, &self.down, Epilogue::Store, &shared.values);
        let gate = self.gate.as_ref().map(|gate| {
            linear(normed, gate, Epilogue::Store, &shared.gate);
            &shared.gate
        });
        SharedRows {
            values: &shared.values,
            gate,
        }
    }
}
