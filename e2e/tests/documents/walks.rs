//! Walks through made-up repositories, and an example with a wrong argument.

use crate::checker;
use anyhow::Result;
use pd_e2e::binaries;
use pd_e2e::docs::{self, Network, Row, Table, WalkSite};
use std::path::Path;
use std::process::Command;

/// A repository whose README has these blocks of commands.
fn repository(blocks: &[&str]) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let fenced = |block: &&str| format!("```sh\n{block}\n```\n");
    let text: String = blocks.iter().map(fenced).collect();
    std::fs::write(folder.path().join("README.md"), text)?;
    std::fs::write(folder.path().join(".gitignore"), "/target\n/.cache\n")?;
    let made = Command::new("git")
        .args(["init", "--quiet"])
        .current_dir(folder.path())
        .status()?;
    assert!(made.success(), "git init: {made}");
    Ok(folder)
}

async fn walk(root: &Path) -> Result<Vec<Row>> {
    let place = WalkSite {
        root: root.to_owned(),
        env: Vec::new(),
        network: Network::Loopback,
    };
    let documents = docs::documents(root)?;
    docs::walk(&place, &documents[0], |_| true).await
}

#[tokio::test]
async fn a_block_that_fails_fails_its_document() -> Result<()> {
    let repository = repository(&["echo one", "false\necho two", "echo three"])?;
    let mut table = Table::default();
    table.extend(walk(repository.path()).await?);
    let why = table.check().unwrap_err().to_string();
    assert!(
        why.contains("README.md:5") && why.contains("FAILED"),
        "{why}"
    );
    assert!(table.to_string().ends_with("1 run, 0 run by .ci/run, 0 checked, 0 marked with a reason and checked, 0 shown, 2 failed"), "{table}");
    Ok(())
}

#[tokio::test]
async fn a_walk_happens_in_a_clone_with_a_shells_environment_and_no_network() -> Result<()> {
    let repository = repository(&[
        "touch left-behind && git checkout README.md",
        "[ -z \"$CARGO_MANIFEST_DIR$CARGO_PKG_NAME$RUSTUP_TOOLCHAIN\" ]",
        "[ -z \"$(ip route)\" ]",
    ])?;
    let mut table = Table::default();
    table.extend(walk(repository.path()).await?);
    table.check()?;
    assert!(!repository.path().join("left-behind").exists());
    Ok(())
}

#[tokio::test]
async fn a_walk_that_compiles_is_refused() -> Result<()> {
    let repository = repository(&["echo '   Compiling ring v0.17.14'"])?;
    let why = walk(repository.path()).await.unwrap_err().to_string();
    assert!(why.contains("compile again what stands built"), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_argument_of_an_example_is_no_missing_gpu() -> Result<()> {
    let right = std::fs::read_to_string(binaries::workspace().join("examples/qwen3-2p2d.yaml"))?;
    let folder = tempfile::tempdir()?;
    let wrong = folder.path().join("wrong.yaml");
    std::fs::write(&wrong, right.replace("value: \"8192\"", "value: many"))?;
    let mut table = Table::default();
    table.extend(checker()?.check_containers(&wrong)?);
    let why = table.check().unwrap_err().to_string();
    assert!(
        why.contains("prefill") && why.contains("'many' for '--chunked-prefill-size"),
        "{why}"
    );
    assert!(table.to_string().ends_with("1 failed"), "{table}");
    Ok(())
}
