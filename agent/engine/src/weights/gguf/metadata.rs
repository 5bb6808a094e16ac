//! The keys of a GGUF file, read by the type their reader expects.

use super::ParseError;
use super::reader::Reader;
use super::value::{Array, Value};
use std::collections::HashMap;

/// Smallest record of a key: empty name, type, one byte of value.
pub(super) const MIN_ENTRY_BYTES: usize = 8 + 4 + 1;

#[derive(Debug, Default)]
pub struct Metadata {
    values: HashMap<String, Value>,
}

/// A key whose value has another type than its reader expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {found}, expected {expected}")]
pub struct MetadataError {
    pub key: String,
    pub found: String,
    pub expected: &'static str,
}

// === impl Metadata ===

impl Metadata {
    pub(super) fn parse(reader: &mut Reader<'_>, count: usize) -> Result<Self, ParseError> {
        let mut values = HashMap::new();
        for _ in 0..count {
            let at = reader.offset();
            let key = reader.string("a metadata key")?.to_owned();
            let value = Value::parse(reader)?;
            if values.insert(key.clone(), value).is_some() {
                return Err(ParseError::Invalid {
                    field: "a metadata key",
                    offset: at,
                    value: format!("{key:?} again"),
                    expected: "a new key".to_owned(),
                });
            }
        }
        Ok(Self { values })
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// All keys with their values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        as_type: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, MetadataError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || MetadataError {
            key: key.to_owned(),
            found: value.describe(),
            expected,
        };
        as_type(value).ok_or_else(wrong).map(Some)
    }

    /// # Errors
    /// When the key holds no string.
    pub fn text(&self, key: &str) -> Result<Option<&str>, MetadataError> {
        self.read(key, "a string", |value| {
            if let Value::Text(text) = value {
                Some(text.as_str())
            } else {
                None
            }
        })
    }

    /// # Errors
    /// When the key holds no whole number ≥ 0.
    pub fn size(&self, key: &str) -> Result<Option<usize>, MetadataError> {
        self.read(key, "a whole number", |value| match value {
            Value::Unsigned(number) => usize::try_from(*number).ok(),
            Value::Signed(number) => usize::try_from(*number).ok(),
            Value::Float(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_) => None,
        })
    }

    /// # Errors
    /// When the key holds no finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>, MetadataError> {
        self.read(key, "a number", |value| match value {
            Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
            Value::Unsigned(number) => Some(*number as f64),
            Value::Signed(number) => Some(*number as f64),
            Value::Bool(_) | Value::Text(_) | Value::Array(_) => None,
        })
    }

    /// # Errors
    /// When the key holds no bool.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, MetadataError> {
        self.read(key, "true or false", |value| {
            if let Value::Bool(flag) = value {
                Some(*flag)
            } else {
                None
            }
        })
    }

    /// # Errors
    /// When the key holds no array of strings.
    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, MetadataError> {
        self.read(key, "an array of strings", |value| {
            if let Value::Array(Array::Text(texts)) = value {
                Some(texts.as_slice())
            } else {
                None
            }
        })
    }

    /// # Errors
    /// When the key holds no array of integers.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, MetadataError> {
        self.read(key, "an array of integers", |value| {
            if let Value::Array(Array::Signed(numbers)) = value {
                Some(numbers.clone())
            } else if let Value::Array(Array::Unsigned(numbers)) = value {
                let signed = |&number: &u64| i64::try_from(number).ok();
                numbers.iter().map(signed).collect()
            } else {
                None
            }
        })
    }

    /// # Errors
    /// When the key holds no array of numbers with a fraction.
    pub fn numbers(&self, key: &str) -> Result<Option<&[f64]>, MetadataError> {
        self.read(key, "an array of numbers", |value| {
            if let Value::Array(Array::Float(numbers)) = value {
                Some(numbers.as_slice())
            } else {
                None
            }
        })
    }
}
