//! One pass over a JSON object that borrows each member's value as it stands in the text.

use super::Target;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A scanned JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) target: Target,
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
    object: &'s mut Object,
    duplicate: &'s mut Option<&'static str>,
}

// === impl Object ===

impl Object {
    /// Calls `visit` with every member's key, unescaped, and its value. `visit` may refuse a key
    /// that appears twice by returning its name; bootstrap fields are refused so here.
    ///
    /// # Errors
    /// Where the text is no JSON object, with line and column.
    pub(crate) fn scan<'a>(
        text: &'a str,
        visit: impl FnMut(&str, &'a RawValue) -> Result<(), &'static str>,
    ) -> Result<Self, SpliceError> {
        let mut object = Self {
            target: Target {
                is_empty: true,
                ..Target::default()
            },
        };
        let mut duplicate = None;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let scan = Scan {
            text,
            visit,
            object: &mut object,
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
        object.target.close_at = object_len - 1;
        Ok(object)
    }
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
            self.object.target.is_empty = false;
            if let Some(idx) = Target::field_idx(&key) {
                let given = &mut self.object.target.given[idx];
                if given.replace(span(self.text, value.get())).is_some() {
                    return self.refuse(super::FIELDS[idx]);
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
