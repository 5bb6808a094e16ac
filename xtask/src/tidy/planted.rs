//! Faults that the simulation must find are patches, which moved code leaves behind.

use crate::generate::workspace_root;
use std::process::Command;

#[test]
fn every_planted_fault_still_applies() {
    let folder = workspace_root().join("simulation/planted");
    let patches = std::fs::read_dir(folder).expect("there are planted faults");
    let mut stale = Vec::new();
    let mut applied = 0;
    for patch in patches {
        let patch = patch.expect("a file's entry is read").path();
        if patch
            .extension()
            .is_none_or(|extension| extension != "patch")
        {
            continue;
        }
        let checked = Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(workspace_root())
            .output()
            .expect("git runs");
        if checked.status.success() {
            applied += 1;
        } else {
            let reason = String::from_utf8_lossy(&checked.stderr).into_owned();
            stale.push(format!("{}: {reason}", patch.display()));
        }
    }
    assert!(applied > 30, "{applied} planted faults");
    assert!(stale.is_empty(), "write these again:\n{}", stale.join("\n"));
}
