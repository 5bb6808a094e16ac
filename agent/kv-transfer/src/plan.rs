//! Which bytes go where: a pure function of both sides' layouts and page lists. Nothing here knows
//! of transports or rooms. With heads outside layers a page of a cut is one range, and so is any
//! interval of its heads, whatever the tensor-parallel sizes.

use pd_protocol::layout::{KvCut, KvGroup, KvLayout};
use std::ops::Range;

/// The pairing of one prefill rank's memory with one decode rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferPlan {
    pieces: Vec<Piece>,
    states: Vec<StateItem>,
    src_metadata: Item,
    dst_metadata: Item,
}

/// The part of a page that one pair of regions shares. Regions are numbered as in `KvArgs`: cuts,
/// states, metadata.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StateItem {
    src: Item,
    dst: Item,
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

/// What ends a room: state slots and the metadata row of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) state_indices: &'a [u32],
    pub(crate) metadata_buffer_index: u32,
}

// === impl TransferPlan ===

impl TransferPlan {
    /// Pairs two layouts that `pd_protocol::compat::check_pair` has found to fit.
    pub(crate) fn new(src: &KvLayout, dst: &KvLayout) -> Self {
        let mut pieces = Vec::new();
        let (mut src_region, mut dst_region) = (0, 0);
        for (s, d) in src.groups.iter().zip(&dst.groups) {
            pair_groups(src.page_size, (s, src_region), (d, dst_region), &mut pieces);
            src_region += s.cuts.len();
            dst_region += d.cuts.len();
        }
        let states = src.states.iter().enumerate().map(|(i, state)| {
            let item = |region| Item {
                region,
                stride: state.item_bytes,
            };
            StateItem {
                src: item(src_region + i),
                dst: item(dst_region + i),
            }
        });
        let metadata = |region: usize, layout: &KvLayout| Item {
            region: region + layout.states.len(),
            stride: layout.metadata.row_bytes() as u64,
        };
        Self {
            pieces,
            states: states.collect(),
            src_metadata: metadata(src_region, src),
            dst_metadata: metadata(dst_region, dst),
        }
    }

    /// Bytes of a page that this pair moves.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Ranges to copy for pages `src_pages[i]` → `dst_pages[i]`; neighbours on both sides merged.
    pub(crate) fn page_ranges(&self, src_pages: &[u32], dst_pages: &[u32]) -> Vec<CopyRange> {
        let mut ranges = Vec::new();
        for piece in &self.pieces {
            for (&src, &dst) in src_pages.iter().zip(dst_pages) {
                push_range(
                    &mut ranges,
                    CopyRange {
                        src_region: piece.src.region,
                        src_offset: piece.src.at(src) + piece.src_offset,
                        dst_region: piece.dst.region,
                        dst_offset: piece.dst.at(dst) + piece.dst_offset,
                        len: piece.len,
                    },
                );
            }
        }
        ranges
    }

    /// Ranges to copy for what ends a room.
    pub(crate) fn tail_ranges(&self, src: Tail<'_>, dst: Tail<'_>) -> Vec<CopyRange> {
        let spans = self.src_tail_spans(src).into_iter();
        spans
            .zip(self.dst_tail_spans(dst))
            .map(|(s, d)| CopyRange {
                src_region: s.region,
                src_offset: s.offset,
                dst_region: d.region,
                dst_offset: d.offset,
                len: s.len,
            })
            .collect()
    }

    /// The bytes of `page_ranges` on the source side, in the same order.
    pub(crate) fn src_page_spans(&self, src_pages: &[u32]) -> Vec<Span> {
        self.page_spans(src_pages, |piece| (piece.src, piece.src_offset))
    }

    /// The bytes of `page_ranges` on the destination side, in the same order.
    pub(crate) fn dst_page_spans(&self, dst_pages: &[u32]) -> Vec<Span> {
        self.page_spans(dst_pages, |piece| (piece.dst, piece.dst_offset))
    }

    pub(crate) fn src_tail_spans(&self, tail: Tail<'_>) -> Vec<Span> {
        tail_spans(self.states.iter().map(|s| s.src), self.src_metadata, tail)
    }

    pub(crate) fn dst_tail_spans(&self, tail: Tail<'_>) -> Vec<Span> {
        tail_spans(self.states.iter().map(|s| s.dst), self.dst_metadata, tail)
    }

    fn page_spans(&self, pages: &[u32], side: impl Fn(&Piece) -> (Item, u64)) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for piece in &self.pieces {
            let (item, within) = side(piece);
            for &page in pages {
                let offset = item.at(page) + within;
                match spans.last_mut() {
                    Some(last) if last.region == item.region && last.end() == offset => {
                        last.len += piece.len;
                    }
                    _ => spans.push(Span {
                        region: item.region,
                        offset,
                        len: piece.len,
                    }),
                }
            }
        }
        spans
    }
}

// === impl Span, Item ===

impl Span {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

impl Item {
    fn at(&self, index: u32) -> u64 {
        u64::from(index) * self.stride
    }

    fn span(&self, index: u32) -> Span {
        Span {
            region: self.region,
            offset: self.at(index),
            len: self.stride,
        }
    }
}

fn tail_spans(states: impl Iterator<Item = Item>, metadata: Item, tail: Tail<'_>) -> Vec<Span> {
    let slots = states.zip(tail.state_indices);
    let mut spans: Vec<Span> = slots.map(|(item, &slot)| item.span(slot)).collect();
    spans.push(metadata.span(tail.metadata_buffer_index));
    spans
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

/// Pieces of one group: every pair of cuts that share layers, over the heads that both ranks hold.
fn pair_groups(
    page_size: u32,
    (src, src_first): (&KvGroup, usize),
    (dst, dst_first): (&KvGroup, usize),
    pieces: &mut Vec<Piece>,
) {
    let heads = intersect(
        src.head_start..src.head_start + src.heads,
        dst.head_start..dst.head_start + dst.heads,
    );
    for (i, s) in src.cuts.iter().enumerate() {
        for (j, d) in dst.cuts.iter().enumerate() {
            let layers = intersect(layers(s), layers(d));
            if layers.is_empty() || heads.is_empty() {
                continue;
            }
            let src_place = Place::new(src, s, src_first + i, page_size);
            let dst_place = Place::new(dst, d, dst_first + j, page_size);
            pair_cuts(src_place, dst_place, &heads, &layers, pieces);
        }
    }
}

/// Where one rank has a head and a layer within a page of a cut.
#[derive(Clone, Copy)]
struct Place {
    item: Item,
    head_start: u32,
    first_layer: u32,
    layers: u32,
    head_bytes: u64,
    layer_bytes: u64,
}

impl Place {
    fn new(group: &KvGroup, cut: &KvCut, region: usize, page_size: u32) -> Self {
        Self {
            item: Item {
                region,
                stride: group.page_bytes(cut, page_size),
            },
            head_start: group.head_start,
            first_layer: cut.first_layer,
            layers: cut.layers,
            head_bytes: group.head_bytes(cut, page_size),
            layer_bytes: group.layer_bytes(page_size),
        }
    }

    fn offset(&self, head: u32, layer: u32) -> u64 {
        u64::from(head - self.head_start) * self.head_bytes
            + u64::from(layer - self.first_layer) * self.layer_bytes
    }
}

fn pair_cuts(
    src: Place,
    dst: Place,
    heads: &Range<u32>,
    layers: &Range<u32>,
    pieces: &mut Vec<Piece>,
) {
    let piece = |head: u32, len: u64| Piece {
        src: src.item,
        dst: dst.item,
        src_offset: src.offset(head, layers.start),
        dst_offset: dst.offset(head, layers.start),
        len,
    };
    let shared = layers.len() as u64;
    if shared == u64::from(src.layers) && shared == u64::from(dst.layers) {
        pieces.push(piece(heads.start, heads.len() as u64 * src.head_bytes));
    } else {
        pieces.extend(
            heads
                .clone()
                .map(|head| piece(head, shared * src.layer_bytes)),
        );
    }
}

fn layers(cut: &KvCut) -> Range<u32> {
    cut.first_layer..cut.first_layer + cut.layers
}

fn intersect(a: Range<u32>, b: Range<u32>) -> Range<u32> {
    a.start.max(b.start)..a.end.min(b.end)
}

#[cfg(test)]
mod tests;
