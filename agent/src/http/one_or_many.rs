//! A JSON value that clients send alone or as a list.

use serde::Serialize;
use serde::de::value::{
    BoolDeserializer, F64Deserializer, I64Deserializer, StrDeserializer, U64Deserializer,
    UnitDeserializer,
};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// One value, or a list of values. Unlike an untagged enum it keeps the error message of the inner
/// type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

// === impl OneOrMany ===

impl<T> OneOrMany<T> {
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Self::Value, E> {
        T::deserialize(BoolDeserializer::new(v)).map(OneOrMany::One)
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Self::Value, E> {
        T::deserialize(I64Deserializer::new(v)).map(OneOrMany::One)
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Self::Value, E> {
        T::deserialize(U64Deserializer::new(v)).map(OneOrMany::One)
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Self::Value, E> {
        T::deserialize(F64Deserializer::new(v)).map(OneOrMany::One)
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
        T::deserialize(StrDeserializer::new(v)).map(OneOrMany::One)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        T::deserialize(UnitDeserializer::new()).map(OneOrMany::One)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let one = serde::de::value::MapAccessDeserializer::new(map);
        T::deserialize(one).map(OneOrMany::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut many = Vec::new();
        while let Some(one) = seq.next_element()? {
            many.push(one);
        }
        Ok(OneOrMany::Many(many))
    }
}

#[cfg(test)]
mod tests;
