//! Dividing a product among threads.

use std::ops::Range;

use crate::cpu::kernels::linear::MAX_TILE_ROWS;
use crate::cpu::pack::PackedLinear;

/// Blocks that make arranging a task's activations cheap: one pass over them in about forty.
const BLOCKS_PER_TASK: usize = 8;

/// Tasks per thread when there is work for more, so that a thread that lost its core for a while
/// leaves some of its share to the others.
const TASKS_PER_THREAD: usize = 4;

/// Some rows of a product by some blocks of its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearTask {
    pub rows: Range<usize>,
    pub blocks: Range<usize>,
}

/// A grid of tasks that cover a product without overlap.
#[derive(Clone, Copy, Debug)]
pub struct LinearTasks {
    rows: usize,
    row_parts: usize,
    blocks: usize,
    block_parts: usize,
}

impl LinearTasks {
    /// With few rows the tasks are equal shares of the weight, one per thread: the time is that of
    /// reading it. With many they are shares of at least [`BLOCKS_PER_TASK`] blocks, and rows are
    /// divided too where the weight has too few.
    pub fn new(weight: &PackedLinear, rows: usize, threads: usize) -> Self {
        let blocks = weight.block_count();
        if rows <= MAX_TILE_ROWS {
            return Self {
                rows,
                row_parts: 1,
                blocks,
                block_parts: threads.clamp(1, blocks.max(1)),
            };
        }
        let block_parts = (blocks / BLOCKS_PER_TASK).clamp(1, threads * TASKS_PER_THREAD);
        // A multiple of the threads, where there are enough blocks for one.
        let block_parts = match block_parts / threads * threads {
            0 => block_parts,
            even => even,
        };
        let row_parts = threads
            .div_ceil(block_parts)
            .min(rows.div_ceil(MAX_TILE_ROWS));
        Self {
            rows,
            row_parts,
            blocks,
            block_parts,
        }
    }

    pub fn len(&self) -> usize {
        self.row_parts * self.block_parts
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.blocks == 0
    }

    /// Task `index` of [`Self::len`].
    pub fn get(&self, index: usize) -> LinearTask {
        LinearTask {
            rows: share(self.rows, index / self.block_parts, self.row_parts),
            blocks: share(self.blocks, index % self.block_parts, self.block_parts),
        }
    }
}

fn share(count: usize, part: usize, parts: usize) -> Range<usize> {
    count * part / parts..count * (part + 1) / parts
}
