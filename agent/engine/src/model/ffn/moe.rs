//! Experts, of which each token goes to a few. Rows go through a limited number at a time, since
//! what experts make takes several times the memory of the rows; no bits depend on that.

mod shared;
mod stored;

use crate::model::config::{self, MoeFfn};
use crate::model::decoder::layer_cx::{LayerCx, Rows};
use crate::model::decoder::loader::Loader;
use crate::model::decoder::scratch::Scratch;
use crate::model::decoder::workspace::ExpertSpace;
use crate::model::ffn::glu;
use crate::model::load_error::LoadError;
use crate::weights::{ExpertsRole, LayerRole, Role};
use pd_compute::{
    Backend, DeviceBuffer as _, Epilogue, ExpertBias, ExpertGroups, ExpertMatrices as _,
    GroupScore, Linear, MoeExperts, MoeFinish, MoeRoute, OpFeature, Packing, Routing, Scores,
};
use shared::SharedExpert;
use stored::StoredExperts;

/// A mixture of experts of a layer on a device.
#[derive(Debug)]
pub(crate) struct MoeLayer<B: Backend> {
    config: MoeFfn,
    /// A row for each expert.
    router: B::Weight,
    /// `F32 [experts]`.
    choice_bias: Option<B::Buffer>,
    experts: B::Experts,
    shared: Option<SharedExpert<B>>,
    biases: Option<Biases<B>>,
}

#[derive(Debug)]
struct Biases<B: Backend> {
    /// `F32 [experts]`.
    router: B::Buffer,
    /// `F32 [experts][2 · width]`: gate and up in turns.
    gate_up: B::Buffer,
    /// `F32 [experts][hidden]`.
    down: B::Buffer,
}

pub(super) fn scratch(config: &MoeFfn) -> Scratch {
    Scratch {
        experts: config.num_experts,
        choices: config.top_k,
        expert_width: config.width,
        gated: config.shared.map_or(0, |shared| shared.width),
        shared: config.shared.is_some(),
        ..Scratch::default()
    }
}

pub(super) fn needs(config: &MoeFfn) -> Vec<OpFeature> {
    let biases = config.biases.then_some(OpFeature::LinearBias);
    let others = glu::needs(config.glu).into_iter().chain(biases);
    others.chain([OpFeature::Experts]).collect()
}

fn expert_groups(groups: config::ExpertGroups) -> ExpertGroups {
    ExpertGroups {
        count: groups.count,
        chosen: groups.chosen,
        score: match groups.score {
            config::GroupScore::Best => GroupScore::Best,
            config::GroupScore::SumOfTwoBest => GroupScore::SumOfTwoBest,
        },
    }
}

// === impl Biases ===

impl<B: Backend> Biases<B> {
    fn load(loader: &mut Loader<'_, B>, layer: usize, config: &MoeFfn) -> Result<Self, LoadError> {
        let (experts, hidden) = (config.num_experts, loader.hidden_size());
        let role = |role| Role::Layer(layer, role);
        let of_all = |of| role(LayerRole::Experts(of));
        Ok(Self {
            router: loader.vector(role(LayerRole::RouterBias), experts)?,
            gate_up: loader.table(of_all(ExpertsRole::GateUpBias), experts, 2 * config.width)?,
            down: loader.table(of_all(ExpertsRole::DownBias), experts, hidden)?,
        })
    }
}

// === impl MoeLayer ===

impl<B: Backend> MoeLayer<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        config: &MoeFfn,
    ) -> Result<Self, LoadError> {
        let role = Role::Layer(layer, LayerRole::Router);
        let router = loader.matrix(role, config.num_experts, loader.hidden_size())?;
        let stored = StoredExperts::find(loader, layer, config)?;
        let biases = config.biases.then(|| Biases::load(loader, layer, config));
        let role = Role::Layer(layer, LayerRole::ChoiceBias);
        let choice_bias = config
            .choice_bias
            .then(|| loader.vector(role, config.num_experts));
        Ok(Self {
            config: *config,
            biases: biases.transpose()?,
            choice_bias: choice_bias.transpose()?,
            router: loader.pack(&[router], Packing::JOINED)?,
            experts: loader.pack_experts(&stored.sources())?,
            shared: config
                .shared
                .map(|shared| SharedExpert::load(loader, layer, &shared))
                .transpose()?,
        })
    }

    pub(super) fn forward(&self, cx: &LayerCx<'_, B>, norm: &B::Buffer, rows: &Rows<'_, B>) {
        let space = cx.space.experts.as_ref();
        let space = space.expect("a model with experts has memory for them");
        let hidden = self.experts.hidden();
        for first in (0..rows.count).step_by(space.max_rows) {
            let count = space.max_rows.min(rows.count - first);
            let x = rows.x.slice(first * hidden..(first + count) * hidden);
            cx.backend.rms_norm(cx.norm(&x, norm, count));
            self.mix(cx, space, count);
            let shared = self.shared.as_ref();
            let shared = shared.map(|shared| shared.forward(cx, space, count));
            cx.backend.moe_finish(MoeFinish {
                sums: &space.sums,
                shared,
                x: &x,
                hidden,
                rows: count,
            });
        }
    }

    /// What the experts of each normed row add up to, in the workspace.
    fn mix(&self, cx: &LayerCx<'_, B>, space: &ExpertSpace<B>, rows: usize) {
        let MoeFfn {
            num_experts,
            top_k,
            scores,
            groups,
            normalise,
            scale,
            glu,
            ..
        } = self.config;
        let biases = self.biases.as_ref();
        let x = &cx.space.normed;
        cx.backend.linear(Linear {
            x,
            weight: &self.router,
            bias: biases.map(|biases| &biases.router),
            epilogue: Epilogue::Store,
            out: &space.logits,
            rows,
        });
        cx.backend.moe_route(MoeRoute {
            logits: &space.logits,
            num_experts,
            choice_bias: self.choice_bias.as_ref(),
            routing: Routing {
                top_k,
                scores: match scores {
                    config::Scores::Softmax => Scores::Softmax,
                    config::Scores::Sigmoid => Scores::Sigmoid,
                    config::Scores::SoftmaxOfChosen => Scores::SoftmaxOfChosen,
                },
                groups: groups.map(expert_groups),
                normalise,
                scale,
            },
            chosen: &space.chosen,
            weights: &space.weights,
            rows,
        });
        cx.backend.moe_experts(MoeExperts {
            x,
            chosen: &space.chosen,
            weights: &space.weights,
            top_k,
            num_experts,
            experts: &self.experts,
            first_expert: 0,
            bias: biases.map(|Biases { gate_up, down, .. }| ExpertBias { gate_up, down }),
            glu: glu::epilogue(glu),
            gated: &space.gated,
            terms: &space.terms,
            sums: &space.sums,
            rows,
        });
    }
}
