//! The parts of a page or of a state's item that a rank holds, and those that two ranks share.

use super::{Item, Piece};
use crate::ranks::Shard;
use pd_protocol::layout::{KvCut, KvGroup, StateLayout};
use std::ops::Range;

/// Where one rank has some heads (or places of a state's dim) and layers within an item of a region.
#[derive(Clone, Copy)]
pub(super) struct ShardSpan<'a> {
    item: Item,
    /// What is paired.
    name: &'a str,
    pub(super) shard: Shard,
    first_layer: u32,
    layers: u32,
    layer_bytes: u64,
    /// Where it begins in the item.
    offset: u64,
}

impl<'a> ShardSpan<'a> {
    /// A span per cut; `first` is the region of the first.
    pub(super) fn of_group(group: &'a KvGroup, page_size: u32, first: usize) -> Vec<Self> {
        let cuts = group.cuts.iter().enumerate();
        let span = |(nr, cut): (usize, &KvCut)| Self {
            item: Item {
                region: first + nr,
                stride: group.page_bytes(cut, page_size),
            },
            name: &group.name,
            shard: Shard::of_group(group),
            first_layer: cut.first_layer,
            layers: cut.layers,
            layer_bytes: group.layer_bytes(page_size),
            offset: 0,
        };
        cuts.map(span).collect()
    }

    /// A span per tensor.
    pub(super) fn of_state(state: &'a StateLayout, region: usize) -> Vec<Self> {
        let stride = state.item_bytes();
        let spans = state.offsets().map(|(tensor, offset)| Self {
            item: Item { region, stride },
            name: &tensor.name,
            shard: Shard::of_tensor(tensor),
            first_layer: tensor.first_layer,
            layers: tensor.layers,
            layer_bytes: tensor.layer_bytes,
            offset,
        });
        spans.collect()
    }

    fn head_bytes(&self) -> u64 {
        u64::from(self.layers) * self.layer_bytes
    }

    fn layers(&self) -> Range<u32> {
        self.first_layer..self.first_layer + self.layers
    }

    fn at(&self, head: u32, layer: u32) -> u64 {
        self.offset
            + u64::from(head - self.shard.start) * self.head_bytes()
            + u64::from(layer - self.first_layer) * self.layer_bytes
    }
}

/// Every pair of places that share heads and layers.
pub(super) fn pair(src: &[ShardSpan<'_>], dst: &[ShardSpan<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for s in src {
        for d in dst.iter().filter(|d| d.name == s.name) {
            let heads = intersect(s.shard.range(), d.shard.range());
            let layers = intersect(s.layers(), d.layers());
            if !layers.is_empty() && !heads.is_empty() {
                pair_places(s, d, &heads, &layers, &mut pieces);
            }
        }
    }
    pieces
}

/// One piece where both have the same layers, so that neighbouring heads are one range; else one per head.
fn pair_places(
    src: &ShardSpan<'_>,
    dst: &ShardSpan<'_>,
    heads: &Range<u32>,
    layers: &Range<u32>,
    pieces: &mut Vec<Piece>,
) {
    let piece = |head: u32, len: u64| Piece {
        src: src.item,
        dst: dst.item,
        src_offset: src.at(head, layers.start),
        dst_offset: dst.at(head, layers.start),
        len,
    };
    if *layers == src.layers() && *layers == dst.layers() {
        pieces.push(piece(heads.start, heads.len() as u64 * src.head_bytes()));
    } else {
        let len = layers.len() as u64 * src.layer_bytes;
        pieces.extend(heads.clone().map(|head| piece(head, len)));
    }
}

fn intersect(a: Range<u32>, b: Range<u32>) -> Range<u32> {
    a.start.max(b.start)..a.end.min(b.end)
}
