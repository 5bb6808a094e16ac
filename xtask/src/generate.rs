//! Generated files: each is made by a function of the workspace and compared byte for byte.

use crate::reference;
use anyhow::{Context, Result, bail, ensure};
use pd_crds::manifest::Manifest;
use std::path::{Path, PathBuf};

/// Every generated file: its path in the workspace and its content.
fn files() -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let manifests = pd_crds::manifest::manifests();
    files.push((PathBuf::from("docs/api.md"), reference::api(&manifests)));
    files.push((
        PathBuf::from("docs/flags.md"),
        reference::flags(workspace_root())?,
    ));
    for Manifest {
        file_name, yaml, ..
    } in manifests
    {
        let template = chart_template(&yaml).with_context(|| file_name.clone())?;
        let chart = Path::new("charts/pdserve-crds/templates").join(&file_name);
        files.push((chart, template));
        files.push((Path::new("crds/yaml").join(&file_name), yaml));
    }
    Ok(files)
}

/// A CRD as a template of the chart: `helm uninstall` leaves it, since every object of the kind would
/// go with it.
fn chart_template(yaml: &str) -> Result<String> {
    const METADATA: &str = "\nmetadata:\n";
    ensure!(!yaml.contains("{{"), "Helm would read its braces");
    ensure!(yaml.contains(METADATA), "it has no metadata");
    let kept = format!("{METADATA}  annotations:\n    helm.sh/resource-policy: keep\n");
    Ok(yaml.replacen(METADATA, &kept, 1))
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

#[cfg(test)]
mod tests {
    #[test]
    fn generated_files_are_what_would_be_written() {
        super::run(true).unwrap_or_else(|why| panic!("{why}"));
    }
}
