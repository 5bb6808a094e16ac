//! A cursor over untrusted bytes: every read is checked against what is left and names its field.

use super::ParseError;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    fn truncated(&self, field: &'static str, needed: u64) -> ParseError {
        ParseError::Truncated {
            field,
            offset: self.offset,
            needed,
            left: self.left(),
        }
    }

    /// An error about the value of `width` bytes that was read last.
    pub(super) fn invalid(
        &self,
        width: usize,
        field: &'static str,
        value: impl ToString,
        expected: &str,
    ) -> ParseError {
        ParseError::Invalid {
            field,
            offset: self.offset - width,
            value: value.to_string(),
            expected: expected.to_owned(),
        }
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], ParseError> {
        let Some(chunk) = self.bytes[self.offset..].first_chunk::<N>() else {
            return Err(self.truncated(field, N as u64));
        };
        self.offset += N;
        Ok(*chunk)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, ParseError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, ParseError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A number of items of at least `min_bytes` each, so that a corrupt count cannot make the
    /// parser allocate or loop beyond the file.
    pub(super) fn count(
        &mut self,
        field: &'static str,
        min_bytes: usize,
    ) -> Result<usize, ParseError> {
        let count = self.u64(field)?;
        let needed = count.saturating_mul(min_bytes as u64);
        match usize::try_from(count) {
            Ok(count) if needed <= self.left() as u64 => Ok(count),
            _ => Err(self.truncated(field, needed)),
        }
    }

    pub(super) fn string(&mut self, field: &'static str) -> Result<&'a str, ParseError> {
        let len = self.count(field, 1)?;
        let bytes = &self.bytes[self.offset..self.offset + len];
        let text = std::str::from_utf8(bytes).map_err(|error| ParseError::Invalid {
            field,
            offset: self.offset + error.valid_up_to(),
            value: "not UTF-8".to_owned(),
            expected: "UTF-8 text".to_owned(),
        })?;
        self.offset += len;
        Ok(text)
    }
}
