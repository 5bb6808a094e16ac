//! Fields that the router sets, put into the client's own bytes. The body is scanned once; values the client gave for them are
//! overwritten where they stand, missing ones are added before the closing brace, and every other byte stays as it came:
//! numbers keep their digits and unknown fields their place. With bootstrap fields both legs get the same bytes.

mod members;
mod scan;

pub(crate) use members::set_members;
pub(crate) use scan::{Field, SpliceError, SplicePoints, scan_object, span};

use bytes::{BufMut, Bytes, BytesMut};
use pd_protocol::BootstrapRoom;
use scan::{BOOTSTRAP, NAME_LEN_MAX};
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
    /// `body` with the bootstrap fields. It must be the bytes that were scanned.
    pub(crate) fn splice(&self, body: &[u8], bootstrap: &Bootstrap<'_>) -> Bytes {
        self.set(body, &BOOTSTRAP, bootstrap.len_max(), |field, out| {
            bootstrap.write(field, out);
        })
    }

    /// `body` with these fields, whose values are JSON. It must be the bytes that were scanned.
    pub(crate) fn overwrite(&self, body: &[u8], members: &[(Field, &str)]) -> Bytes {
        let fields: Vec<Field> = members.iter().map(|(field, _)| *field).collect();
        let lens = members.iter().map(|(_, value)| NAME_LEN_MAX + value.len());
        self.set(body, &fields, lens.sum(), |field, out| {
            let member = members.iter().find(|(set, _)| *set == field);
            out.extend_from_slice(member.map_or(b"null", |(_, value)| value.as_bytes()));
        })
    }

    /// The value of a field in `body`, which must be the bytes that were scanned.
    pub(crate) fn value<'a>(&self, body: &'a [u8], field: Field) -> Option<&'a str> {
        let range = self.given[field as usize].clone()?;
        std::str::from_utf8(body.get(range)?).ok()
    }

    /// `added_len`: what names, values and punctuation take at most.
    fn set(
        &self,
        body: &[u8],
        fields: &[Field],
        added_len: usize,
        write: impl Fn(Field, &mut BytesMut),
    ) -> Bytes {
        let mut out = BytesMut::with_capacity(body.len() + added_len);
        let mut given: Vec<(Field, &Range<usize>)> = fields
            .iter()
            .filter_map(|&field| Some((field, self.given[field as usize].as_ref()?)))
            .collect();
        given.sort_unstable_by_key(|(_, range)| range.start);
        let mut copied = 0;
        for (field, range) in given {
            out.extend_from_slice(&body[copied..range.start]);
            write(field, &mut out);
            copied = range.end;
        }
        out.extend_from_slice(&body[copied..self.close_at]);
        let mut needs_comma = !self.is_empty;
        for &field in fields {
            if self.given[field as usize].is_some() {
                continue;
            }
            if needs_comma {
                out.put_u8(b',');
            }
            needs_comma = true;
            out.put_u8(b'"');
            out.extend_from_slice(field.name().as_bytes());
            out.extend_from_slice(b"\":");
            write(field, &mut out);
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

    fn write(&self, field: Field, out: &mut BytesMut) {
        let Some(len) = self.array_len else {
            return self.write_entry(field, 0, out);
        };
        out.put_u8(b'[');
        for entry_idx in 0..len {
            if entry_idx > 0 {
                out.put_u8(b',');
            }
            self.write_entry(field, entry_idx, out);
        }
        out.put_u8(b']');
    }

    fn write_entry(&self, field: Field, entry_idx: u32, out: &mut BytesMut) {
        let mut out = out.writer();
        let written = if field == Field::BootstrapHost {
            out.write_all(self.host_json.as_bytes())
        } else if field == Field::BootstrapPort {
            write!(out, "{}", self.port)
        } else {
            write!(out, "{}", self.room.get() + u64::from(entry_idx))
        };
        written.expect("writing to memory does not fail");
    }
}

#[cfg(test)]
mod tests;
