//! Generated files: each is made by a function of the workspace and compared byte for byte.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Every generated file: its path in the workspace and its content.
fn files() -> Result<Vec<(PathBuf, String)>> {
    let crds = pd_crds::manifest::manifests();
    Ok(crds
        .into_iter()
        .map(|file| (Path::new("crds/yaml").join(file.file_name), file.yaml))
        .collect())
}

/// Writes every generated file, or with `check` only compares.
///
/// # Errors
/// With `check`, names each file that differs from what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let root = workspace_root();
    let mut stale = Vec::new();
    for (path, content) in files()? {
        let full = root.join(&path);
        if std::fs::read_to_string(&full).is_ok_and(|have| have == content) {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
        } else {
            std::fs::write(&full, content).with_context(|| format!("write {}", full.display()))?;
        }
    }
    if !stale.is_empty() {
        bail!(
            "out of date: {}; run `make generate` and commit the result",
            stale.join(", ")
        );
    }
    Ok(())
}

pub(crate) fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies inside the workspace")
}
