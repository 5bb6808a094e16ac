//! The import table of ARCHITECTURE.md, held against `cargo metadata`.

use crate::generate::workspace_root;
use std::collections::{BTreeMap, BTreeSet};

/// Crate → workspace crates that it may import. Proofs (`pd-e2e`) run processes; they import
/// contracts only.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("pd-protocol", &[]),
    ("pd-crds", &[]),
    ("pd-compute", &[]),
    ("pd-compute-proof", &["pd-compute"]),
    ("pd-verbs", &[]),
    ("pd-kv-transfer", &["pd-protocol", "pd-verbs"]),
    (
        "pd-engine",
        &[
            "pd-compute",
            "pd-compute-proof",
            "pd-kv-transfer",
            "pd-protocol",
        ],
    ),
    (
        "pd-agent",
        &["pd-compute", "pd-engine", "pd-kv-transfer", "pd-protocol"],
    ),
    ("pd-router", &["pd-protocol"]),
    ("pd-operator", &["pd-crds", "pd-protocol"]),
    ("kubectl-pd", &["pd-crds", "pd-protocol"]),
    ("pd-e2e", &["pd-crds", "pd-protocol"]),
    ("xtask", &["pd-crds", "pd-protocol"]),
];

/// Crate → workspace crates in its manifest, of every kind (normal, dev, build).
fn workspace_imports() -> BTreeMap<String, BTreeSet<String>> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"]
        .as_array()
        .expect("metadata lists packages");
    let name = |v: &serde_json::Value| v["name"].as_str().expect("a name").to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    packages
        .iter()
        .map(|package| {
            let deps = package["dependencies"]
                .as_array()
                .expect("a list of dependencies");
            let local = deps
                .iter()
                .map(name)
                .filter(|dep| members.contains(dep))
                .collect();
            (name(package), local)
        })
        .collect()
}

#[test]
fn every_import_is_in_the_table() {
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    for (krate, imports) in workspace_imports() {
        let allowed = table.get(krate.as_str()).unwrap_or_else(|| {
            panic!("{krate} is not in the import table; add a row with its edges")
        });
        for import in imports {
            assert!(
                allowed.contains(&import.as_str()),
                "{krate} imports {import}, which the import table does not allow"
            );
        }
    }
}
