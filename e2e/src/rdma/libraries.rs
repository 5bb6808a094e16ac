//! The shared libraries of a program, as the dynamic linker of this machine finds them.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program or library is linked with, all of it; libraries in `folder` first.
///
/// # Errors
/// The linker cannot be asked, or misses one.
pub fn of(program: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .env("LD_LIBRARY_PATH", folder)
        .output();
    let output = output.context("start ldd")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if said.contains("statically linked") || complaint.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    ensure!(
        output.status.success(),
        "ldd {}: {complaint}",
        program.display()
    );
    parse(&said).with_context(|| format!("the libraries of {}", program.display()))
}

/// Lines `name => path (address)`, or `path (address)` for the linker itself.
fn parse(said: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in said.lines() {
        if line.contains("not found") {
            bail!("missing here: {}", line.trim());
        }
        let words = line.split_whitespace().find(|word| word.starts_with('/'));
        found.extend(words.map(PathBuf::from));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
