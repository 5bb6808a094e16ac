//! Which bytes go where: a pure function of both sides' layouts and of the pages, items and row that a room has
//! on each. Nothing here knows of transports or of a room's state. With heads outside layers a page of a cut is
//! one range, and so is any interval of its heads, for any tensor-parallel sizes.

mod shard_span;

use crate::ranks::{self, RankOf};
use pd_protocol::layout::{KvLayout, ParallelLayout, RankId};
use shard_span::{ShardSpan, pair};
use std::sync::Arc;

/// The pairing of one prefill rank's memory with one decode rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferPlan {
    /// Of each page.
    pages: Vec<Piece>,
    /// Of each item, by state.
    states: Vec<Vec<Piece>>,
    /// The metadata row, if it is this prefill rank that brings it.
    row: Option<Piece>,
}

/// One side of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) layout: &'a KvLayout,
    pub(crate) parallel: &'a ParallelLayout,
    pub(crate) rank: RankId,
}

/// The part of an item that one pair of regions shares. Regions are numbered as in `KvArgs`: cuts, states,
/// metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    src: Item,
    dst: Item,
    src_offset: u64,
    dst_offset: u64,
    len: u64,
}

/// Equal items of a region: pages, state slots, rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    region: usize,
    stride: u64,
}

/// `len` bytes at `offset` of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) region: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Bytes to copy from a source region to a destination region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRange {
    pub(crate) src_region: usize,
    pub(crate) src_offset: u64,
    pub(crate) dst_region: usize,
    pub(crate) dst_offset: u64,
    pub(crate) len: u64,
}

/// What follows the pages of a room: items of each state, and the metadata row, of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) state_indices: &'a [Vec<u32>],
    pub(crate) metadata_buffer_index: u32,
}

// === impl TransferPlan ===

impl TransferPlan {
    /// Pairs two layouts that `pd_protocol::compat::check_pair` has found to fit.
    pub(crate) fn new(src: End<'_>, dst: End<'_>) -> Self {
        let (p, d) = (src.layout, dst.layout);
        let mut pages = Vec::new();
        let mut regions = (0, 0);
        for (s, d) in p.groups.iter().zip(&d.groups) {
            let mut src_shards = ShardSpan::of_group(s, p.page_size, regions.0);
            src_shards.retain(|span| ranks::sends(span.shard, src.rank_of(), dst.rank_of()));
            let dst_shards = ShardSpan::of_group(d, p.page_size, regions.1);
            pages.extend(pair(&src_shards, &dst_shards));
            regions.0 += s.cuts.len();
            regions.1 += d.cuts.len();
        }
        let states = p.states.iter().zip(&d.states);
        let states = states.enumerate().map(|(nr, (s, d))| {
            let mut src_shards = ShardSpan::of_state(s, regions.0 + nr);
            src_shards.retain(|span| ranks::sends(span.shard, src.rank_of(), dst.rank_of()));
            pair(&src_shards, &ShardSpan::of_state(d, regions.1 + nr))
        });
        let states = states.collect();
        let row_bytes = p.metadata.row_bytes() as u64;
        let row = |region: usize, layout: &KvLayout| Item {
            region: region + layout.states.len(),
            stride: row_bytes,
        };
        let row = ranks::brings_row(src.rank_of(), dst.rank_of()).then(|| Piece {
            src: row(regions.0, p),
            dst: row(regions.1, d),
            src_offset: 0,
            dst_offset: 0,
            len: row_bytes,
        });
        Self { pages, states, row }
    }

    /// Bytes of a page that this pair moves.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.pages.iter().map(|piece| piece.len).sum()
    }

    /// Bytes of an item of each state that this pair moves.
    pub(crate) fn state_bytes(&self) -> impl Iterator<Item = u64> {
        let states = self.states.iter();
        states.map(|pieces| pieces.iter().map(|piece| piece.len).sum())
    }

    /// Whether a request of `pages` pages needs nothing of this pair.
    pub(crate) fn is_empty(&self, pages: usize) -> bool {
        let is_without_pages = pages == 0 || self.pages.is_empty();
        is_without_pages && self.states.iter().all(Vec::is_empty) && self.row.is_none()
    }

    /// Ranges of so many pages if none were neighbours.
    pub(crate) fn page_parts(&self, pages: usize) -> usize {
        self.pages.len() * pages
    }

    /// Ranges to copy for pages `src_pages[i]` → `dst_pages[i]`; neighbours on both sides merged.
    pub(crate) fn page_ranges(&self, src_pages: &[u32], dst_pages: &[u32]) -> Vec<CopyRange> {
        let mut ranges = Vec::new();
        push_ranges(&mut ranges, &self.pages, src_pages, dst_pages);
        ranges
    }

    /// Ranges to copy for what follows the pages of a room; both sides have as many items of each state.
    pub(crate) fn tail_ranges(&self, src: Tail<'_>, dst: Tail<'_>) -> Vec<CopyRange> {
        let mut ranges = Vec::new();
        let items = src.state_indices.iter().zip(dst.state_indices);
        for (pieces, (src_items, dst_items)) in self.states.iter().zip(items) {
            push_ranges(&mut ranges, pieces, src_items, dst_items);
        }
        let rows = (&[src.metadata_buffer_index], &[dst.metadata_buffer_index]);
        push_ranges(&mut ranges, self.row.as_slice(), rows.0, rows.1);
        ranges
    }

    /// The bytes of `page_ranges` on the source side, in the same order.
    pub(crate) fn src_page_spans(&self, src_pages: &[u32]) -> Vec<Span> {
        let mut spans = Vec::new();
        push_spans(&mut spans, &self.pages, src_pages, Piece::at_src);
        spans
    }

    /// The bytes of `page_ranges` on the destination side, in the same order.
    pub(crate) fn dst_page_spans(&self, dst_pages: &[u32]) -> Vec<Span> {
        let mut spans = Vec::new();
        push_spans(&mut spans, &self.pages, dst_pages, Piece::at_dst);
        spans
    }

    pub(crate) fn src_tail_spans(&self, tail: Tail<'_>) -> Vec<Span> {
        self.tail_spans(tail, Piece::at_src)
    }

    pub(crate) fn dst_tail_spans(&self, tail: Tail<'_>) -> Vec<Span> {
        self.tail_spans(tail, Piece::at_dst)
    }

    fn tail_spans(&self, tail: Tail<'_>, side: fn(&Piece, u32) -> Span) -> Vec<Span> {
        let mut spans = Vec::new();
        for (pieces, items) in self.states.iter().zip(tail.state_indices) {
            push_spans(&mut spans, pieces, items, side);
        }
        let row = [tail.metadata_buffer_index];
        push_spans(&mut spans, self.row.as_slice(), &row, side);
        spans
    }
}

// === impl End ===

impl End<'_> {
    fn rank_of(&self) -> RankOf<'_> {
        RankOf {
            rank: self.rank,
            parallel: self.parallel,
        }
    }
}

// === impl Span, Item, Piece ===

impl Span {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

impl Item {
    fn at(&self, index: u32) -> u64 {
        u64::from(index) * self.stride
    }
}

impl Piece {
    fn at_src(&self, index: u32) -> Span {
        Span {
            region: self.src.region,
            offset: self.src.at(index) + self.src_offset,
            len: self.len,
        }
    }

    fn at_dst(&self, index: u32) -> Span {
        Span {
            region: self.dst.region,
            offset: self.dst.at(index) + self.dst_offset,
            len: self.len,
        }
    }
}

fn push_ranges(ranges: &mut Vec<CopyRange>, pieces: &[Piece], src: &[u32], dst: &[u32]) {
    for piece in pieces {
        for (&src, &dst) in src.iter().zip(dst) {
            let (src, dst) = (piece.at_src(src), piece.at_dst(dst));
            push_range(
                ranges,
                CopyRange {
                    src_region: src.region,
                    src_offset: src.offset,
                    dst_region: dst.region,
                    dst_offset: dst.offset,
                    len: piece.len,
                },
            );
        }
    }
}

fn push_range(ranges: &mut Vec<CopyRange>, next: CopyRange) {
    let follows = |last: &CopyRange| {
        (last.src_region, last.dst_region) == (next.src_region, next.dst_region)
            && last.src_offset + last.len == next.src_offset
            && last.dst_offset + last.len == next.dst_offset
    };
    match ranges.last_mut() {
        Some(last) if follows(last) => last.len += next.len,
        _ => ranges.push(next),
    }
}

fn push_spans(
    spans: &mut Vec<Span>,
    pieces: &[Piece],
    items: &[u32],
    side: impl Fn(&Piece, u32) -> Span,
) {
    for piece in pieces {
        for &item in items {
            let next = side(piece, item);
            match spans.last_mut() {
                Some(last) if last.region == next.region && last.end() == next.offset => {
                    last.len += next.len;
                }
                _ => spans.push(next),
            }
        }
    }
}

/// Whether what a decode rank's sources bring is all of its pages, items and row, and nothing twice.
///
/// # Errors
/// Says of what there is too much or too little.
pub(crate) fn check_whole(layout: &KvLayout, plans: &[&TransferPlan]) -> Result<(), String> {
    let wrong = |of: &str, brought: u64, own: u64| {
        format!("prefill's ranks bring {brought} bytes of {of}, but decode's has {own}")
    };
    let cuts = layout.regions();
    let own = cuts.map(|(group, cut)| group.page_bytes(cut, layout.page_size));
    let (brought, own) = (plans.iter().map(|plan| plan.page_bytes()).sum(), own.sum());
    if brought != own {
        return Err(wrong("a page", brought, own));
    }
    for (nr, state) in layout.states.iter().enumerate() {
        let brought = plans.iter().filter_map(|plan| plan.state_bytes().nth(nr));
        let (brought, own) = (brought.sum(), state.item_bytes());
        if brought != own {
            return Err(wrong(
                &format!("an item of state {}", state.name),
                brought,
                own,
            ));
        }
    }
    match plans.iter().filter(|plan| plan.row.is_some()).count() {
        1 => Ok(()),
        rows => Err(format!("{rows} of prefill's ranks bring the metadata row")),
    }
}

/// A [`Tail`] that a queue can hold.
#[derive(Clone, Debug)]
pub(crate) struct OwnedTail {
    pub(crate) state_indices: Arc<[Vec<u32>]>,
    pub(crate) metadata_buffer_index: u32,
}

impl OwnedTail {
    pub(crate) fn as_tail(&self) -> Tail<'_> {
        Tail {
            state_indices: &self.state_indices,
            metadata_buffer_index: self.metadata_buffer_index,
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
