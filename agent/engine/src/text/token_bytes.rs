//! The bytes of each token, in one table. Byte-level vocabularies write every byte as a printable
//! character; SentencePiece ones write a space as `▁` and bytes as `<0x0A>`.

use std::ops::Range;

/// How a vocabulary's entries spell bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    ByteLevel,
    SentencePiece,
}

/// Bytes of token `id` at `ends[id - 1]..ends[id]`.
#[derive(Debug, Default)]
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

// === impl TokenBytes ===

impl TokenBytes {
    /// The table of the entries of ids 0, 1, …; an id without an entry stands for no bytes.
    pub(super) fn new(entries: impl Iterator<Item = Option<String>>, spelling: Spelling) -> Self {
        let mut table = Self::default();
        for entry in entries {
            match (entry, spelling) {
                (None, _) => {}
                (Some(entry), Spelling::ByteLevel) => table.push_byte_level(&entry),
                (Some(entry), Spelling::SentencePiece) => table.push_sentence_piece(&entry),
            }
            table.ends.push(table.bytes.len());
        }
        table
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        let starts = std::iter::once(&0).chain(&self.ends);
        let lens = starts.zip(&self.ends).map(|(start, end)| end - start);
        lens.max().unwrap_or(0)
    }

    fn range(&self, id: u32) -> Option<Range<usize>> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        Some(start..end)
    }

    /// Empty for an id outside the vocabulary.
    pub(super) fn get(&self, id: u32) -> &[u8] {
        self.range(id).map_or(&[], |range| &self.bytes[range])
    }

    /// An entry with a character that spells no byte, as added tokens may have, is plain text.
    fn push_byte_level(&mut self, entry: &str) {
        let start = self.bytes.len();
        for letter in entry.chars() {
            let Some(byte) = byte_of(letter) else {
                self.bytes.truncate(start);
                self.bytes.extend_from_slice(entry.as_bytes());
                return;
            };
            self.bytes.push(byte);
        }
    }

    fn push_sentence_piece(&mut self, entry: &str) {
        let hex = entry
            .strip_prefix("<0x")
            .and_then(|rest| rest.strip_suffix('>'));
        let byte = hex
            .filter(|hex| hex.len() == 2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => self.bytes.push(byte),
            None => self
                .bytes
                .extend_from_slice(entry.replace('▁', " ").as_bytes()),
        }
    }
}

/// Bytes that a byte-level vocabulary spells as themselves (in Latin-1); the others take the
/// characters from U+0100 on, in ascending order.
const SPELLED_AS_THEMSELVES: [std::ops::RangeInclusive<u8>; 3] =
    [b'!'..=b'~', 0xA1..=0xAC, 0xAE..=0xFF];

fn byte_of(letter: char) -> Option<u8> {
    let itself = |byte: &u8| {
        SPELLED_AS_THEMSELVES
            .iter()
            .any(|range| range.contains(byte))
    };
    match u8::try_from(letter) {
        Ok(byte) => Some(byte).filter(itself),
        Err(_) => {
            let place = u32::from(letter).checked_sub(0x100)? as usize;
            (0..=u8::MAX).filter(|byte| !itself(byte)).nth(place)
        }
    }
}

#[cfg(test)]
mod tests;
