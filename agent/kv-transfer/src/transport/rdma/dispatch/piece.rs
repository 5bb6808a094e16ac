//! How ranges become writes: long ones are cut, and what is one range at its destination is gathered from
//! several at its source.

use crate::plan::CopyRange;

/// Longest piece: enough to keep a NIC busy, short enough that lanes share a long range.
pub(super) const PIECE_BYTES: u64 = 1 << 20;
/// Most ranges that a piece is gathered from. Source: Mooncake's `max_sge`.
pub(crate) const SOURCES_MAX: usize = 4;

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) src_region: usize,
    sources: [Source; SOURCES_MAX],
    count: usize,
    pub(crate) dst_region: usize,
    pub(crate) dst_offset: u64,
    pub(crate) len: u32,
    /// Which of its transfer's chunks it is of.
    pub(crate) chunk: usize,
    past: Past,
}

/// A piece to write, or the end of a transfer on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkItem {
    Piece(Piece),
    Final { attempt: u8, lanes: u8 },
}

/// How far a piece came on rails that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Past {
    None,
    Posted,
    Completed,
}

/// A range of the piece's source region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The writes for `ranges` of a chunk, each gathered from `gather_max` sources at most.
pub(crate) fn pieces(
    ranges: impl IntoIterator<Item = CopyRange>,
    gather_max: usize,
    chunk: usize,
) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for mut rest in ranges {
        while rest.len > 0 {
            let last = pieces.last_mut();
            let taken = match last.filter(|piece| piece.takes(&rest, gather_max)) {
                Some(piece) => piece.gather(&rest),
                None => {
                    let mut piece = Piece::empty(&rest, chunk);
                    let taken = piece.gather(&rest);
                    pieces.push(piece);
                    taken
                }
            };
            rest.src_offset += taken;
            rest.dst_offset += taken;
            rest.len -= taken;
        }
    }
    pieces
}

// === impl Piece ===

impl Piece {
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources[..self.count]
    }

    /// Whether it was posted before, on a rail that failed.
    pub(crate) fn is_retry(&self) -> bool {
        self.past > Past::None
    }

    /// Whether it was completed before, on a rail that failed.
    pub(super) fn was_completed(&self) -> bool {
        self.past == Past::Completed
    }

    pub(super) fn after(self, past: Past) -> Self {
        Self {
            past: self.past.max(past),
            ..self
        }
    }

    fn empty(range: &CopyRange, chunk: usize) -> Self {
        Self {
            src_region: range.src_region,
            sources: [Source::default(); SOURCES_MAX],
            count: 0,
            dst_region: range.dst_region,
            dst_offset: range.dst_offset,
            len: 0,
            chunk,
            past: Past::None,
        }
    }

    /// Whether `next` follows at the destination and there is place for it.
    fn takes(&self, next: &CopyRange, gather_max: usize) -> bool {
        let len = u64::from(self.len);
        (self.src_region, self.dst_region) == (next.src_region, next.dst_region)
            && self.dst_offset + len == next.dst_offset
            && self.count < gather_max.min(SOURCES_MAX)
            && len < PIECE_BYTES
    }

    /// Adds as much of a range as there is place for; how much that was.
    fn gather(&mut self, range: &CopyRange) -> u64 {
        let taken = range.len.min(PIECE_BYTES - u64::from(self.len));
        let len = u32::try_from(taken).expect("no more than PIECE_BYTES");
        self.sources[self.count] = Source {
            offset: range.src_offset,
            len,
        };
        self.count += 1;
        self.len += len;
        taken
    }
}

// === impl WorkItem ===

impl WorkItem {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Piece(piece) => u64::from(piece.len),
            Self::Final { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Facts about gathering.

    use super::*;
    use proptest::prelude::*;

    fn range(src_offset: u64, dst_offset: u64, len: u64) -> CopyRange {
        CopyRange {
            src_region: 0,
            src_offset,
            dst_region: 0,
            dst_offset,
            len,
        }
    }

    #[test]
    fn neighbours_at_the_destination_are_one_write() {
        let scattered = (0..6).map(|page| range(page * 1000, page * 100, 100));
        let pieces = pieces(scattered, 4, 0);
        let sizes: Vec<(u32, usize)> = pieces.iter().map(|p| (p.len, p.sources().len())).collect();
        assert_eq!(sizes, [(400, 4), (200, 2)]);
    }

    #[test]
    fn a_long_range_is_cut_and_its_end_gathers_the_next() {
        let ranges = [
            range(0, 0, PIECE_BYTES + 10),
            range(1 << 30, PIECE_BYTES + 10, 5),
        ];
        let pieces = pieces(ranges, 4, 0);
        assert_eq!(pieces.len(), 2);
        assert_eq!((pieces[1].len, pieces[1].sources().len()), (15, 2));
    }

    proptest! {
        #[test]
        fn every_byte_comes_from_where_it_should(
            ranges in prop::collection::vec((0u64..9, 0u64..3, 1u64..400_000), 1..12),
            gather_max in 1usize..6,
        ) {
            let mut at = 0;
            let ranges: Vec<CopyRange> = ranges
                .into_iter()
                .map(|(src, gap, len)| {
                    let dst_offset = at + gap;
                    at = dst_offset + len;
                    range(src << 32, dst_offset, len)
                })
                .collect();
            let mut copied = Vec::new();
            for piece in pieces(ranges.clone(), gather_max, 3) {
                prop_assert!(u64::from(piece.len) <= PIECE_BYTES);
                prop_assert!((1..=gather_max.min(SOURCES_MAX)).contains(&piece.sources().len()));
                let mut dst = piece.dst_offset;
                for source in piece.sources() {
                    copied.push((source.offset, dst, u64::from(source.len)));
                    dst += u64::from(source.len);
                }
                prop_assert_eq!(dst, piece.dst_offset + u64::from(piece.len));
            }
            // What was cut is put together again.
            copied.dedup_by(|next, last| {
                let follows = (last.0 + last.2, last.1 + last.2) == (next.0, next.1);
                if follows {
                    last.2 += next.2;
                }
                follows
            });
            let mut whole: Vec<_> = ranges.iter().map(|r| (r.src_offset, r.dst_offset, r.len)).collect();
            whole.dedup_by(|next, last| {
                let follows = (last.0 + last.2, last.1 + last.2) == (next.0, next.1);
                if follows {
                    last.2 += next.2;
                }
                follows
            });
            prop_assert_eq!(copied, whole);
        }
    }
}
