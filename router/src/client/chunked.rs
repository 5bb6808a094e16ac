//! The chunked transfer coding, decoded in place: what of the bytes that are here belongs to the
//! body is moved together, so that all chunks that came in one read are relayed as one piece.

use httparse::Status;
use std::ops::Range;

/// A line that begins a chunk, or one of the trailers after the last, is not longer than this.
const LINE_BYTES_MAX: usize = 8 << 10;
/// All trailers together; they are skipped.
const TRAILERS_BYTES_MAX: usize = 64 << 10;

/// Where in the coding the next byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Chunked {
    /// At the line that says a chunk's length.
    #[default]
    Size,
    /// In a chunk, with so many bytes to come.
    Data(u64),
    /// At the line end after a chunk.
    DataEnd,
    /// In the trailers, after so many bytes of them.
    Trailers(usize),
    Done,
}

/// What was made of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// Where the body's bytes stand now.
    pub(super) data: Range<usize>,
    /// Bytes from the start that are used up; those after it await more.
    pub(super) used_len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChunkError {
    #[error("a chunk of its answer has no length")]
    Size,
    #[error("a chunk of its answer is longer than its length")]
    DataEnd,
    #[error("the trailers of its answer are malformed or too large")]
    Trailers,
}

// === impl Chunked ===

impl Chunked {
    /// Decodes as much of `bytes` as can be.
    ///
    /// # Errors
    /// What breaks the coding.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, ChunkError> {
        let mut data = 0..0;
        let mut used_len = 0;
        loop {
            let rest = &bytes[used_len..];
            match *self {
                Self::Size => match chunk_size(rest)? {
                    None => break,
                    Some((line_len, size)) => {
                        used_len += line_len;
                        *self = match size {
                            0 => Self::Trailers(0),
                            _ => Self::Data(size),
                        };
                    }
                },
                Self::Data(_) if rest.is_empty() => break,
                Self::Data(left) => {
                    let len = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                    if data.is_empty() {
                        data = used_len..used_len + len;
                    } else {
                        bytes.copy_within(used_len..used_len + len, data.end);
                        data.end += len;
                    }
                    used_len += len;
                    *self = match left - len as u64 {
                        0 => Self::DataEnd,
                        left => Self::Data(left),
                    };
                }
                Self::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        used_len += 2;
                        *self = Self::Size;
                    }
                    [] | [b'\r'] => break,
                    _ => return Err(ChunkError::DataEnd),
                },
                Self::Trailers(skipped_len) => match trailer_len(rest, skipped_len)? {
                    None => break,
                    Some(line_len) => {
                        used_len += line_len;
                        *self = match line_len {
                            2 => Self::Done,
                            _ => Self::Trailers(skipped_len + line_len),
                        };
                    }
                },
                Self::Done => break,
            }
        }
        Ok(Decoded { data, used_len })
    }
}

/// Length of the line that begins a chunk, and the chunk's; `None` if the line is not all here.
fn chunk_size(rest: &[u8]) -> Result<Option<(usize, u64)>, ChunkError> {
    if rest.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
        return Err(ChunkError::Size);
    }
    match httparse::parse_chunk_size(rest) {
        Ok(Status::Complete(size)) => Ok(Some(size)),
        Ok(Status::Partial) if rest.len() < LINE_BYTES_MAX => Ok(None),
        Ok(Status::Partial) | Err(_) => Err(ChunkError::Size),
    }
}

/// Length of the trailer line with its end; an empty one, of 2 bytes, is the last.
fn trailer_len(rest: &[u8], skipped_len: usize) -> Result<Option<usize>, ChunkError> {
    let Some(line_len) = rest.iter().position(|&byte| byte == b'\n') else {
        return if rest.len() < LINE_BYTES_MAX {
            Ok(None)
        } else {
            Err(ChunkError::Trailers)
        };
    };
    let is_line = rest[..line_len].ends_with(b"\r") && skipped_len + line_len < TRAILERS_BYTES_MAX;
    is_line
        .then_some(Some(line_len + 1))
        .ok_or(ChunkError::Trailers)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
