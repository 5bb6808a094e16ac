//! Tensors that a model left alone, counted so that one line of the log covers many.

use std::collections::{BTreeMap, HashSet};

/// Tensors per prefix: the first part of a name, and the second where the first is `model`, which
/// says nothing.
pub(super) fn by_prefix<'a>(
    names: impl Iterator<Item = &'a str>,
    used: &HashSet<String>,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in names.filter(|name| !used.contains(*name)) {
        let parts = if name.starts_with("model.") { 2 } else { 1 };
        let prefix: Vec<&str> = name.split('.').take(parts).collect();
        *counts.entry(format!("{}.*", prefix.join("."))).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
