//! The best of many, by (value, lower index).

use crate::ops::{ExpertGroups, GroupScore, Routing};

/// Chooses experts row after row, and keeps its memory between them.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    /// What experts are chosen by.
    values: Vec<f32>,
    /// What groups are chosen by.
    groups: Vec<f32>,
    best: Vec<(f32, u32)>,
}

// === impl Chooser ===

impl Chooser {
    /// Writes the ids of the chosen, best first.
    pub(super) fn choose(
        &mut self,
        routing: &Routing,
        scores: &[f32],
        bias: Option<&[f32]>,
        ids: &mut [u32],
    ) {
        self.values.clear();
        self.values.extend_from_slice(scores);
        if let Some(bias) = bias {
            for (value, bias) in self.values.iter_mut().zip(bias) {
                *value += bias;
            }
        }
        if let Some(groups) = &routing.groups {
            self.leave_out_groups(groups);
        }
        best(&self.values, ids.len(), &mut self.best);
        for (id, (_, expert)) in ids.iter_mut().zip(&self.best) {
            *id = *expert;
        }
    }

    /// Experts outside the best groups are left to the last.
    fn leave_out_groups(&mut self, groups: &ExpertGroups) {
        let group_len = self.values.len() / groups.count;
        self.groups.clear();
        for values in self.values.chunks_exact(group_len) {
            let counted = match groups.score {
                GroupScore::Best => 1,
                GroupScore::SumOfTwoBest => 2,
            };
            best(values, counted, &mut self.best);
            let score = self.best.iter().map(|(value, _)| value).sum();
            self.groups.push(score);
        }
        best(&self.groups, groups.chosen, &mut self.best);
        for (group, values) in (0u32..).zip(self.values.chunks_exact_mut(group_len)) {
            if self.best.iter().all(|(_, chosen)| *chosen != group) {
                values.fill(f32::NEG_INFINITY);
            }
        }
    }
}

/// The `count` largest values with their indices, largest first; of equal ones the lower index comes
/// first. What is no number counts as the smallest.
fn best(values: &[f32], count: usize, best: &mut Vec<(f32, u32)>) {
    best.clear();
    for (index, &value) in (0u32..).zip(values) {
        let value = if value.is_nan() {
            f32::NEG_INFINITY
        } else {
            value
        };
        if best.len() == count {
            if best.last().is_none_or(|(worst, _)| value <= *worst) {
                continue;
            }
            best.pop();
        }
        let place = best.partition_point(|(better, _)| *better >= value);
        best.insert(place, (value, index));
    }
}
