//! Where the built binaries and test models lie.

use std::path::{Path, PathBuf};

/// A built binary of the workspace, found in the profile folder that this test was built into.
///
/// # Panics
/// When it was not built; `make e2e` builds it first.
pub fn binary(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("a running program has a path");
    let found = me
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file());
    found.unwrap_or_else(|| panic!("{name} is not beside {}; run `make e2e`", me.display()))
}

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("e2e lies inside the workspace")
}

/// A committed tiny random checkpoint, such as `tiny-llama`.
pub fn tiny_model(name: &str) -> PathBuf {
    workspace().join("agent/engine/golden").join(name)
}

/// The demo model, where `make model` put it.
pub fn smollm2() -> PathBuf {
    workspace().join(".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf")
}
