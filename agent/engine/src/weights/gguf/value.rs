//! Values of metadata. Integers of every width become 64-bit, floats `f64`.

use super::ParseError;
use super::reader::Reader;

/// Arrays of arrays deeper than this are refused, so that a corrupt file cannot exhaust the stack.
const MAX_DEPTH: usize = 4;

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

// === impl Value ===

/// Longest string shown in a message.
const MAX_SHOWN_CHARS: usize = 40;

impl Value {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let kind = Kind::parse(reader)?;
        read_value(reader, kind)
    }

    /// A description of the value, short enough for a message.
    pub(crate) fn describe(&self) -> String {
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
