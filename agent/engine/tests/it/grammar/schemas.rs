//! Random schemas, and what they say of a value.

use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Null,
    Boolean,
    /// From the first to the second.
    Integer(i64, i64),
    /// So many characters, of which each is a letter or digit if so.
    Text(usize, usize, bool),
    OneOf(Vec<Value>),
    List(Box<Shape>, usize, usize),
    /// Properties, and whether each is required.
    Object(Vec<(String, Shape, bool)>),
    Either(Box<Shape>, Box<Shape>),
}

pub(super) fn schema() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Null),
        Just(Shape::Boolean),
        (-500..500i64, 0..400i64).prop_map(|(from, len)| Shape::Integer(from, from + len)),
        (0..4usize, 0..6usize, any::<bool>()).prop_map(|(min, more, plain)| Shape::Text(
            min,
            min + more,
            plain
        )),
        prop::collection::vec("[a-c\"\\\\é{}]{0,4}", 1..4)
            .prop_map(|texts| Shape::OneOf(texts.into_iter().map(Value::from).collect())),
        Just(Shape::OneOf(vec![
            json!(1.5),
            json!(null),
            json!([1, {"a": "b"}])
        ])),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let property = (inner.clone(), any::<bool>());
        let properties = prop::collection::btree_map("[a-d \"é]{1,3}", property, 0..4);
        prop_oneof![
            (inner.clone(), 0..2usize, 0..3usize).prop_map(|(items, min, more)| Shape::List(
                Box::new(items),
                min,
                min + more
            )),
            properties.prop_map(|properties| {
                let properties = properties.into_iter();
                Shape::Object(
                    properties
                        .map(|(name, (of, required))| (name, of, required))
                        .collect(),
                )
            }),
            (inner.clone(), inner).prop_map(|(a, b)| Shape::Either(Box::new(a), Box::new(b))),
        ]
    })
}

// === impl Shape ===

impl Shape {
    pub(super) fn schema(&self) -> Value {
        match self {
            Self::Null => json!({"type": "null"}),
            Self::Boolean => json!({"type": "boolean"}),
            Self::Integer(from, to) => json!({"type": "integer", "minimum": from, "maximum": to}),
            Self::Text(min, max, true) => {
                json!({"type": "string", "pattern": format!("^[0-9a-zA-Z]{{{min},{max}}}$")})
            }
            Self::Text(min, max, false) => {
                json!({"type": "string", "minLength": min, "maxLength": max})
            }
            Self::OneOf(values) => json!({"enum": values}),
            Self::List(items, min, max) => {
                json!({"type": "array", "items": items.schema(), "minItems": min, "maxItems": max})
            }
            Self::Object(properties) => {
                let named = properties
                    .iter()
                    .map(|(name, of, _)| (name.clone(), of.schema()));
                let required = properties.iter().filter(|(_, _, required)| *required);
                let required: Vec<_> = required.map(|(name, ..)| name).collect();
                json!({
                    "type": "object",
                    "properties": named.collect::<serde_json::Map<_, _>>(),
                    "required": required,
                    "additionalProperties": false,
                })
            }
            Self::Either(a, b) => json!({"anyOf": [a.schema(), b.schema()]}),
        }
    }

    pub(super) fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer(from, to) => value
                .as_i64()
                .is_some_and(|value| (*from..=*to).contains(&value)),
            Self::Text(min, max, plain) => value.as_str().is_some_and(|text| {
                (*min..=*max).contains(&text.chars().count())
                    && (!plain || text.chars().all(|letter| letter.is_ascii_alphanumeric()))
            }),
            Self::OneOf(values) => values.contains(value),
            Self::List(items, min, max) => value.as_array().is_some_and(|values| {
                (*min..=*max).contains(&values.len())
                    && values.iter().all(|value| items.holds(value))
            }),
            Self::Object(properties) => value.as_object().is_some_and(|values| {
                let known = |name: &String| properties.iter().any(|(known, ..)| known == name);
                values.keys().all(known)
                    && properties.iter().all(|(name, of, required)| {
                        values.get(name).map_or(!required, |value| of.holds(value))
                    })
            }),
            Self::Either(a, b) => a.holds(value) || b.holds(value),
        }
    }
}
