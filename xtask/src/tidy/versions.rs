//! One version everywhere: the charts' numbers, the image's tag, and the toolchain that it is built with.

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

/// Files that people read, apply or run, and that may name the image.
fn documents() -> Vec<String> {
    let output = std::process::Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
        ])
        .args(["*.md", "charts", "docs", "examples", "manifests", "release"])
        .args(["Dockerfile", "Makefile", ".github", ":!CHANGELOG.md"])
        .current_dir(workspace_root())
        .output()
        .expect("git runs");
    let listed = String::from_utf8(output.stdout).expect("file names are UTF-8");
    listed.lines().map(str::to_owned).collect()
}

/// Commands that build the image by hand give it the tag that charts and manifests ask for.
#[test]
fn the_image_has_one_name_and_one_tag() {
    let workspace = read("Cargo.toml");
    let version = value_of(&workspace, "version = ");
    let image = format!("pdserve:{version}");
    let mut named = 0;
    for path in documents() {
        let text = read(&path);
        let tags = text.split("pdserve:").skip(1);
        for tag in tags.filter(|tag| tag.starts_with(|c: char| c.is_ascii_digit())) {
            let rest = tag.strip_prefix(version);
            let ends = rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
            assert!(
                ends,
                "{path} names an image that is not {image}: pdserve:{tag:.12}"
            );
            named += 1;
        }
        let builds = text.split("docker build -t").skip(1);
        for build in builds {
            let name = build.split_whitespace().next().unwrap_or_default();
            assert!(
                name.ends_with(&image),
                "{path} builds {name}; charts ask for {image}"
            );
        }
    }
    assert!(named >= 3, "{named} mentions of {image}");
}

#[test]
fn charts_and_manifests_ask_for_that_image() {
    let workspace = read("Cargo.toml");
    let version = value_of(&workspace, "version = ");
    let values = read("charts/pdserve/values.yaml");
    let after = values.split("\nimage:\n").nth(1).expect("image:");
    assert_eq!(value_of(after, "  repository: "), "pdserve");
    assert_eq!(
        value_of(after, "  tag: "),
        "",
        "that of the chart's appVersion"
    );
    let kustomization = read("manifests/kustomization.yaml");
    assert_eq!(value_of(&kustomization, "  newName: "), "pdserve");
    assert_eq!(value_of(&kustomization, "  newTag: "), version);
    let operator = read("manifests/operator.yaml");
    let images = operator.lines().filter(|line| line.contains("image: "));
    let images: Vec<&str> = images.map(str::trim).collect();
    assert_eq!(
        images,
        [format!("image: pdserve:{version}")],
        "in one place"
    );
}

#[test]
fn the_image_is_built_with_the_pinned_toolchain() {
    let toolchain = read("rust-toolchain.toml");
    let pinned = value_of(&toolchain, "channel = ");
    let dockerfile = read("Dockerfile");
    let image = value_of(&dockerfile, "ARG RUST=rust:");
    let version = image.split('-').next().unwrap_or_default();
    assert_eq!(version, pinned);
}
