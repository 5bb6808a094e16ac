//! What the caller that waits for the first rail watches.

use std::collections::BTreeMap;

/// State of the rails, for the caller that waits for the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RailStatus {
    pub(crate) is_up: bool,
    pub(super) rails: Option<u32>,
    pub(super) down: BTreeMap<u32, String>,
}

impl RailStatus {
    /// Why no rail will come up.
    pub(crate) fn no_rail_possible(&self) -> Option<String> {
        let all = self.rails.unwrap_or(1) as usize;
        let is_impossible = !self.is_up && self.down.len() >= all;
        let mut reasons: Vec<&str> = self.down.values().map(String::as_str).collect();
        reasons.dedup();
        is_impossible.then(|| reasons.join("; "))
    }
}
