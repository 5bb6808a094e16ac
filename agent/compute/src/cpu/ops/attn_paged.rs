//! Paged attention: which tiles there are, and who computes them.
//!
//! A tile is some consecutive queries of one sequence, for all query heads of one KV head. Each
//! block of 64 keys at absolute positions is attended by itself ([`block`]), then folded into the
//! tile's state in ascending order. So a query's result depends on its own keys alone, and blocks
//! may be computed by different threads: with too few tiles for the threads, runs of blocks become
//! tasks of their own and are folded afterwards, to the same bits.

mod ahead;
mod block;
mod fold;
mod keys;
mod matmul;
mod op;
mod pairs;
mod products;
mod tile;

use crate::cpu::handle::{CpuBackend, CpuConfig};
use crate::cpu::isa::Isa;
use crate::cpu::kv_layer::KvLayer;
use crate::cpu::places::Places;
use crate::cpu::queue::Exec;
use crate::cpu::simd::sixteen::LANES;
use crate::dtype::{ComputeDtype, DType};
use crate::ops::{AttnPaged, AttnValues};
use block::{AttendBlock, BlockScratch};
use fold::{Finish, FoldBlock, reset};
use op::{Attention, Gate, Multiplies};
use std::cell::RefCell;
use std::ops::Range;
use tile::{Run, Tile};

/// Blocks in a task when tiles are split.
const SPLIT_BLOCKS: usize = 4;

thread_local! {
    /// Per worker: memory of one block, partial sums and state of one tile.
    static SCRATCH: RefCell<(BlockScratch, Vec<f32>, Vec<f32>)> = RefCell::default();
}

pub(in crate::cpu) fn attn_paged(
    op: AttnPaged<'_, CpuBackend>,
    config: CpuConfig,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let (q_len, value_dim) = (op.q_len(), op.value_dim());
    let AttnPaged {
        q,
        q_row_stride,
        num_q_heads,
        scale,
        batch,
        kv,
        kv_scales,
        layer,
        window,
        sinks,
        softcap,
        values,
        gate,
        out,
    } = op;
    let (rows, seqs) = (batch.num_tokens, batch.num_seqs);
    let row_len = num_q_heads * value_dim;
    let are_bf16 = config.compute_dtype == ComputeDtype::BF16
        && kv.dtype == DType::BF16
        && kv.head_dim.is_multiple_of(2 * LANES)
        && value_dim.is_multiple_of(LANES);
    let kv_layer = KvLayer::new(kv, kv_scales, layer);
    let attention = Attention {
        q: q.src("attn q", q_len),
        q_row_stride,
        group: num_q_heads / kv.num_kv_heads,
        scale,
        q_indptr: batch.q_indptr.src("q_indptr", seqs + 1),
        kv_lens: batch.kv_lens.src("kv_lens", seqs),
        page_table: batch
            .page_table
            .src("page_table", seqs * batch.page_table_stride),
        page_table_stride: batch.page_table_stride,
        num_seqs: seqs,
        num_tokens: rows,
        value_dim,
        to_value: match values {
            AttnValues::Own => kv_layer.kv_stride,
            AttnValues::OfKey(_) => 0,
        },
        layer: kv_layer,
        window: window.unwrap_or(usize::MAX),
        sinks: sinks.map(|sinks| sinks.src("attn sinks", num_q_heads)),
        softcap,
        gate: gate.map(|gate| Gate {
            rows: gate.values.src("attn gate", gate.len(rows, row_len)),
            row_stride: gate.row_stride,
        }),
        multiplies: match config.isa {
            _ if !are_bf16 => Multiplies::Floats,
            Isa::Amx => Multiplies::Tiles,
            Isa::Avx512Bf16 => Multiplies::Pairs,
            Isa::Scalar | Isa::Avx2 | Isa::Avx512 | Isa::Avx512Vnni => Multiplies::Floats,
        },
        out: out.dst("attn out", rows * row_len),
    };
    move |exec| attention.run(exec)
}

// === impl Attention ===

impl Attention {
    fn run(&self, exec: &Exec<'_>) {
        let isa = exec.isa;
        let tiles = self.tiles();
        let blocks_max = tiles
            .iter()
            .map(|tile| tile.blocks().len())
            .max()
            .unwrap_or(0);
        if tiles.len() < 2 * exec.threads.count() && blocks_max > SPLIT_BLOCKS {
            self.run_split(exec, &tiles, blocks_max);
            return;
        }
        let threads = exec.threads.count();
        exec.threads.run(tiles.len(), |i, _| {
            let tile = &tiles[i];
            let run = Run::whole(tile);
            let then = tiles.get(i + threads).map(Run::whole);
            SCRATCH.with_borrow_mut(|(scratch, partial, state)| {
                partial.resize(tile.state_len(), 0.0);
                reset(tile, state);
                // SAFETY: on the queue; scratch belongs to this thread.
                unsafe { scratch.begin(tile) };
                for (block, keys, next) in run.blocks_of_keys(then.as_ref()) {
                    // SAFETY: as above.
                    unsafe {
                        isa.dispatch(AttendBlock {
                            tile,
                            block,
                            places: &keys,
                            next: next.as_ref(),
                            scratch,
                            partial,
                        });
                        isa.dispatch(FoldBlock {
                            tile,
                            partial,
                            state,
                        });
                    }
                }
                scratch.end();
                // SAFETY: on the queue; tiles write disjoint parts of `out`.
                unsafe { isa.dispatch(Finish { tile, state }) };
            });
        });
    }

    /// First all blocks, each into a place of its own, then the folds.
    fn run_split(&self, exec: &Exec<'_>, tiles: &[Tile<'_>], blocks_max: usize) {
        let isa = exec.isa;
        let stride = tiles.iter().map(Tile::state_len).max().unwrap_or(0);
        let mut partials = vec![0.0; tiles.len() * blocks_max * stride];
        let places = Places::new(&mut partials, stride);
        let runs_per_tile = blocks_max.div_ceil(SPLIT_BLOCKS);
        let run_of = |i: usize| {
            let tile = tiles.get(i / runs_per_tile)?;
            let Range { start, end } = tile.blocks();
            let first = start + i % runs_per_tile * SPLIT_BLOCKS;
            let blocks = first..end.min(first + SPLIT_BLOCKS);
            Some(Run { tile, blocks })
        };
        let threads = exec.threads.count();
        exec.threads.run(tiles.len() * runs_per_tile, |i, _| {
            let run = run_of(i).expect("there are as many tasks as runs");
            let (tile, then) = (run.tile, run_of(i + threads));
            SCRATCH.with_borrow_mut(|(scratch, _, _)| {
                // SAFETY: on the queue; scratch belongs to this thread.
                unsafe { scratch.begin(tile) };
                for (block, keys, next) in run.blocks_of_keys(then.as_ref()) {
                    let nth = block - tile.blocks().start;
                    // SAFETY: on the queue; each block of each tile is attended once, in its place.
                    unsafe {
                        let place = i / runs_per_tile * blocks_max + nth;
                        let partial = places.get(place, tile.state_len());
                        isa.dispatch(AttendBlock {
                            tile,
                            block,
                            places: &keys,
                            next: next.as_ref(),
                            scratch,
                            partial,
                        });
                    }
                }
                scratch.end();
            });
        });
        exec.threads.run(tiles.len(), |i, _| {
            let tile = &tiles[i];
            SCRATCH.with_borrow_mut(|(_, _, state)| {
                reset(tile, state);
                for nth in 0..tile.blocks().len() {
                    let at = (i * blocks_max + nth) * stride;
                    let partial = &partials[at..at + tile.state_len()];
                    // SAFETY: scratch belongs to this thread.
                    unsafe {
                        isa.dispatch(FoldBlock {
                            tile,
                            partial,
                            state,
                        })
                    };
                }
                // SAFETY: on the queue; tiles write disjoint parts of `out`.
                unsafe { isa.dispatch(Finish { tile, state }) };
            });
        });
    }
}

#[cfg(test)]
mod tests;
