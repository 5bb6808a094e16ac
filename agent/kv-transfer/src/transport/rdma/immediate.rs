//! The 32 bits that a lane's last write carries.

use pd_protocol::control::Generation;

const ROW_BITS: u32 = 14;
const GENERATION_BITS: u32 = 8;
const ATTEMPT_BITS: u32 = 4;
const LANES_BITS: u32 = 6;

/// Rows that an immediate can name.
pub(crate) const ROWS_MAX: u32 = 1 << ROW_BITS;
/// Lanes that a room can use.
pub(crate) const LANES_MAX: usize = (1 << LANES_BITS) - 1;
/// Rails may fail under a room this often.
pub(crate) const ATTEMPT_MAX: u8 = (1 << ATTEMPT_BITS) - 1;

/// Proves that a lane carries: no room ends on zero lanes.
pub(crate) const PROBE: u32 = 0;

/// A lane has delivered all that it carries of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Final {
    /// The room's metadata row: no two rooms have one at once.
    pub(crate) row: u32,
    /// Low bits of the room's generation.
    pub(crate) generation: u8,
    /// 0 at first, one more with each rail that failed under the room.
    pub(crate) attempt: u8,
    /// Lanes that end with such an immediate; at least one.
    pub(crate) lanes: u8,
}

// === impl Final ===

impl Final {
    pub(crate) fn low_bits(generation: Generation) -> u8 {
        generation.0.to_le_bytes()[0]
    }

    pub(crate) fn encode(self) -> u32 {
        let Self {
            row,
            generation,
            attempt,
            lanes,
        } = self;
        let fields = [
            (row, ROW_BITS),
            (generation.into(), GENERATION_BITS),
            (attempt.into(), ATTEMPT_BITS),
            (lanes.into(), LANES_BITS),
        ];
        fields.into_iter().fold(0, |word, (field, bits)| {
            debug_assert!(field < 1 << bits, "{field} has more than {bits} bits");
            word << bits | field
        })
    }

    /// `None` for a probe.
    pub(crate) fn decode(mut word: u32) -> Option<Self> {
        let mut take = |bits: u32| {
            let field = word & ((1 << bits) - 1);
            word >>= bits;
            field
        };
        let byte = |field: u32| u8::try_from(field).expect("a field of 8 bits at most");
        let lanes = byte(take(LANES_BITS));
        let attempt = byte(take(ATTEMPT_BITS));
        let generation = byte(take(GENERATION_BITS));
        let row = take(ROW_BITS);
        (lanes > 0).then_some(Self {
            row,
            generation,
            attempt,
            lanes,
        })
    }
}

#[cfg(test)]
mod tests {
    //! Facts about the packing.

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_fields_fill_a_word() {
        assert_eq!(ROW_BITS + GENERATION_BITS + ATTEMPT_BITS + LANES_BITS, 32);
        assert_eq!(Final::decode(PROBE), None);
        let word = Final {
            row: 3,
            generation: 0x12,
            attempt: 1,
            lanes: 2,
        };
        assert_eq!(word.encode(), 3 << 18 | 0x12 << 10 | 1 << 6 | 2);
    }

    proptest! {
        #[test]
        fn every_final_reads_back(
            row in 0..ROWS_MAX,
            generation: u8,
            attempt in 0..=ATTEMPT_MAX,
            lanes in 1u8..=63,
        ) {
            let word = Final { row, generation, attempt, lanes };
            prop_assert_eq!(Final::decode(word.encode()), Some(word));
        }
    }
}
