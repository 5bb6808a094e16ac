//! One pass over a JSON object that borrows each member's value as it stands in the text, and finds
//! where the bootstrap fields go.

use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The fields, in the order in which they are added.
pub(super) const FIELDS: [&str; 3] = ["bootstrap_host", "bootstrap_port", "bootstrap_room"];

/// Where the fields go in one body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SplicePoints {
    /// Byte ranges of the values that the client gave.
    pub(super) given: [Option<Range<usize>>; 3],
    /// Position of the closing brace.
    pub(super) close_at: usize,
    pub(super) is_empty: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SpliceError {
    /// With line and column.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("{0} appears twice")]
    Duplicate(&'static str),
}

struct Scan<'a, 's, F> {
    text: &'a str,
    visit: F,
    points: &'s mut SplicePoints,
    duplicate: &'s mut Option<&'static str>,
}

/// Calls `visit` with every member's key, unescaped, and its value. `visit` may refuse a key that
/// appears twice by returning its name; bootstrap fields are refused so here.
///
/// # Errors
/// Where the text is no JSON object, with line and column.
pub(crate) fn scan_object<'a>(
    text: &'a str,
    visit: impl FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
) -> Result<SplicePoints, SpliceError> {
    let mut points = SplicePoints {
        is_empty: true,
        ..SplicePoints::default()
    };
    let mut duplicate = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let scan = Scan {
        text,
        visit,
        points: &mut points,
        duplicate: &mut duplicate,
    };
    let scanned = scan
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    if let Some(key) = duplicate {
        return Err(SpliceError::Duplicate(key));
    }
    scanned?;
    let object_len = text.trim_end_matches([' ', '\n', '\r', '\t']).len();
    points.close_at = object_len - 1;
    Ok(points)
}

/// Where `part`, borrowed from `text`, stands in it.
pub(crate) fn span(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

// === impl Scan ===

impl<'a, F> DeserializeSeed<'a> for Scan<'a, '_, F>
where
    F: FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
{
    type Value = ();
    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a, F> Visitor<'a> for Scan<'a, '_, F>
where
    F: FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<&'a RawValue>()? {
            let key = unescape(key.get()).map_err(A::Error::custom)?;
            let value: &'a RawValue = map.next_value()?;
            self.points.is_empty = false;
            if let Some(idx) = field_idx(&key) {
                let given = &mut self.points.given[idx];
                if given.replace(span(self.text, value.get())).is_some() {
                    return self.refuse(FIELDS[idx]);
                }
            } else if let Err(twice) = (self.visit)(&key, value) {
                return self.refuse(twice);
            }
        }
        Ok(())
    }
}

impl<F> Scan<'_, '_, F> {
    fn refuse<E: serde::de::Error>(self, key: &'static str) -> Result<(), E> {
        *self.duplicate = Some(key);
        Err(E::custom("a field appears twice"))
    }
}

/// A key's text, of which most need no unescaping.
fn unescape(quoted: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    if quoted.contains('\\') {
        serde_json::from_str(quoted).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(&quoted[1..quoted.len() - 1]))
    }
}

/// Index among the bootstrap fields of a member's key.
fn field_idx(key: &str) -> Option<usize> {
    FIELDS.iter().position(|field| *field == key)
}
