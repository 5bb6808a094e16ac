//! The go.mod of a module that wraps a published one, so that its commands can be built. `go install
//! M@version` refuses modules with replacements, and Kubernetes' point into its own source tree.

use crate::kube::versions::{KUBERNETES_STAGING, Source};
use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// A go.mod that requires `source` and replaces each module of its source tree with the published twin.
/// `upstream` is the go.mod of `source`.
pub(super) fn go_mod(source: &Source, upstream: &str) -> String {
    let mut text = "module pdserve.invalid/tools\n\n".to_owned();
    for line in upstream.lines() {
        if line.starts_with("go ") || line.starts_with("godebug ") {
            writeln!(text, "{line}").expect("a String takes every write");
        }
    }
    let Source {
        module, version, ..
    } = source;
    writeln!(text, "\nrequire {module} {version}\n").expect("a String takes every write");
    for staged in upstream.lines().filter_map(staged_module) {
        writeln!(text, "replace {staged} => {staged} {KUBERNETES_STAGING}")
            .expect("a String takes every write");
    }
    text
}

/// `M` of a line `M => ./staging/src/M`, alone or inside a `replace` block.
fn staged_module(line: &str) -> Option<&str> {
    let (module, target) = line.split_once("=>")?;
    let module = module.trim().trim_start_matches("replace ").trim();
    target.trim().starts_with("./staging/").then_some(module)
}
