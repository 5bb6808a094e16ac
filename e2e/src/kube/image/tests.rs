//! The archive is what other programs read.

use super::*;
use std::process::Stdio;

fn mk_archive(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("program");
    fs::write(&program, b"not really a program").unwrap();
    let archive = folder.join("image.tar");
    write(&archive, "pdserve.invalid/test:1", &program).unwrap();
    archive
}

fn tar(words: &[&str], archive: &Path) -> String {
    let mut command = Command::new("tar");
    command
        .args(words)
        .stdin(Stdio::from(fs::File::open(archive).unwrap()));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tar_reads_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let archive = mk_archive(folder.path());
    let manifest = tar(&["-xO", "manifest.json"], &archive);
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest[0]["RepoTags"][0], "pdserve.invalid/test:1");
    let config = tar(&["-xO", manifest[0]["Config"].as_str().unwrap()], &archive);
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();

    let layer = folder.path().join("layer.tar");
    let mut extract = Command::new("tar");
    extract
        .args(["-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .arg("layer.tar");
    assert!(extract.status().unwrap().success());
    let diff_id = format!("sha256:{}", digest(&fs::read(&layer).unwrap()));
    assert_eq!(config["rootfs"]["diff_ids"][0], diff_id.as_str());
    assert_eq!(tar(&["-xO", "program"], &layer), "not really a program");
    assert!(tar(&["-tv"], &layer).starts_with("-rwxr-xr-x"));
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    assert_eq!(pack("a:1", b"x").unwrap(), pack("a:1", b"x").unwrap());
}
