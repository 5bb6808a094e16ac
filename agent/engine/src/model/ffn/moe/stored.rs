//! How the experts of a layer lie in files: each in tensors of its own, or all of them in one.

use crate::model::config::MoeFfn;
use crate::model::decoder::loader::Loader;
use crate::model::load_error::LoadError;
use crate::weights::{ExpertRole, ExpertsRole, LayerRole, Matrix, Role};
use pd_compute::{Backend, ExpertSource, WeightSource};
use std::num::NonZero;
use std::ops::Range;

/// Experts as files have them.
pub(super) enum StoredExperts<'a> {
    /// Gate, up and down of each.
    Apart(Vec<[Matrix<'a>; 3]>),
    /// `[experts · width][hidden]`, the last one `[experts · hidden][width]`.
    Split([Matrix<'a>; 3], Sizes),
    /// `[experts · 2 · width][hidden]`, gate before up, and as above.
    Joined([Matrix<'a>; 2], Sizes),
}

#[derive(Clone, Copy)]
pub(super) struct Sizes {
    experts: usize,
    width: usize,
    hidden: usize,
}

// === impl StoredExperts ===

impl<'a> StoredExperts<'a> {
    pub(super) fn find<B: Backend>(
        loader: &mut Loader<'a, B>,
        layer: usize,
        config: &MoeFfn,
    ) -> Result<Self, LoadError> {
        let sizes = Sizes {
            experts: config.num_experts,
            width: config.width,
            hidden: loader.hidden_size(),
        };
        let Sizes {
            experts,
            width,
            hidden,
        } = sizes;
        let all = |role| Role::Layer(layer, LayerRole::Experts(role));
        let one = |expert, role| Role::Layer(layer, LayerRole::Expert(expert, role));
        if loader.has_name(all(ExpertsRole::GateUpColumns)) {
            return Ok(Self::Apart(in_turns(loader, layer, sizes)?));
        }
        let [joined, gate, up, down] = [
            ExpertsRole::GateUp,
            ExpertsRole::Gate,
            ExpertsRole::Up,
            ExpertsRole::Down,
        ]
        .map(|role| loader.contains(all(role)));
        // Where one of the two is missing, the other shows which it is.
        if joined || (down && !gate && !up) {
            let gate_up = loader.matrix(all(ExpertsRole::GateUp), experts * 2 * width, hidden)?;
            let down = loader.matrix(all(ExpertsRole::Down), experts * hidden, width)?;
            return Ok(Self::Joined([gate_up, down], sizes));
        }
        if loader.has_name(one(0, ExpertRole::Gate)) {
            let mut apart = Vec::with_capacity(experts);
            for expert in 0..experts {
                apart.push([
                    loader.matrix(one(expert, ExpertRole::Gate), width, hidden)?,
                    loader.matrix(one(expert, ExpertRole::Up), width, hidden)?,
                    loader.matrix(one(expert, ExpertRole::Down), hidden, width)?,
                ]);
            }
            return Ok(Self::Apart(apart));
        }
        let gate = loader.matrix(all(ExpertsRole::Gate), experts * width, hidden)?;
        let up = loader.matrix(all(ExpertsRole::Up), experts * width, hidden)?;
        let down = loader.matrix(all(ExpertsRole::Down), experts * hidden, width)?;
        Ok(Self::Split([gate, up, down], sizes))
    }

    /// Of every expert.
    pub(super) fn sources(&self) -> Vec<ExpertSource<'_>> {
        match self {
            Self::Apart(experts) => experts
                .iter()
                .map(|[gate, up, down]| ExpertSource {
                    gate: gate.source(),
                    up: up.source(),
                    down: down.source(),
                })
                .collect(),
            Self::Split([gate, up, down], sizes) => {
                let source = |expert| ExpertSource {
                    gate: nth(gate, expert, sizes.width),
                    up: nth(up, expert, sizes.width),
                    down: nth(down, expert, sizes.hidden),
                };
                (0..sizes.experts).map(source).collect()
            }
            Self::Joined([gate_up, down], sizes) => {
                let source = |expert| ExpertSource {
                    gate: nth(gate_up, 2 * expert, sizes.width),
                    up: nth(gate_up, 2 * expert + 1, sizes.width),
                    down: nth(down, expert, sizes.hidden),
                };
                (0..sizes.experts).map(source).collect()
            }
        }
    }
}

/// Experts whose gates and ups take turns: of columns, or in MXFP4 of rows.
fn in_turns<'a, B: Backend>(
    loader: &mut Loader<'a, B>,
    layer: usize,
    sizes: Sizes,
) -> Result<Vec<[Matrix<'a>; 3]>, LoadError> {
    let Sizes {
        experts,
        width,
        hidden,
    } = sizes;
    let all = |role| Role::Layer(layer, LayerRole::Experts(role));
    let rows_of = |expert: usize, rows: usize| expert * rows..(expert + 1) * rows;
    let turn = |second: usize, of: Range<usize>| of.skip(second).step_by(2);
    let gate_up = [ExpertsRole::GateUpBlocks, ExpertsRole::GateUpScales].map(all);
    if gate_up.into_iter().any(|role| loader.contains(role)) {
        let down = [ExpertsRole::DownBlocks, ExpertsRole::DownScales].map(all);
        let gate_up = loader.mxfp4(gate_up, experts * 2 * width, hidden)?;
        let down = loader.mxfp4(down, experts * hidden, width)?;
        let expert = |expert| {
            let both = rows_of(expert, 2 * width);
            [
                gate_up.rows(turn(0, both.clone())),
                gate_up.rows(turn(1, both)),
                down.rows(rows_of(expert, hidden)),
            ]
        };
        return Ok(on_cores(experts, expert));
    }
    let gate_up = loader.matrix(all(ExpertsRole::GateUpColumns), experts * hidden, 2 * width)?;
    let down = loader.matrix(all(ExpertsRole::DownColumns), experts * width, hidden)?;
    let expert = |expert| {
        let both = rows_of(expert, hidden);
        [
            gate_up.columns(both.clone(), turn(0, 0..2 * width)),
            gate_up.columns(both, turn(1, 0..2 * width)),
            down.columns(rows_of(expert, width), 0..hidden),
        ]
    };
    Ok(on_cores(experts, expert))
}

/// What `make` makes of each number below `count`, in this order. Each core has some: what is moved is as large as a
/// checkpoint.
fn on_cores<T: Send>(count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (each, make) = (count.div_ceil(cores).max(1), &make);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .step_by(each)
            .map(|first| {
                let mine = first..count.min(first + each);
                scope.spawn(move || mine.map(make).collect::<Vec<_>>())
            })
            .collect();
        let made = threads.into_iter().map(|thread| match thread.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        made.flatten().collect()
    })
}

/// One of the matrices of `rows` rows that lie one after another in a tensor.
fn nth<'a>(all: &'a Matrix<'_>, index: usize, rows: usize) -> WeightSource<'a> {
    all.part(index * rows..(index + 1) * rows)
}
