//! The blocks of several weights in one line, cut into tasks of about the same cost.

use std::ops::Range;

/// What a block costs beside its rows, in rows: it is read and expanded.
const BLOCK_COST: usize = 4;
/// Up to this many rows an expert's blocks are read for little more than their bytes.
const FEW_ROWS: usize = 12;
/// Blocks of few rows that make a task worth handing out: some 20 µs of reading.
const FEW_ROWS_BLOCKS: usize = 32;
/// Blocks that make arranging a task's activations cheap.
const MANY_ROWS_BLOCKS: usize = 8;
/// Tasks per thread when there is work for more, so that a late thread leaves some to the others.
const TASKS_PER_THREAD: usize = 4;

/// A weight of the same number of blocks for each group of rows, in the order of the groups.
#[derive(Debug)]
pub(super) struct BlockLine {
    blocks: usize,
    /// Of a block of each group.
    costs: Vec<usize>,
    total: usize,
    is_few: bool,
}

// === impl BlockLine ===

impl BlockLine {
    /// Weights of `blocks` blocks, each with the rows of its group.
    pub(super) fn new(blocks: usize, rows: &[usize]) -> Self {
        let costs: Vec<usize> = rows.iter().map(|rows| rows + BLOCK_COST).collect();
        Self {
            blocks,
            total: blocks * costs.iter().sum::<usize>(),
            is_few: rows.iter().all(|rows| *rows <= FEW_ROWS),
            costs,
        }
    }

    /// Into how many tasks the line is best cut for `threads`.
    pub(super) fn tasks(&self, threads: usize) -> usize {
        let blocks = self.blocks * self.costs.len();
        let per_task = if self.is_few {
            FEW_ROWS_BLOCKS
        } else {
            MANY_ROWS_BLOCKS
        };
        match blocks / per_task / threads * threads {
            0 => threads.min(blocks),
            large => large.min(threads * TASKS_PER_THREAD),
        }
    }

    /// Blocks of groups in part `part` of `parts`, in order. A block belongs to the part in which it begins.
    pub(super) fn part(
        &self,
        part: usize,
        parts: usize,
    ) -> impl Iterator<Item = (usize, Range<usize>)> {
        let cut = |part: usize| self.total * part / parts;
        let (low, high) = (cut(part), cut(part + 1));
        let mut before = 0;
        let groups = self.costs.iter().enumerate();
        groups.filter_map(move |(group, cost)| {
            let begins_at = |cost_before: usize| {
                let blocks = cost_before.saturating_sub(before).div_ceil(*cost);
                blocks.min(self.blocks)
            };
            let blocks = begins_at(low)..begins_at(high);
            before += cost * self.blocks;
            (!blocks.is_empty()).then_some((group, blocks))
        })
    }
}
