//! The code map of ARCHITECTURE.md, held against `cargo metadata`.

use crate::generate::workspace_root;
use std::collections::{BTreeMap, BTreeSet};

/// A row of the code map.
struct Row {
    name: String,
    folder: String,
    /// Workspace crates that it may import. Proofs (`pd-e2e`) run processes; they import contracts only.
    imports: BTreeSet<String>,
}

fn code_map() -> Vec<Row> {
    let text = std::fs::read_to_string(workspace_root().join("ARCHITECTURE.md"))
        .expect("ARCHITECTURE.md can be read");
    let section = text
        .split("\n## ")
        .find(|part| part.starts_with("Code map"));
    let rows = section.expect("a code map").lines();
    let names = |cell: &str| {
        let quoted = cell.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect::<Vec<String>>()
    };
    rows.filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            let [_, name, folder, _, imports, _] = cells[..] else {
                panic!("the code map has four columns: {line}");
            };
            Row {
                name: names(name).remove(0),
                folder: names(folder).remove(0),
                imports: names(imports).into_iter().collect(),
            }
        })
        .collect()
}

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
    let map = code_map();
    for (krate, imports) in workspace_imports() {
        let row = map.iter().find(|row| row.name == krate).unwrap_or_else(|| {
            panic!("{krate} is not in ARCHITECTURE.md's code map; add a row with its edges")
        });
        for import in imports {
            assert!(
                row.imports.contains(&import),
                "{krate} imports {import}, which ARCHITECTURE.md's code map does not allow"
            );
        }
    }
}

#[test]
fn every_row_of_the_table_is_a_crate() {
    let crates = workspace_imports();
    for Row {
        name,
        folder,
        imports,
    } in code_map()
    {
        let own = crates.get(&name);
        let own = own.unwrap_or_else(|| panic!("ARCHITECTURE.md: no crate is called {name}"));
        assert_eq!(own, &imports, "ARCHITECTURE.md: what {name} imports");
        let manifest = workspace_root().join(&folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&manifest)
            .unwrap_or_else(|e| panic!("ARCHITECTURE.md, {name}: {folder}Cargo.toml: {e}"));
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{folder} is not {name}'s"
        );
    }
}
