//! Files of observations: what `--observe-kv` writes and `pd-agent replay` reads. One JSON object a line: first the engine,
//! then what was seen of its requests.

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use pd_engine::observe::{Observation, ObservedEngine, Observer};
use pd_protocol::Role;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How files of observations end.
pub(crate) const EXTENSION: &str = "jsonl";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Engine(ObservedEngine),
    Seen(Box<Observation>),
}

/// Writes a process's observations. Each is in the file before the request goes on.
#[derive(Debug)]
pub(crate) struct ObservationFile {
    path: PathBuf,
    /// Nothing once a write has failed.
    file: Mutex<Option<File>>,
}

/// What a file says.
#[derive(Debug)]
pub(crate) struct Observations {
    pub(crate) engine: ObservedEngine,
    pub(crate) seen: Vec<Observation>,
}

// === impl ObservationFile ===

impl ObservationFile {
    /// A new file in the folder, which is made if it is not there. Prompts are in it, so that its owner alone reads it.
    ///
    /// # Errors
    /// When the folder or the file cannot be made.
    pub(crate) fn create(folder: &Path, role: Role) -> Result<Self> {
        let create = || {
            fs::create_dir_all(folder)?;
            let role = role_name(role);
            let path = folder.join(format!("{role}-{:016x}.{EXTENSION}", rand::random::<u64>()));
            let mut options = File::options();
            let file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            std::io::Result::Ok((path, file))
        };
        let made = create().with_context(|| {
            let folder = folder.display();
            format!("--observe-kv {folder}: no file can be made there; give a folder that this process may write")
        });
        let (path, file) = made?;
        tracing::warn!(
            path = %path.display(),
            "observing requests: hashes of KV are computed and prompts are written; requests are slower"
        );
        Ok(Self {
            path,
            file: Mutex::new(Some(file)),
        })
    }

    fn write(&self, line: &Line) {
        let mut file = self.file.lock();
        let Some(open) = file.as_mut() else { return };
        let mut text = serde_json::to_vec(line).expect("numbers and strings have a JSON form");
        text.push(b'\n');
        if let Err(error) = open.write_all(&text) {
            let path = self.path.display();
            tracing::error!(%path, %error, "ended observation: its file cannot be written");
            *file = None;
        }
    }
}

impl Observer for ObservationFile {
    fn started(&self, engine: ObservedEngine) {
        self.write(&Line::Engine(engine));
    }

    fn observe(&self, observation: Observation) {
        self.write(&Line::Seen(Box::new(observation)));
    }
}

// === impl Observations ===

impl Observations {
    /// Nothing of a file without a whole line: its engine has not started.
    ///
    /// # Errors
    /// When the file cannot be read, or is not one of observations; the error names its line.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let text = fs::read(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| {
            let path = path.display();
            format!("{path} is no file of observations; give those that --observe-kv wrote")
        })
    }

    fn parse(text: &[u8]) -> Result<Option<Self>> {
        let mut engine = None;
        let mut seen = Vec::new();
        // A process that is killed, and a disk that is full, may leave half a line.
        let end = text
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines = text[..end].split_inclusive(|&byte| byte == b'\n');
        for (number, line) in lines.enumerate() {
            let parsed = serde_json::from_slice(line);
            match parsed.with_context(|| format!("line {}", number + 1))? {
                Line::Engine(of_file) => {
                    ensure!(engine.is_none(), "line {}: a second engine", number + 1);
                    engine = Some(of_file);
                }
                Line::Seen(observation) => seen.push(*observation),
            }
        }
        if end == 0 {
            return Ok(None);
        }
        let engine = engine.context("no line names its engine")?;
        ensure!(engine.page_size > 0, "its engine has pages of no tokens");
        Ok(Some(Self { engine, seen }))
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Unified => "unified",
    }
}

#[cfg(test)]
mod tests;
