//! One version everywhere: the charts' numbers, and the toolchain that the image is built with.

use crate::generate::workspace_root;

fn read(path: &str) -> String {
    let full = workspace_root().join(path);
    std::fs::read_to_string(&full).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What follows `prefix` on its line, without quotes.
fn value_of<'a>(text: &'a str, prefix: &str) -> &'a str {
    let value = text.lines().find_map(|line| line.strip_prefix(prefix));
    value
        .unwrap_or_else(|| panic!("no line begins with {prefix}"))
        .trim_matches('"')
}

#[test]
fn the_charts_carry_the_workspace_version() {
    let workspace = read("Cargo.toml");
    let version = value_of(&workspace, "version = ");
    for chart in [
        "charts/pdserve/Chart.yaml",
        "charts/pdserve-crds/Chart.yaml",
    ] {
        let text = read(chart);
        assert_eq!(value_of(&text, "version: "), version, "{chart}");
        assert_eq!(value_of(&text, "appVersion: "), version, "{chart}");
    }
}

#[test]
fn the_image_is_built_with_the_pinned_toolchain() {
    let toolchain = read("rust-toolchain.toml");
    let pinned = value_of(&toolchain, "channel = ");
    let dockerfile = read("Dockerfile");
    let image = value_of(&dockerfile, "FROM rust:");
    let version = image.split('-').next().unwrap_or_default();
    assert_eq!(version, pinned);
}
