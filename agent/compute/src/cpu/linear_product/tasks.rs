//! Dividing a product among threads.

use crate::cpu::linear_product::ROWS_AT_A_TIME;
use crate::cpu::pack::PackedLinear;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Blocks that make arranging a task's activations cheap: one pass over them in about forty.
const BLOCKS_PER_TASK: usize = 8;

/// Blocks that make a task of few rows worth handing out: some 20 µs of reading.
const BLOCKS_PER_SMALL_TASK: usize = 32;

/// Rows that are quickest with weights as one stream.
const FEW_ROWS: usize = 12;

/// Rows are divided at multiples of these, which tiles of AMX have.
const ROWS_PER_PART: usize = 16;

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
    /// Of each part of the rows, how many tasks were claimed, and perhaps more.
    claimed: Box<[AtomicUsize]>,
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
        let few_rows = rows <= FEW_ROWS;
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
            .min(rows.div_ceil(ROWS_PER_PART))
            .max(rows.div_ceil(ROWS_AT_A_TIME))
            .max(1);
        Self {
            run: RunId::next(),
            rows,
            row_parts,
            blocks,
            block_parts,
            claimed: (0..row_parts).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.row_parts * self.block_parts
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.blocks == 0
    }

    /// A task that no one has claimed, of the rows that the worker had before if there is one: it has their activations
    /// arranged. Workers begin with rows far apart.
    pub fn claim(&self, worker: Worker) -> Option<LinearTask> {
        let first = share(self.row_parts, worker.index, worker.count).start;
        (0..self.row_parts)
            .map(|i| (first + i) % self.row_parts)
            .find_map(|part| {
                let claimed = &self.claimed[part];
                let is_open = claimed.load(Ordering::Relaxed) < self.block_parts;
                let task = is_open.then(|| claimed.fetch_add(1, Ordering::Relaxed))?;
                (task < self.block_parts).then(|| self.get(part * self.block_parts + task))
            })
    }

    /// Task `index` of [`Self::len`]. Those of the same rows follow each other.
    pub fn get(&self, index: usize) -> LinearTask {
        let tiles = self.rows.div_ceil(ROWS_PER_PART);
        let tiles = share(tiles, index / self.block_parts, self.row_parts);
        let first_row = |tile: usize| self.rows.min(tile * ROWS_PER_PART);
        LinearTask {
            rows: first_row(tiles.start)..first_row(tiles.end),
            blocks: share(self.blocks, index % self.block_parts, self.block_parts),
            run: Some(self.run),
        }
    }
}

/// A worker of so many.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    pub index: usize,
    pub count: usize,
}

fn share(count: usize, part: usize, parts: usize) -> Range<usize> {
    count * part / parts..count * (part + 1) / parts
}
