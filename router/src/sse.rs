//! Server-sent events as bytes: cutting a stream into events however the network cut it, and
//! reading and writing the error event that ends a stream.

use bytes::{Buf, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

/// An event larger than this is relayed as it is, in pieces.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// Whether these are the headers of a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Cuts bytes into events. What goes in comes out: each event with the blank line that ends it.
#[derive(Debug, Default)]
pub(crate) struct EventSplitter {
    buffer: BytesMut,
    /// No event ends before this position.
    searched_len: usize,
}

/// Knows whether relayed bytes ended with a whole event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Boundary {
    last: [u8; 2],
}

// === impl EventSplitter ===

impl EventSplitter {
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole event, with its blank line.
    pub(crate) fn next_event(&mut self) -> Option<Bytes> {
        match blank_line_end(&self.buffer, self.searched_len) {
            Some(end) => {
                self.searched_len = 0;
                Some(self.buffer.split_to(end).freeze())
            }
            None if self.buffer.len() > EVENT_BYTES_MAX => Some(self.rest()),
            None => {
                // A line end may be cut in two.
                self.searched_len = self.buffer.len().saturating_sub(3);
                None
            }
        }
    }

    /// What is left when the stream ends.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.searched_len = 0;
        self.buffer.split().freeze()
    }
}

/// Position after the first blank line at or after `from`.
pub(crate) fn blank_line_end(buffer: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(ahead) = buffer.get(at..)?.iter().position(|&byte| byte == b'\n') {
        at += ahead + 1;
        match buffer.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

// === impl Boundary ===

impl Boundary {
    pub(crate) fn relayed(&mut self, data: &[u8]) {
        match data {
            [] => {}
            [only] => self.last = [self.last[1], *only],
            [.., before, last] => self.last = [*before, *last],
        }
    }

    /// Whether the next byte begins an event.
    pub(crate) fn is_between_events(self) -> bool {
        // "\r\n\r\n" ends in "\r\n" too, as a single line does; taking both for an event's end
        // only leaves out a blank line that such a stream has anyway.
        matches!(self.last, [0, 0] | [b'\n' | b'\r', b'\n'])
    }
}

/// The data of an event that has exactly one `data:` line.
pub(crate) fn data(event: &str) -> Option<&str> {
    let mut lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
    match (lines.next(), lines.next()) {
        (Some(data), None) => Some(data.strip_prefix(' ').unwrap_or(data)),
        (Some(_) | None, _) => None,
    }
}

/// If a stream begins with an error event: the status it stands for, and its JSON.
pub(crate) fn leading_error(first: &[u8]) -> Option<(StatusCode, Bytes)> {
    let is_error = first.starts_with(b"event: error")
        || first.starts_with(b"event:error")
        || first.starts_with(b"data: {\"error\"")
        || first.starts_with(b"data:{\"error\"");
    if !is_error {
        return None;
    }
    let end = blank_line_end(first, 0).unwrap_or(first.len());
    let data = data(std::str::from_utf8(&first[..end]).ok()?)?;
    let status = serde_json::from_str::<serde_json::Value>(data)
        .ok()
        .and_then(|json| status_of(&json["error"]["code"]))
        .unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    Some((status, Bytes::copy_from_slice(data.as_bytes())))
}

/// SGLang's servers put the HTTP status into an error's `code`.
fn status_of(code: &serde_json::Value) -> Option<StatusCode> {
    let number = code
        .as_u64()
        .or_else(|| code.as_str().and_then(|text| text.parse().ok()))?;
    StatusCode::from_u16(u16::try_from(number).ok()?)
        .ok()
        .filter(|status| status.is_client_error() || status.is_server_error())
}

/// An event that says why the stream ends here.
pub(crate) fn error_event(json: &[u8], boundary: Boundary) -> Bytes {
    let start: &[u8] = if boundary.is_between_events() {
        b""
    } else {
        b"\n\n"
    };
    start
        .chain(&b"event: error\ndata: "[..])
        .chain(json)
        .chain(&b"\n\n"[..])
        .copy_to_bytes_all()
}

/// Joins chained buffers.
trait CopyAll: Buf + Sized {
    fn copy_to_bytes_all(mut self) -> Bytes {
        let len = self.remaining();
        self.copy_to_bytes(len)
    }
}

impl<B: Buf> CopyAll for B {}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
