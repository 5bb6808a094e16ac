//! What became of the tries of an attack.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Outcome → number of tries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes(BTreeMap<String, usize>);

// === impl Outcomes ===

impl Outcomes {
    pub(super) fn add(&mut self, outcome: impl Into<String>) {
        *self.0.entry(outcome.into()).or_default() += 1;
    }

    /// Adds those of another round.
    pub fn merge(&mut self, other: Self) {
        for (outcome, number) in other.0 {
            *self.0.entry(outcome).or_default() += number;
        }
    }

    pub fn number(&self, outcome: &str) -> usize {
        self.0.get(outcome).copied().unwrap_or(0)
    }

    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl Display for Outcomes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = self
            .0
            .iter()
            .map(|(what, number)| format!("{number} {what}"));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}
