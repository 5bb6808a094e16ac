//! The typed keys of a GGUF file. Integers of every width become 64-bit, floats `f64`.

use std::collections::HashMap;

use super::ParseError;
use super::reader::Reader;

/// Smallest record of a key: empty name, type, one byte of value.
pub(super) const MIN_ENTRY_BYTES: usize = 8 + 4 + 1;

/// Arrays of arrays deeper than this are refused, so that a corrupt file cannot exhaust the stack.
const MAX_DEPTH: usize = 4;

#[derive(Debug, Default)]
pub struct Metadata {
    values: HashMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Array),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    Unsigned(Vec<u64>),
    Signed(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Text(Vec<String>),
    Array(Vec<Self>),
}

/// A key that holds something else than its reader expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {found}, expected {expected}")]
pub struct MetadataError {
    pub key: String,
    pub found: String,
    pub expected: &'static str,
}

/// The format's value types.
#[derive(Clone, Copy)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

// === impl Metadata ===

impl Metadata {
    pub(super) fn parse(reader: &mut Reader<'_>, count: usize) -> Result<Self, ParseError> {
        let mut values = HashMap::new();
        for _ in 0..count {
            let at = reader.offset();
            let key = reader.string("a metadata key")?.to_owned();
            let kind = Kind::parse(reader)?;
            let value = read_value(reader, kind)?;
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
}

// === impl Value ===

/// Longest string shown in a message.
const MAX_SHOWN_CHARS: usize = 40;

impl Value {
    /// What the value is, short enough for a message.
    fn describe(&self) -> String {
        match self {
            Self::Unsigned(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Bool(flag) => flag.to_string(),
            Self::Text(text) => format!(
                "{:?}",
                text.chars().take(MAX_SHOWN_CHARS).collect::<String>()
            ),
            Self::Array(_) => "an array".to_owned(),
        }
    }
}

fn read_value(reader: &mut Reader<'_>, kind: Kind) -> Result<Value, ParseError> {
    const FIELD: &str = "a metadata value";
    Ok(match kind {
        Kind::U8 => Value::Unsigned(u8::from_le_bytes(reader.array(FIELD)?).into()),
        Kind::U16 => Value::Unsigned(u16::from_le_bytes(reader.array(FIELD)?).into()),
        Kind::U32 => Value::Unsigned(reader.u32(FIELD)?.into()),
        Kind::U64 => Value::Unsigned(reader.u64(FIELD)?),
        Kind::I8 => Value::Signed(i8::from_le_bytes(reader.array(FIELD)?).into()),
        Kind::I16 => Value::Signed(i16::from_le_bytes(reader.array(FIELD)?).into()),
        Kind::I32 => Value::Signed(i32::from_le_bytes(reader.array(FIELD)?).into()),
        Kind::I64 => Value::Signed(i64::from_le_bytes(reader.array(FIELD)?)),
        Kind::F32 => Value::Float(f32::from_le_bytes(reader.array(FIELD)?).into()),
        Kind::F64 => Value::Float(f64::from_le_bytes(reader.array(FIELD)?)),
        Kind::Bool => Value::Bool(read_bool(reader)?),
        Kind::Text => Value::Text(reader.string(FIELD)?.to_owned()),
        Kind::Array => Value::Array(read_array(reader, 1)?),
    })
}

fn read_bool(reader: &mut Reader<'_>) -> Result<bool, ParseError> {
    let [byte] = reader.array("a bool")?;
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.invalid(1, "a bool", byte, "0 or 1")),
    }
}

fn read_array(reader: &mut Reader<'_>, depth: usize) -> Result<Array, ParseError> {
    const FIELD: &str = "an array's element";
    let kind = Kind::parse(reader)?;
    let len = reader.count("an array's length", kind.min_bytes())?;
    Ok(match kind {
        Kind::U8 => Array::Unsigned(collect(len, || {
            Ok(u8::from_le_bytes(reader.array(FIELD)?).into())
        })?),
        Kind::U16 => Array::Unsigned(collect(len, || {
            Ok(u16::from_le_bytes(reader.array(FIELD)?).into())
        })?),
        Kind::U32 => Array::Unsigned(collect(len, || Ok(reader.u32(FIELD)?.into()))?),
        Kind::U64 => Array::Unsigned(collect(len, || reader.u64(FIELD))?),
        Kind::I8 => Array::Signed(collect(len, || {
            Ok(i8::from_le_bytes(reader.array(FIELD)?).into())
        })?),
        Kind::I16 => Array::Signed(collect(len, || {
            Ok(i16::from_le_bytes(reader.array(FIELD)?).into())
        })?),
        Kind::I32 => Array::Signed(collect(len, || {
            Ok(i32::from_le_bytes(reader.array(FIELD)?).into())
        })?),
        Kind::I64 => Array::Signed(collect(len, || {
            reader.array(FIELD).map(i64::from_le_bytes)
        })?),
        Kind::F32 => Array::Float(collect(len, || {
            Ok(f32::from_le_bytes(reader.array(FIELD)?).into())
        })?),
        Kind::F64 => Array::Float(collect(len, || {
            reader.array(FIELD).map(f64::from_le_bytes)
        })?),
        Kind::Bool => Array::Bool(collect(len, || read_bool(reader))?),
        Kind::Text => Array::Text(collect(len, || reader.string(FIELD).map(str::to_owned))?),
        Kind::Array if depth == MAX_DEPTH => {
            let expected = format!("at most {MAX_DEPTH} levels");
            return Err(reader.invalid(8, "an array in an array", "too deep", &expected));
        }
        Kind::Array => Array::Array(collect(len, || read_array(reader, depth + 1))?),
    })
}

fn collect<T>(
    len: usize,
    read: impl FnMut() -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    std::iter::repeat_with(read).take(len).collect()
}

// === impl Kind ===

impl Kind {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let kind = reader.u32("a value's type")?;
        Ok(match kind {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Text,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return Err(reader.invalid(4, "a value's type", kind, "0 to 12")),
        })
    }

    /// Bytes that the smallest value of this type takes.
    const fn min_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Text => 8,
            Self::Array => 12,
        }
    }
}
