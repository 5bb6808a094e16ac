//! The bootstrap fields, put into the client's own bytes. The body is scanned once; values the
//! client gave for these three fields are overwritten where they stand, missing ones are added
//! before the closing brace, and every other byte stays as it came: numbers keep their digits and
//! unknown fields their place. Both legs get the same bytes.

mod scan;

pub(crate) use scan::{SpliceError, SplicePoints, scan_object, span};

use bytes::{BufMut, Bytes, BytesMut};
use pd_protocol::BootstrapRoom;
use scan::FIELDS;
use std::io::Write;
use std::ops::Range;

/// What the fields say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bootstrap<'a> {
    /// As a JSON string, quotes included.
    pub(crate) host_json: &'a str,
    pub(crate) port: u16,
    pub(crate) room: BootstrapRoom,
    /// Arrays of this many entries instead of scalars.
    pub(crate) array_len: Option<u32>,
}

// === impl SplicePoints ===

impl SplicePoints {
    /// `body` must be the bytes that were scanned.
    pub(crate) fn splice(&self, body: &[u8], bootstrap: &Bootstrap<'_>) -> Bytes {
        let added_len = bootstrap.len_max();
        let mut out = BytesMut::with_capacity(body.len() + added_len);
        let mut given: Vec<(usize, &Range<usize>)> = self
            .given
            .iter()
            .enumerate()
            .filter_map(|(idx, range)| Some((idx, range.as_ref()?)))
            .collect();
        given.sort_unstable_by_key(|(_, range)| range.start);
        let mut copied = 0;
        for (idx, range) in given {
            out.extend_from_slice(&body[copied..range.start]);
            bootstrap.write(idx, &mut out);
            copied = range.end;
        }
        out.extend_from_slice(&body[copied..self.close_at]);
        let mut needs_comma = !self.is_empty;
        for (idx, field) in FIELDS.iter().enumerate() {
            if self.given[idx].is_some() {
                continue;
            }
            if needs_comma {
                out.put_u8(b',');
            }
            needs_comma = true;
            out.put_u8(b'"');
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b"\":");
            bootstrap.write(idx, &mut out);
        }
        out.extend_from_slice(&body[self.close_at..]);
        out.freeze()
    }
}

// === impl Bootstrap ===

impl Bootstrap<'_> {
    /// Bytes that the three fields take at most: names and punctuation, then each entry's host,
    /// port (5 digits) and room (19 digits) with their commas.
    fn len_max(&self) -> usize {
        let entry_len = self.host_json.len() + 5 + 19 + 3;
        64 + self.array_len.unwrap_or(1) as usize * entry_len
    }

    fn write(&self, field_idx: usize, out: &mut BytesMut) {
        let Some(len) = self.array_len else {
            return self.write_entry(field_idx, 0, out);
        };
        out.put_u8(b'[');
        for entry_idx in 0..len {
            if entry_idx > 0 {
                out.put_u8(b',');
            }
            self.write_entry(field_idx, entry_idx, out);
        }
        out.put_u8(b']');
    }

    fn write_entry(&self, field_idx: usize, entry_idx: u32, out: &mut BytesMut) {
        let mut out = out.writer();
        let written = match field_idx {
            0 => out.write_all(self.host_json.as_bytes()),
            1 => write!(out, "{}", self.port),
            _ => write!(out, "{}", self.room.get() + u64::from(entry_idx)),
        };
        written.expect("writing to memory does not fail");
    }
}

#[cfg(test)]
mod tests;
