//! `y = x·Wᵀ` for a packed `W`: how a product is divided into tasks, and how a task runs.
//!
//! A task is some rows of `x` by some blocks of `W`; tasks of one product write apart and run on
//! any threads in any order. Few rows multiply weights as they are expanded, so each weight byte
//! is read once and that is the cost. Many rows expand a block once into a panel that stays
//! in the cache and run register tiles over all rows.
//!
//! Floating-point weights multiply f32: an output element is one chain of fused multiply-adds over ascending k.
//! Integer codes multiply activations that are integers, too ([`kernels`] has both chains). Where ranks may divide k, there
//! is a chain for each of eight shares and a tree over them ([`KOrder`](crate::k_order::KOrder)). Either way it is the same
//! at every row count, task division and instruction set (an invariant), so only speed depends on the choice.

mod activations;
mod kernels;
mod tasks;

use crate::cpu::isa::Isa;
use crate::cpu::pack::{AlignedBytes, BLOCK_LANES, PackedLinear, Segment, intersection};
use crate::ops::Epilogue;
use activations::{Activations, Form, RowTile};
pub(in crate::cpu) use kernels::avx512_bf16::{as_pairs, round_pairs};
use kernels::epilogue::{BlockRow, OutTile};
use kernels::shares::{KTree, TreeTiles};
use kernels::{FormatKernels, LinearKernels, panel_bytes};
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
pub use tasks::{LinearTask, LinearTasks, RunId, Worker};

const CACHE_LINE: usize = 64;

/// Rows whose activations a task keeps arranged at a time: half a level-2 cache for a hidden size of 576,
/// and enough that expanding the weights again for each is a few percent.
pub(in crate::cpu) const ROWS_AT_A_TIME: usize = 256;

/// One product over caller-owned memory.
#[derive(Debug)]
pub struct LinearProduct<'a> {
    pub weight: &'a PackedLinear,
    /// Row `r` is `x[x_rows[r] · x_stride ..][.. k]`, or `x[r · x_stride ..]` where no rows are named.
    pub x: &'a [f32],
    pub x_stride: usize,
    pub x_rows: Option<&'a [u32]>,
    pub rows: usize,
    /// Of each row of the weight, gate and up in turn where they are interleaved.
    pub bias: Option<&'a [f32]>,
    /// One that joins gate and up if and only if the weight is interleaved.
    pub epilogue: Epilogue,
    pub out: SharedOut<'a>,
    pub isa: Isa,
}

/// An output that several tasks write apart from each other.
#[derive(Debug)]
pub struct SharedOut<'a> {
    at: *mut f32,
    len: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

/// What a thread keeps between tasks: arranged activations, an expanded block, and sums of a tile.
#[derive(Debug)]
pub struct LinearScratch {
    activations: Activations,
    panel: AlignedBytes,
    sums: Box<TreeTiles>,
}

// SAFETY: `run_task`, which writes, asks its callers for disjoint tasks.
unsafe impl Send for SharedOut<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedOut<'_> {}

// === impl SharedOut ===

impl<'a> SharedOut<'a> {
    /// Row `r` is `out[r · stride ..][.. out_len]`.
    pub fn new(out: &'a mut [f32], stride: usize) -> Self {
        Self {
            at: out.as_mut_ptr(),
            len: out.len(),
            stride,
            owner: PhantomData,
        }
    }

    /// # Safety
    /// `len` f32 at `at` that, for `'a`, no one uses but the tasks of one product.
    pub unsafe fn from_raw(at: *mut f32, len: usize, stride: usize) -> Self {
        Self {
            at,
            len,
            stride,
            owner: PhantomData,
        }
    }
}

// === impl LinearScratch ===

thread_local! {
    static SCRATCH: RefCell<LinearScratch> = RefCell::default();
}

impl LinearScratch {
    /// Calls `f` with the scratch that this thread keeps.
    pub fn of_thread<R>(f: impl FnOnce(&mut Self) -> R) -> R {
        SCRATCH.with_borrow_mut(f)
    }

    pub fn new() -> Self {
        let panel = AlignedBytes::zeroed(0).expect("an empty allocation succeeds");
        Self {
            activations: Activations::new(),
            panel,
            sums: Box::default(),
        }
    }

    /// Room for an expanded block of this many bytes.
    fn panel(&mut self, bytes: usize) -> *mut u8 {
        if self.panel.as_slice().len() < bytes {
            // A few hundred KB, beside weights of many MB that were allocated.
            self.panel = AlignedBytes::zeroed(bytes).expect("memory for one expanded block");
        }
        self.panel.as_mut_ptr()
    }
}

impl Default for LinearScratch {
    fn default() -> Self {
        Self::new()
    }
}

// === impl LinearProduct ===

impl LinearProduct<'_> {
    /// How to divide one run of this product among `threads`.
    pub fn tasks(&self, threads: usize) -> LinearTasks {
        LinearTasks::new(self.weight, self.rows, threads)
    }

    /// Runs one task.
    ///
    /// # Safety
    /// Tasks that run at the same time share no output: they are different tasks of one
    /// [`LinearTasks`], or their rows or blocks are disjoint. The task's run, if it is of one, was made for this
    /// product, whose `x` has not changed since.
    ///
    /// # Panics
    /// On a shape that does not fit, or an instruction set that the processor lacks.
    pub unsafe fn run_task(&self, task: &LinearTask, scratch: &mut LinearScratch) {
        self.check(task);
        let mut first = task.rows.start;
        while first < task.rows.end {
            let rows = first..task.rows.end.min(first + ROWS_AT_A_TIME);
            first = rows.end;
            scratch.activations.begin(&rows, task.run);
            for segment in self.weight.segments() {
                let blocks = intersection(&task.blocks, &segment.blocks);
                if !blocks.is_empty() {
                    // SAFETY: by this function's contract; the shapes were checked.
                    unsafe { self.run_segment(segment, blocks, scratch) };
                }
            }
        }
    }

    fn check(&self, task: &LinearTask) {
        let (k, out_len) = (self.weight.k(), self.weight.out_len());
        assert!(
            task.rows.end <= self.rows,
            "task {task:?} of {} rows",
            self.rows
        );
        assert!(
            self.isa.is_available(),
            "this processor lacks {}",
            self.isa.name()
        );
        assert_eq!(
            self.epilogue.joins_pairs(),
            self.weight.is_interleaved(),
            "gate and up are joined where the weight interleaves them"
        );
        if let Some(bias) = self.bias {
            let n = self.weight.out_len() << u32::from(self.weight.is_interleaved());
            assert!(bias.len() >= n, "a bias of {} for {n} rows", bias.len());
        }
        let named = self.x_rows.map_or(self.rows, <[u32]>::len);
        assert!(named >= self.rows, "{named} of {} rows named", self.rows);
        // Rows that are named are checked as they are read.
        let x_rows = if self.x_rows.is_some() { 0 } else { self.rows };
        for (what, rows, len, stride, row_len) in [
            ("x", x_rows, self.x.len(), self.x_stride, k),
            ("out", self.rows, self.out.len, self.out.stride, out_len),
        ] {
            let before = rows.checked_sub(1);
            let needed = before.map_or(0, |before| before * stride + row_len);
            assert!(
                stride >= row_len && len >= needed,
                "{what} has {len} values for {rows} rows of {row_len}, {stride} apart",
            );
        }
    }

    /// The activations of a row.
    fn x_row(&self, row: usize) -> &[f32] {
        let row = self.x_rows.map_or(row, |rows| rows[row] as usize);
        &self.x[row * self.x_stride..][..self.weight.k()]
    }

    /// # Safety
    /// As [`Self::run_task`], with checked shapes, for rows that `scratch` has begun.
    unsafe fn run_segment(
        &self,
        segment: &Segment,
        blocks: Range<usize>,
        scratch: &mut LinearScratch,
    ) {
        let kernels = LinearKernels::of(self.isa);
        let FormatKernels {
            operand,
            heights,
            direct_rows,
            tile,
            panel_tile,
            panel,
        } = kernels.of_segment(segment, self.isa);
        let tree = KTree {
            len: self.weight.k(),
            shares: self.weight.order().shares(),
        };
        let form = Form { operand, heights };
        scratch.activations.arrange(self, kernels, form, tree);
        let rows = scratch.activations.rows();
        let panel = panel.filter(|_| rows.len() > direct_rows);
        let tile_kernel = if panel.is_some() { panel_tile } else { tile };
        let last = blocks.end - 1;
        scratch.sums.release();
        for block in blocks {
            let mut weights = self.weight.block(segment, block).as_ptr();
            let mut ahead = None;
            if let Some(expand) = panel {
                let panel = scratch.panel(panel_bytes(tree));
                // SAFETY: a packed block of this format, and room for its panel; the instruction set was checked.
                unsafe { expand(weights, tree, panel.cast()) };
                weights = panel;
                ahead = (block < last).then(|| self.weight.block(segment, block + 1));
            }
            for tile in scratch.activations.tiles(self) {
                if let Some(next) = ahead {
                    ask(next, tile.first..tile.first + tile.rows, &rows);
                }
                // SAFETY: a packed block or a panel, activations arranged for this height, shares that the weight
                // was packed for, and the instruction set was checked; as this function.
                unsafe {
                    tile_kernel(tile.height)(weights, tree, tile.x, &mut scratch.sums);
                    self.finish(segment, block, &tile, scratch.sums.result());
                }
            }
        }
        scratch.sums.release();
    }

    /// Applies the epilogue to a finished tile.
    ///
    /// # Safety
    /// As [`Self::run_task`]: this task has the tile's rows and the block, and shapes were checked.
    unsafe fn finish(&self, segment: &Segment, block: usize, tile: &RowTile, sums: &[BlockRow]) {
        let columns = segment.block_columns(block, self.weight.columns_per_block());
        let bias = self.bias.map(|bias| self.bias_row(bias, &columns));
        // SAFETY: the rows and columns lie in the output and belong to this task alone.
        unsafe {
            let out = OutTile {
                at: self
                    .out
                    .at
                    .add(tile.first * self.out.stride + columns.start),
                stride: self.out.stride,
                rows: tile.rows,
                columns: columns.len(),
            };
            (LinearKernels::of(self.isa).epilogue)(self.epilogue, bias.as_ref(), sums, out);
        }
    }

    /// The bias of each lane of the block that writes `columns`.
    fn bias_row(&self, bias: &[f32], columns: &Range<usize>) -> BlockRow {
        let mut row = [0.0; BLOCK_LANES];
        if self.weight.is_interleaved() {
            let pairs = bias.as_chunks::<2>().0;
            for (lane, [gate, up]) in pairs[columns.clone()].iter().enumerate() {
                (row[lane], row[BLOCK_LANES / 2 + lane]) = (*gate, *up);
            }
        } else {
            row[..columns.len()].copy_from_slice(&bias[columns.clone()]);
        }
        row
    }
}

/// Asks memory for the part of a block that `part` is of `rows`, for a panel to come: what expands it computes too
/// little to wait for memory meanwhile.
fn ask(block: &[u8], part: Range<usize>, rows: &Range<usize>) {
    let at = |row: usize| block.len() * (row - rows.start) / rows.len();
    for line in block[at(part.start)..at(part.end)].chunks(CACHE_LINE) {
        // SAFETY: a hint; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
}

#[cfg(test)]
pub(in crate::cpu) mod tests;
