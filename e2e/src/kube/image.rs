//! Container images without a registry: one program in one layer, as the tar archive that `docker save`
//! writes and `ctr images import` reads. The same program gives the same bytes.

mod tar;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::Path;
use std::process::Command;

#[cfg(test)]
mod tests;

/// The image of every pod's sandbox.
pub const PAUSE: &str = "pdserve.invalid/pause:1";

/// Compiles `source` (C) into a static program.
///
/// # Errors
/// When gcc is missing or refuses.
pub fn compile(source: &str, output: &Path) -> Result<()> {
    gcc(source, output, &["-static"])
}

/// Builds a library that a program can be started with (`LD_PRELOAD`), from C.
///
/// # Errors
/// When there is no compiler here, or it refuses.
pub fn compile_library(source: &str, output: &Path) -> Result<()> {
    gcc(source, output, &["-shared", "-fPIC"])
}

fn gcc(source: &str, output: &Path, kind: &[&str]) -> Result<()> {
    let c = output.with_extension("c");
    fs::write(&c, source)?;
    let mut gcc = Command::new("gcc");
    gcc.args(kind)
        .args(["-O1", "-Wall", "-s", "-o"])
        .arg(output)
        .arg(&c);
    let compiled = gcc.output().context("start gcc")?;
    ensure!(
        compiled.status.success(),
        "gcc cannot build {} (apt-get install gcc libc6-dev): {}",
        output.display(),
        String::from_utf8_lossy(&compiled.stderr).trim_end()
    );
    Ok(())
}

/// Writes an image called `reference` whose one file and entry point is `program`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(archive: &Path, reference: &str, program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("read {}", program.display()))?;
    fs::write(archive, pack(reference, &bytes)?)
        .with_context(|| format!("write {}", archive.display()))
}

/// The archive's bytes: `program` as `/program`.
fn pack(reference: &str, program: &[u8]) -> Result<Vec<u8>> {
    let layer = tar::archive(&[("program", 0o755, program)])?;
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Entrypoint": ["/program"], "Env": ["PATH=/"], "User": "65534:65534"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))]},
    })
    .to_string();
    let config_name = format!("{}.json", digest(config.as_bytes()));
    let manifest = json!([{
        "Config": config_name,
        "RepoTags": [reference],
        "Layers": ["layer.tar"],
    }])
    .to_string();
    tar::archive(&[
        (&config_name, 0o644, config.as_bytes()),
        ("layer.tar", 0o644, &layer),
        ("manifest.json", 0o644, manifest.as_bytes()),
    ])
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("a String takes every write");
    }
    text
}

/// Waits until it is output to end: the process that holds a pod's namespaces.
pub const PAUSE_SOURCE: &str = r#"#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(signal == SIGINT || signal == SIGTERM ? 0 : 1); }
static void reap(int signal) { while (waitpid(-1, 0, WNOHANG) > 0) {} (void)signal; }

int main(void) {
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"#;
