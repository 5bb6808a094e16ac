//! `layer_types` of config.json.

use super::Fields;
use crate::model::config::{ConfigError, invalid};

/// The key, which Qwen's dense decoders have as well.
pub(super) const LAYER_TYPES: &str = "layer_types";

// === impl Fields ===

impl Fields {
    /// Whether each layer attends to all before it: as `layer_types` says, or else every so many of them.
    /// `other` is the type of the others.
    pub(crate) fn full_layers(
        &self,
        other: &str,
        interval: usize,
    ) -> Result<Vec<bool>, ConfigError> {
        const FULL: &str = "full_attention";
        let num_layers = self.num_layers()?;
        let Some(types) = self.texts(LAYER_TYPES, num_layers)? else {
            if interval == 0 {
                let expected = format!("1 or more, where there are no {LAYER_TYPES}");
                let key = "interval of layers of full attention";
                return Err(invalid(self.file(), key, interval, expected));
            }
            let is_full = |layer: usize| (layer + 1).is_multiple_of(interval);
            return Ok((0..num_layers).map(is_full).collect());
        };
        let is_full = |kind: &&str| match *kind {
            FULL => Ok(true),
            kind if kind == other => Ok(false),
            kind => Err(self.unsupported(LAYER_TYPES, kind, &format!("{FULL}, {other}"))),
        };
        types.iter().map(is_full).collect()
    }
}
