//! `model.safetensors.index.json`: which shard holds which tensor. Only the shards' names are taken
//! from it; the shards' own headers describe their contents.

use super::HfError;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::BTreeMap<String, String>,
}

/// The shards' paths, in order of their names.
pub(super) fn shard_files(path: &Path) -> Result<Vec<PathBuf>, HfError> {
    let wrong = |reason: String| HfError::Index {
        path: path.to_owned(),
        reason,
    };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("not a valid index of shards: {error}")))?;
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if names.is_empty() {
        return Err(wrong("weight_map names no file".to_owned()));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = |name: &str| {
        // A name that leads out of the folder would let a model file read any other.
        let mut components = Path::new(name).components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(_)), None) => Ok(folder.join(name)),
            _ => Err(wrong(format!(
                "weight_map names {name:?}, expected a file next to it"
            ))),
        }
    };
    names.into_iter().map(file).collect()
}
