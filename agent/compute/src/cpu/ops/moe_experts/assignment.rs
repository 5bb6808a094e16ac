//! Which rows go to which expert: the step's choices, sorted by expert and row.

use std::ops::Range;

/// The choices of some rows, in order of (expert, row).
#[derive(Debug)]
pub(super) struct Assignment {
    /// Of each sorted choice.
    rows: Vec<u32>,
    /// Local experts that have rows, with their sorted choices.
    groups: Vec<Group>,
    /// Of each choice as the router wrote it, its place among the sorted ones.
    positions: Vec<Option<u32>>,
}

/// An expert's choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Among the local ones.
    pub(super) expert: usize,
    /// Of the sorted ones.
    pub(super) choices: Range<usize>,
}

// === impl Assignment ===

impl Assignment {
    /// `chosen` is `[rows][top_k]`; choices of experts that are not `local` are left out.
    ///
    /// # Panics
    /// On an id that is none of `num_experts`.
    pub(super) fn new(
        chosen: &[u32],
        top_k: usize,
        num_experts: usize,
        local: Range<usize>,
    ) -> Self {
        let place = |id: u32| {
            let id = id as usize;
            assert!(id < num_experts, "expert {id} of {num_experts}");
            local.contains(&id).then(|| id - local.start)
        };
        let mut counts = vec![0; local.len()];
        for expert in chosen.iter().filter_map(|id| place(*id)) {
            counts[expert] += 1;
        }
        let mut groups = Vec::new();
        let mut next = Vec::with_capacity(counts.len());
        let mut start = 0;
        for (expert, count) in counts.into_iter().enumerate() {
            next.push(start);
            if count > 0 {
                let choices = start..start + count;
                groups.push(Group { expert, choices });
            }
            start += count;
        }
        let mut rows = vec![0; start];
        let mut positions = Vec::with_capacity(chosen.len());
        for (row, ids) in (0u32..).zip(chosen.chunks_exact(top_k)) {
            for expert in ids.iter().map(|id| place(*id)) {
                positions.push(expert.map(|expert| {
                    let at = next[expert];
                    next[expert] += 1;
                    rows[at] = row;
                    u32::try_from(at).expect("a step has fewer choices")
                }));
            }
        }
        Self {
            rows,
            groups,
            positions,
        }
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The rows that an expert computes, ascending.
    pub(super) fn rows_of(&self, group: &Group) -> &[u32] {
        &self.rows[group.choices.clone()]
    }

    /// Where a choice lies among the sorted ones, if its expert is local.
    pub(super) fn position(&self, choice: usize) -> Option<usize> {
        self.positions[choice].map(|at| at as usize)
    }
}
