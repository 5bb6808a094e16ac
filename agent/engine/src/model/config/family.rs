//! The name of a family of networks.

use serde::Serialize;
use std::fmt;

/// A family of networks that this engine runs, by its name. The table of families (`model/family.rs`) has
/// the rest.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Family(&'static str);

// === impl Family ===

impl Family {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The family's first `model_type` in config.json.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
