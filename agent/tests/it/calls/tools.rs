//! Random tools, and which arguments their schemas allow.

use serde_json::{Map, Value, json};

/// What a value is.
#[derive(Clone, Debug)]
enum Shape {
    /// Of up to so many characters.
    Text(usize),
    /// Of letters from `a` to `c`, and more than none.
    Letters,
    Date,
    OneOf(Vec<Value>),
    /// From the first to the second.
    Integer(i64, i64),
    Boolean,
    OrNull(Box<Shape>),
    /// Of up to two.
    List(Box<Shape>),
    Object(Vec<Property>),
}

#[derive(Clone, Debug)]
struct Property {
    name: String,
    shape: Shape,
    is_required: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) is_strict: bool,
    parameters: Vec<Property>,
}

/// Numbers of a seed, by Knuth's constants of a congruential generator.
struct Draws(u64);

pub(crate) fn random_tools(seed: u64) -> Vec<Tool> {
    let mut draws = Draws(seed);
    let names = ["tide", "tide_table", "clock"];
    let tool = |name| Tool {
        name,
        is_strict: false,
        parameters: draws.properties(2),
    };
    names.into_iter().map(tool).collect()
}

// === impl Draws ===

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn properties(&mut self, depth: usize) -> Vec<Property> {
        let names = ["at", "to", "the_place", "n"];
        let len = self.below(names.len());
        let property = |name: &str| Property {
            name: name.to_owned(),
            shape: self.shape(depth),
            is_required: self.below(2) == 0,
        };
        names[..len].iter().copied().map(property).collect()
    }

    fn shape(&mut self, depth: usize) -> Shape {
        match self.below(if depth > 0 { 9 } else { 6 }) {
            0 => Shape::Text(self.below(6)),
            1 => Shape::Letters,
            2 => Shape::OneOf(
                ["Brest", "Cork", "\"a\"\n", "null", "1"]
                    .map(Value::from)
                    .to_vec(),
            ),
            3 => Shape::Integer(-3, 400),
            4 => Shape::Boolean,
            5 => Shape::Date,
            6 => Shape::OrNull(Box::new(self.shape(0))),
            7 => Shape::List(Box::new(self.shape(depth - 1))),
            _ => Shape::Object(self.properties(depth - 1)),
        }
    }
}

// === impl Shape ===

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Self::Text(max) => json!({"type": "string", "maxLength": max}),
            Self::Letters => json!({"type": "string", "pattern": "^[a-c]+$", "maxLength": 9}),
            Self::Date => json!({"type": "string", "format": "date"}),
            Self::OneOf(values) => json!({"enum": values}),
            Self::Integer(from, to) => json!({"type": "integer", "minimum": from, "maximum": to}),
            Self::Boolean => json!({"type": "boolean"}),
            // Enumerations have a text that reads as null.
            Self::OrNull(shape) if matches!(**shape, Self::OneOf(_)) => json!({"type": "null"}),
            Self::OrNull(shape) => json!({"anyOf": [shape.schema(), {"type": "null"}]}),
            Self::List(shape) => json!({"type": "array", "items": shape.schema(), "maxItems": 2}),
            Self::Object(properties) => object(properties),
        }
    }

    fn holds(&self, value: &Value) -> bool {
        let text = value.as_str();
        match self {
            Self::Text(max) => text.is_some_and(|text| text.chars().count() <= *max),
            Self::Letters => text.is_some_and(|text| {
                (1..=9).contains(&text.len()) && text.bytes().all(|byte| b"abc".contains(&byte))
            }),
            Self::Date => text.is_some_and(|text| {
                let parts: Vec<_> = text.split('-').map(str::len).collect();
                parts == [4, 2, 2]
            }),
            Self::OneOf(values) => values.contains(value),
            Self::Integer(from, to) => value
                .as_i64()
                .is_some_and(|value| (*from..=*to).contains(&value)),
            Self::Boolean => value.is_boolean(),
            Self::OrNull(shape) => value.is_null() || shape.holds(value),
            Self::List(shape) => value.as_array().is_some_and(|values| {
                values.len() <= 2 && values.iter().all(|value| shape.holds(value))
            }),
            Self::Object(properties) => holds(properties, value),
        }
    }
}

fn object(properties: &[Property]) -> Value {
    let schemas = properties
        .iter()
        .map(|of| (of.name.clone(), of.shape.schema()));
    let required = properties.iter().filter(|of| of.is_required);
    let required: Vec<_> = required.map(|of| &of.name).collect();
    json!({"type": "object", "properties": schemas.collect::<Map<_, _>>(), "required": required,
        "additionalProperties": false})
}

fn holds(properties: &[Property], value: &Value) -> bool {
    value.as_object().is_some_and(|values| {
        let is_known = |name: &String| properties.iter().any(|of| of.name == *name);
        let is_held = |of: &Property| match values.get(&of.name) {
            Some(value) => of.shape.holds(value),
            None => !of.is_required,
        };
        values.keys().all(is_known) && properties.iter().all(is_held)
    })
}

// === impl Tool ===

impl Tool {
    /// One without parameters.
    pub(crate) fn bare(name: &'static str) -> Self {
        Self {
            name,
            is_strict: false,
            parameters: Vec::new(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({"type": "function", "function": {
            "name": self.name, "parameters": object(&self.parameters), "strict": self.is_strict,
        }})
    }

    pub(crate) fn holds(&self, arguments: &Value) -> bool {
        holds(&self.parameters, arguments)
    }
}
