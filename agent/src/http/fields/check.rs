//! Checks a body against the table of fields.

use super::{Field, How, Scope};
use crate::http::error::ApiError;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A longer value always requests something; parsing it would take many times its size.
const IDLE_BYTES_MAX: usize = 16 * 1024;
/// Names at most this many edits apart count as typos of each other.
const EDITS_MAX: usize = 2;

/// Checks the object `json`, whose fields are those of `scope`.
///
/// # Errors
/// 400 that names one field: the refused one whose row comes first, because a row may name what the
/// next ones need, else the first unknown one. Nested objects come before the object that holds
/// them.
pub(crate) fn check(scope: Scope, json: &str) -> Result<(), ApiError> {
    let mut refusal = None;
    let mut body = serde_json::Deserializer::from_str(json);
    let object = Object {
        scope,
        path: String::new(),
        refusal: &mut refusal,
    };
    // The parser of the body's type reports malformed JSON, with its position.
    let _malformed = object.deserialize(&mut body);
    refusal.map_or(Ok(()), Err)
}

/// An object with fields of `scope`, or a list of them; anything else has no fields.
struct Object<'a> {
    scope: Scope,
    /// The path of the object in the body, with a trailing dot.
    path: String,
    refusal: &'a mut Option<ApiError>,
}

impl Object<'_> {
    /// Skips the value of an honoured field, except for objects in it whose fields are checked.
    fn pass<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
        name: &str,
        path: &str,
    ) -> Result<(), A::Error> {
        let Some(scope) = self.scope.nested(name) else {
            return map.next_value::<IgnoredAny>().map(|_| ());
        };
        map.next_value_seed(Object {
            scope,
            path: format!("{path}."),
            refusal: &mut *self.refusal,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut first: Option<(usize, ApiError)> = None;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let path = format!("{}{name}", self.path);
            let (row, how) = match Field::find(self.scope, &name) {
                Some((row, field)) => (row, Some(field.how)),
                None => (usize::MAX, None),
            };
            let found = match how {
                Some(How::Refused { instead, idle }) => {
                    let value: &RawValue = map.next_value()?;
                    (!is_idle(value.get(), idle)).then(|| ApiError::unsupported(&path, instead))
                }
                Some(How::Harmless(why)) => {
                    tracing::debug!(field = path, why, "ignored a field without effect");
                    map.next_value::<IgnoredAny>()?;
                    None
                }
                Some(How::Honoured) => {
                    self.pass(&mut map, &name, &path)?;
                    None
                }
                None if self.scope.is_closed() => {
                    map.next_value::<IgnoredAny>()?;
                    Some(unknown(self.scope, &path, &name))
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                    None
                }
            };
            if let Some(why) = found
                && first.as_ref().is_none_or(|(earlier, _)| row < *earlier)
            {
                first = Some((row, why));
            }
        }
        *self.refusal = self.refusal.take().or(first.map(|(_, why)| why));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let list = self.path.trim_end_matches('.').to_owned();
        for index in 0_usize.. {
            let object = Object {
                scope: self.scope,
                path: format!("{list}[{index}]."),
                refusal: &mut *self.refusal,
            };
            if seq.next_element_seed(object)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Whether the value requests nothing. A list, as batches have, does so if all its elements do.
fn is_idle(json: &str, idle: &[&str]) -> bool {
    let read = |json: &str| serde_json::from_str::<Value>(json).ok();
    let is_listed = |value: &Value| idle.iter().any(|json| read(json).as_ref() == Some(value));
    let is_absent = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) if text.is_empty() => true,
        Value::Bool(true)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => is_listed(value),
    };
    match Some(json)
        .filter(|json| json.len() <= IDLE_BYTES_MAX)
        .and_then(read)
    {
        None => false,
        Some(Value::Array(elements)) => elements.iter().all(is_absent),
        Some(Value::Object(fields)) if fields.is_empty() => true,
        Some(value) => is_absent(&value),
    }
}

fn unknown(scope: Scope, path: &str, name: &str) -> ApiError {
    let what_to_do = match nearest(scope, name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "this API has no such field; leave it out".to_owned(),
    };
    // OpenAI's wording, which clients recognise.
    let message = format!("Unrecognized request argument supplied: `{path}`: {what_to_do}");
    ApiError::field(path, message).with_code("unknown_parameter")
}

/// The honoured field with the spelling closest to `name`.
fn nearest(scope: Scope, name: &str) -> Option<&'static str> {
    let honoured = Field::of(scope).filter(|field| matches!(field.how, How::Honoured));
    let edits = honoured.map(|field| (edits(field.name, name), field.name));
    let (edits, nearest) = edits.min()?;
    (edits <= EDITS_MAX && edits < nearest.len()).then_some(nearest)
}

fn edits(a: &str, b: &str) -> usize {
    let plain = |s: &str| s.replace(['_', '-'], "").to_lowercase();
    strsim::damerau_levenshtein(&plain(a), &plain(b))
}
