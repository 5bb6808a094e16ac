//! Dividing a product among threads.

use crate::cpu::linear_product::ROWS_AT_A_TIME;
use crate::cpu::linear_product::kernels::MAX_TILE_ROWS;
use crate::cpu::pack::PackedLinear;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that make arranging a task's activations cheap: one pass over them in about forty.
const BLOCKS_PER_TASK: usize = 8;

/// Blocks that make a task of few rows worth handing out: some 20 µs of reading.
const BLOCKS_PER_SMALL_TASK: usize = 32;

/// Tasks per thread when there is work for more, so that a thread that lost its core for a while
/// leaves some of its share to the others.
const TASKS_PER_THREAD: usize = 4;

/// Some rows of a product by some blocks of its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearTask {
    pub rows: Range<usize>,
    pub blocks: Range<usize>,
    /// Tasks of one run multiply the same activations; a thread arranges them once.
    pub run: Option<RunId>,
}

/// One run of all tasks of a product, unlike any other of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId(NonZero<u64>);

/// A grid of tasks that cover one run of a product without overlap.
#[derive(Debug)]
pub struct LinearTasks {
    run: RunId,
    rows: usize,
    row_parts: usize,
    blocks: usize,
    block_parts: usize,
}

// === impl RunId ===

impl RunId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NonZero::new(NEXT.fetch_add(1, Ordering::Relaxed)).expect("fewer than 2^64 runs"))
    }
}

// === impl LinearTasks ===

impl LinearTasks {
    /// As many shares of the weight as threads, or up to four times as many where they are large.
    /// Rows are divided too: into as many as stay arranged at a time, and more when the weight has few blocks.
    pub fn new(weight: &PackedLinear, rows: usize, threads: usize) -> Self {
        let blocks = weight.block_count();
        let few_rows = rows <= MAX_TILE_ROWS;
        let blocks_per_task = if few_rows {
            BLOCKS_PER_SMALL_TASK
        } else {
            BLOCKS_PER_TASK
        };
        let large_tasks = blocks / blocks_per_task / threads * threads;
        let block_parts = if large_tasks > 0 {
            large_tasks.min(threads * TASKS_PER_THREAD)
        } else if few_rows {
            threads.clamp(1, blocks.max(1))
        } else {
            (blocks / blocks_per_task).max(1)
        };
        let row_parts = threads
            .div_ceil(block_parts)
            .min(rows.div_ceil(MAX_TILE_ROWS))
            .max(rows.div_ceil(ROWS_AT_A_TIME))
            .max(1);
        Self {
            run: RunId::next(),
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

    /// Task `index` of [`Self::len`]. Those of the same rows follow each other.
    pub fn get(&self, index: usize) -> LinearTask {
        let tiles = self.rows.div_ceil(MAX_TILE_ROWS);
        let tiles = share(tiles, index / self.block_parts, self.row_parts);
        let first_row = |tile: usize| self.rows.min(tile * MAX_TILE_ROWS);
        LinearTask {
            rows: first_row(tiles.start)..first_row(tiles.end),
            blocks: share(self.blocks, index % self.block_parts, self.block_parts),
            run: Some(self.run),
        }
    }
}

fn share(count: usize, part: usize, parts: usize) -> Range<usize> {
    count * part / parts..count * (part + 1) / parts
}
