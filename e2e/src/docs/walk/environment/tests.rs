//! What stays of an environment.

use super::*;

fn left_of(names: &[&str]) -> Vec<String> {
    let variables = names.iter().map(|&name| (name.to_owned(), String::new()));
    of_a_shell(variables).map(|(name, _)| name).collect()
}

#[test]
fn what_make_rustup_and_cargo_add_is_left_out() {
    let added = [
        "MAKEFLAGS",
        "PDSERVE_NVCC",
        "CARGO_BUILD_BUILD_DIR",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTUP_TOOLCHAIN_SOURCE",
        "CARGO",
        "CARGO_BIN_EXE_pd-demo",
        "CARGO_MANIFEST_DIR",
        "CARGO_PKG_NAME",
        "LD_LIBRARY_PATH",
    ];
    assert_eq!(left_of(&added), [""; 0]);
}

#[test]
fn what_a_person_sets_stays() {
    let set = [
        "HOME",
        "PATH",
        "CUDA",
        "CARGO_HOME",
        "RUSTFLAGS",
        "CC",
        "HTTPS_PROXY",
    ];
    assert_eq!(left_of(&set), set);
}
