//! Random changes of known inputs, several at once: less than libFuzzer finds by coverage, but without a build of its own.

/// Changes of one input at most.
const CHANGES_MAX: usize = 6;
/// Longest input.
const BYTES_MAX: usize = 8192;
/// What text formats and our own are made of.
const WORDS: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551615",
    b"\\ud800",
    b"\r\n",
    b"\n\n",
    b"data: ",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\x81",
    b"{{",
    b"{%",
    b"&a",
    b"*a",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x8e\x89",
];

/// A sequence of numbers (xorshift64*).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        usize::try_from(drawn % (end.max(1) as u64)).unwrap_or(0)
    }

    /// One of `known`, changed.
    pub(crate) fn input(&mut self, known: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = known[self.below(known.len())].clone();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut bytes, known);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, known: &[Vec<u8>]) {
        let at = self.below(bytes.len());
        let end = (at + self.below(16) + 1).min(bytes.len());
        match self.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = WORDS[self.below(WORDS.len())][0],
            2 => drop(bytes.drain(at.min(end)..end)),
            3 => bytes.truncate(at),
            4 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            5 => {
                let word = WORDS[self.below(WORDS.len())];
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at..end, word.iter().copied());
            }
            _ => {
                // A part of another input, or of this one.
                let other = &known[self.below(known.len())];
                let from = self.below(other.len());
                let len = self.below(64).min(other.len() - from);
                bytes.splice(at..at, other[from..from + len].iter().copied());
            }
        }
    }
}
