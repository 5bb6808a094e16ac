//! Tiles: consecutive queries of one sequence under one KV head. Row r of a tile is query
//! `first_query + r / group`, query head `kv_head·group + r % group`, so later rows see more keys.

use super::keys::KeyPlaces;
use super::op::Attention;
use crate::cpu::simd::sixteen::LANES;
use crate::ops::ATTN_BLOCK_LEN;
use std::ops::Range;

/// Rows (queries × query heads) of a tile: their scores and sums stay in the L1 and L2 caches
/// while the block's keys and values are used for all of them.
const TILE_ROWS: usize = 128;

pub(super) struct Tile<'a> {
    pub(super) op: &'a Attention,
    pub(super) kv_head: usize,
    /// Row of the batch of the tile's first query.
    pub(super) first_token: usize,
    /// Its absolute position.
    first_position: usize,
    num_queries: usize,
    pub(super) kv_len: usize,
    pub(super) pages: &'a [u32],
}

/// Blocks of a tile that one thread attends.
pub(super) struct Run<'a> {
    pub(super) tile: &'a Tile<'a>,
    pub(super) blocks: Range<usize>,
}

// === impl Run ===

impl<'a> Run<'a> {
    pub(super) fn whole(tile: &'a Tile<'a>) -> Self {
        let blocks = tile.blocks();
        Self { tile, blocks }
    }

    /// Blocks with their keys, and with the keys of what the thread attends after each, if its next run is `then`.
    pub(super) fn blocks_of_keys(
        &self,
        then: Option<&Self>,
    ) -> impl Iterator<Item = (usize, KeyPlaces, Option<KeyPlaces>)> {
        let mut next = Some(KeyPlaces::new(self.tile, self.blocks.start));
        self.blocks.clone().map(move |block| {
            let keys = next.take().expect("a run's blocks follow each other");
            next = self.after(block, then);
            (block, keys, next.clone())
        })
    }

    fn after(&self, block: usize, then: Option<&Self>) -> Option<KeyPlaces> {
        let (run, block) = if block + 1 < self.blocks.end {
            (self, block + 1)
        } else {
            then.map(|then| (then, then.blocks.start))?
        };
        run.blocks
            .contains(&block)
            .then(|| KeyPlaces::new(run.tile, block))
    }
}

// === impl Attention ===

impl Attention {
    /// All tiles of the batch. Within a sequence the last queries, which see the most keys, come
    /// first, so that threads end together.
    pub(super) fn tiles(&self) -> Vec<Tile<'_>> {
        // SAFETY: on the queue; the op writes only `out`.
        let (q_indptr, kv_lens, page_table) = unsafe {
            (
                self.q_indptr.slice(),
                self.kv_lens.slice(),
                self.page_table.slice(),
            )
        };
        let tile_queries = (TILE_ROWS / self.group).max(1);
        let mut tiles = Vec::new();
        for seq in 0..self.num_seqs {
            let queries = q_indptr[seq] as usize..q_indptr[seq + 1] as usize;
            let kv_len = kv_lens[seq] as usize;
            let pages_len = kv_len.div_ceil(self.layer.page_size);
            assert!(
                queries.start <= queries.end
                    && queries.end <= self.num_tokens
                    && queries.len() <= kv_len
                    && pages_len <= self.page_table_stride,
                "sequence {seq}: queries {queries:?} of {} tokens, {kv_len} keys in rows of {} pages",
                self.num_tokens,
                self.page_table_stride
            );
            let pages = &page_table[seq * self.page_table_stride..][..pages_len];
            let tiles_of_seq = queries.len().div_ceil(tile_queries);
            for tile in (0..tiles_of_seq).rev() {
                let first = tile * tile_queries;
                let num_queries = tile_queries.min(queries.len() - first);
                tiles.extend((0..self.layer.num_kv_heads).map(|kv_head| Tile {
                    op: self,
                    kv_head,
                    first_token: queries.start + first,
                    first_position: kv_len - queries.len() + first,
                    num_queries,
                    kv_len,
                    pages,
                }));
            }
        }
        tiles
    }
}

// === impl Tile ===

impl Tile<'_> {
    pub(super) fn rows(&self) -> usize {
        self.num_queries * self.op.group
    }

    /// Blocks from the first query's first key to the last query's own.
    pub(super) fn blocks(&self) -> Range<usize> {
        let (first, last) = (self.seen(0), self.seen(self.rows() - 1));
        first.start / ATTN_BLOCK_LEN..last.end.div_ceil(ATTN_BLOCK_LEN)
    }

    /// Positions that row r sees. Neither end falls from row to row.
    fn seen(&self, row: usize) -> Range<usize> {
        let end = self.first_position + row / self.op.group + 1;
        end.saturating_sub(self.op.window)..end
    }

    /// Keys of the block that row r sees.
    pub(super) fn visible(&self, row: usize, block: usize) -> Range<usize> {
        let Range { start, end } = self.seen(row);
        let end = within(end, block);
        within(start, block).min(end)..end
    }

    /// Rows that see any of the block.
    pub(super) fn rows_of(&self, block: usize) -> Range<usize> {
        let sees = |row: &usize| !self.visible(*row, block).is_empty();
        let rows = self.rows();
        let first = (0..rows).find(sees).unwrap_or(rows);
        let last = (first..rows).rev().find(sees);
        first..last.map_or(first, |last| last + 1)
    }

    /// Keys of the block that are read: the first row's first, and all that are written after it.
    /// What lies before may have been given away.
    pub(super) fn keys_in(&self, block: usize) -> Range<usize> {
        within(self.seen(0).start, block)..within(self.kv_len, block)
    }

    /// Query head of row r.
    pub(super) fn head_of(&self, row: usize) -> usize {
        self.kv_head * self.op.group + row % self.op.group
    }

    /// Row r's elements within a row-major matrix of batch tokens with `stride` elements each, `head_dim` for a
    /// head.
    pub(super) fn span_of(&self, row: usize, stride: usize, head_dim: usize) -> Range<usize> {
        let token = self.first_token + row / self.op.group;
        let at = token * stride + self.head_of(row) * head_dim;
        at..at + head_dim
    }

    /// A key's elements in whole vectors.
    pub(super) fn padded_key_dim(&self) -> usize {
        self.op.layer.head_dim.next_multiple_of(LANES)
    }

    /// A value's elements in whole vectors.
    pub(super) fn padded_value_dim(&self) -> usize {
        self.op.value_dim.next_multiple_of(LANES)
    }

    pub(super) fn padded_rows(&self) -> usize {
        self.rows().next_multiple_of(LANES)
    }

    /// Elements of a state: maxima, sums of weights, weighted values.
    pub(super) fn state_len(&self) -> usize {
        2 * self.padded_rows() + self.rows() * self.padded_value_dim()
    }
}

/// A position as a place within the block, its ends at most.
fn within(position: usize, block: usize) -> usize {
    position
        .saturating_sub(block * ATTN_BLOCK_LEN)
        .min(ATTN_BLOCK_LEN)
}
