//! Models that cannot be served: `pd-agent` ends within seconds, with one message that names the
//! file and what is wrong with it, and without a panic.

mod folder;
mod gguf;
mod safetensors;

use super::says;
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// A start that fails, fails within this.
const FAILS_WITHIN: Duration = Duration::from_secs(5);

/// A damaged model, and what must be said of it.
struct Damaged {
    name: &'static str,
    /// What `--model-path` gets, inside the folder of the case.
    path: PathBuf,
    /// The file that the message must name; the folder goes before it.
    file: PathBuf,
    says: Vec<String>,
    _folder: TempDir,
}

// === impl Damaged ===

impl Damaged {
    /// Copies a committed model, a folder or a file, and damages the copy.
    fn copy_of(
        name: &'static str,
        model: &Path,
        (file, parts): (&str, &[&str]),
        damage: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let temporary = tempfile::tempdir()?;
        let path = temporary.path().join("model");
        let path = if model.is_dir() {
            std::fs::create_dir(&path)?;
            for entry in std::fs::read_dir(model)? {
                let entry = entry?;
                std::fs::copy(entry.path(), path.join(entry.file_name()))?;
            }
            path
        } else {
            let path = path.with_extension("gguf");
            std::fs::copy(model, &path)?;
            path
        };
        damage(&path).with_context(|| format!("damage for {name}"))?;
        Ok(Self {
            name,
            file: if file.is_empty() {
                path.clone()
            } else {
                path.join(file)
            },
            path,
            says: parts.iter().map(|&part| part.to_owned()).collect(),
            _folder: temporary,
        })
    }

    async fn is_refused(&self) -> Result<()> {
        let output = Command::new(binaries::binary("pd-agent"))
            .args(["--port", "0", "--admin-port", "0", "--model-path"])
            .arg(&self.path)
            .env("RUST_BACKTRACE", "1")
            .env("XDG_CACHE_HOME", self.path.with_extension("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(FAILS_WITHIN, output).await;
        let output = output.with_context(|| format!("it runs after {FAILS_WITHIN:?}"))??;
        let log = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(1),
            "it ended with {}:\n{log}",
            output.status
        );
        for word in ["panicked", "backtrace"] {
            ensure!(!log.contains(word), "{word}:\n{log}");
        }
        let errors: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(" ERROR "))
            .collect();
        let [error] = errors.as_slice() else {
            anyhow::bail!("{} messages instead of one:\n{log}", errors.len());
        };
        let file = self.file.display().to_string();
        let parts: Vec<&str> = self.says.iter().map(String::as_str).collect();
        says(error, &[&file])?;
        says(error, &parts)
    }
}

/// Names every case that fails, not the first alone.
async fn are_refused(cases: Vec<Damaged>) -> Result<()> {
    let mut failed = String::new();
    for case in cases {
        if let Err(error) = case.is_refused().await {
            failed.push_str(&format!("{}: {error:#}\n", case.name));
        }
    }
    ensure!(failed.is_empty(), "{failed}");
    Ok(())
}

fn edit_json(file: &Path, edit: impl FnOnce(&mut Map<String, Value>)) -> Result<()> {
    rewrite(file, |bytes| {
        let mut object = serde_json::from_slice(&bytes)?;
        edit(&mut object);
        Ok(serde_json::to_vec(&object)?)
    })
}

fn remove(folder: &Path, name: &str) -> Result<()> {
    Ok(std::fs::remove_file(folder.join(name))?)
}

/// A damaged copy of the tiny llama folder.
fn of_llama(
    name: &'static str,
    expected: (&str, &[&str]),
    damage: impl FnOnce(&Path) -> Result<()>,
) -> Result<Damaged> {
    Damaged::copy_of(name, &binaries::tiny_model("tiny-llama"), expected, damage)
}

fn nothing_done(_: &Path) -> Result<()> {
    Ok(())
}

fn rewrite(file: &Path, edit: impl FnOnce(Vec<u8>) -> Result<Vec<u8>>) -> Result<()> {
    let bytes = std::fs::read(file)?;
    Ok(std::fs::write(file, edit(bytes)?)?)
}

fn truncate(file: &Path, len: usize) -> Result<()> {
    rewrite(file, |mut bytes| {
        bytes.truncate(len);
        Ok(bytes)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_without_a_model_are_named() -> Result<()> {
    let tiny = binaries::tiny_model("tiny-llama");
    let mut gone = Damaged::copy_of(
        "nothing there",
        &tiny,
        ("", &["No such file"]),
        nothing_done,
    )?;
    gone.path = PathBuf::from("/no/such/model.gguf");
    gone.file.clone_from(&gone.path);
    let emptied = |folder: &Path| -> Result<()> {
        std::fs::remove_dir_all(folder)?;
        Ok(std::fs::create_dir(folder)?)
    };
    let hint = "expected a .gguf file, or a folder with config.json";
    let empty = Damaged::copy_of("an empty folder", &tiny, ("", &[hint]), emptied)?;
    let other = Damaged::copy_of("another kind of file", &tiny, ("", &[hint]), |folder| {
        std::fs::remove_dir_all(folder)?;
        Ok(std::fs::write(folder, "no model")?)
    })?;
    let several = ["holds 2 .gguf files", "give the path of one"];
    let several = Damaged::copy_of("several files", &tiny, ("", &several), |folder| {
        emptied(folder)?;
        for name in ["a.gguf", "b.gguf"] {
            std::fs::write(folder.join(name), "")?;
        }
        Ok(())
    })?;
    are_refused(vec![gone, empty, other, several]).await
}
