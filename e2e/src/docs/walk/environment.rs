//! The environment of the shell in which `make documents` was typed: that of this process without what `make`, rustup and
//! Cargo have put in. Build scripts ask for some of it (ring's for `CARGO_MANIFEST_DIR`), and would run again.

/// Names that stand for themselves, or with `*` for all that begin so.
const ADDED: &[&str] = &[
    // make
    "MAKEFLAGS",
    "MAKELEVEL",
    "MAKE_TERMERR",
    "MAKE_TERMOUT",
    "MFLAGS",
    // our Makefile, which finds it again
    "PDSERVE_NVCC",
    // scripts/cargo-tests.sh
    "CARGO_BUILD_BUILD_DIR",
    "CARGO_INCREMENTAL",
    "CLIPPY_ARGS",
    "RUSTC_WORKSPACE_WRAPPER",
    // rustup
    "RUSTUP_TOOLCHAIN*",
    "RUST_RECURSION_COUNT",
    // Cargo, for what it runs
    "CARGO",
    "CARGO_BIN_EXE_*",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_*",
    "CARGO_PKG_*",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_TARGET_TMPDIR",
    "LD_LIBRARY_PATH",
    "OUT_DIR",
    // Documents say `target/`.
    "CARGO_TARGET_DIR",
];

pub(super) fn of_a_shell(
    variables: impl Iterator<Item = (String, String)>,
) -> impl Iterator<Item = (String, String)> {
    variables.filter(|(name, _)| !is_added(name))
}

fn is_added(name: &str) -> bool {
    ADDED.iter().any(|added| match added.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *added,
    })
}

#[cfg(test)]
mod tests;
