//! How large the crate makes a schema: what applies to one value is copied for each alternative of that value.

use serde_json::Value;

/// What the crate makes of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Schemas in it.
    pub(super) nodes: u64,
    /// Alternatives of one value in it, at most: so often is copied what applies beside.
    pub(super) ways: u64,
}

// === impl Size ===

impl Size {
    pub(super) const ONE: Self = Self { nodes: 1, ways: 1 };

    pub(super) fn of_alternatives(len: usize) -> Self {
        let len = len as u64;
        Self {
            nodes: len,
            ways: len.max(1),
        }
    }

    /// One beside the other, of different values.
    pub(super) fn beside(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            ways: self.ways.max(other.ways),
        }
    }

    /// One or the other, of one value.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            ways: self.ways.saturating_add(other.ways),
        }
    }

    /// Both of one value.
    pub(super) fn and(self, other: Self) -> Self {
        let copies = |nodes: u64, ways: u64| nodes.saturating_mul(ways);
        Self {
            nodes: copies(self.nodes, other.ways).saturating_add(copies(other.nodes, self.ways)),
            ways: self.ways.saturating_mul(other.ways),
        }
    }
}

/// Values in a constant.
pub(super) fn values_in(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(values_in).sum::<usize>(),
        Value::Object(values) => 1 + values.values().map(values_in).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
