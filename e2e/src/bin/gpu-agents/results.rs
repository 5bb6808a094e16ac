//! `Results`: the file that a run goes on from, and the table of it.

use crate::checks::{Check, Verdict};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;

/// Parts, in the order in which they first ran.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) device: String,
    /// Of the programs that were tried.
    build: String,
    parts: Vec<Value>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PartResult {
    pub(crate) name: &'static str,
    /// Device, and the other parameters of a part.
    pub(crate) ran_as: String,
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
    pub(crate) checks: Vec<Check>,
}

// === impl Results ===

impl Results {
    /// Those of the file; none where there is no file, or it is of another build.
    ///
    /// # Errors
    /// When it is there and not as [`Results::write`] leaves it.
    pub(crate) fn open(path: &Path, build: &str) -> Result<Self> {
        let none = Self {
            build: build.to_owned(),
            ..Self::default()
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(none),
            Err(why) => return Err(why).with_context(|| path.display().to_string()),
        };
        let file: Value =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let parts = file["parts"].as_array().cloned();
        let parts = parts.with_context(|| format!("{} has no parts", path.display()))?;
        if text_of(&file, "build") == build {
            Ok(Self { parts, ..none })
        } else {
            Ok(none)
        }
    }

    /// Replaces the file, so that a run that is cut leaves the one before; the table goes beside it.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let Self {
            device,
            build,
            parts,
        } = self;
        let file = json!({"device": device, "build": build, "parts": parts});
        std::fs::write(&new, serde_json::to_string_pretty(&file)? + "\n")?;
        std::fs::rename(&new, path)?;
        Ok(std::fs::write(path.with_extension("txt"), self.table())?)
    }

    pub(crate) fn has_ok(&self, name: &str, ran_as: &str) -> bool {
        let wanted = [name, ran_as, Verdict::Ok.word()];
        self.parts
            .iter()
            .any(|part| ["name", "ran_as", "verdict"].map(|key| text_of(part, key)) == wanted)
    }

    /// In the place of the part's earlier result, if there is one.
    pub(crate) fn enter(&mut self, part: PartResult) {
        let new = json!(part);
        match self.parts.iter_mut().find(|old| old["name"] == new["name"]) {
            Some(old) => *old = new,
            None => self.parts.push(new),
        }
    }

    /// The worst of all parts.
    pub(crate) fn verdict(&self) -> Verdict {
        let failed = |part: &Value| text_of(part, "verdict") == Verdict::Failed.word();
        if self.parts.iter().any(failed) {
            Verdict::Failed
        } else {
            Verdict::Ok
        }
    }

    /// A row per part, and the numbers of its checks by verdict.
    pub(crate) fn table(&self) -> String {
        let mut out = format!("{}\n", self.device);
        let mut row = |columns: [&str; 7]| {
            let [part, verdict, seconds, ok, failed, skipped, ran_as] = columns;
            writeln!(
                out,
                "{part:14} {verdict:7} {seconds:>8} {ok:>4} {failed:>6} {skipped:>7}  {ran_as}"
            )
            .expect("a String takes every write");
        };
        row([
            "part", "verdict", "seconds", "ok", "FAILED", "skipped", "ran as",
        ]);
        let mut sum = 0.0;
        for part in &self.parts {
            let seconds = part["seconds"].as_f64().unwrap_or_default();
            sum += seconds;
            let checks = part["checks"].as_array().map_or(&[][..], Vec::as_slice);
            let count = |verdict: Verdict| {
                let of = |check: &&Value| text_of(check, "verdict") == verdict.word();
                checks.iter().filter(of).count().to_string()
            };
            row([
                text_of(part, "name"),
                text_of(part, "verdict"),
                &format!("{seconds:.1}"),
                &count(Verdict::Ok),
                &count(Verdict::Failed),
                &count(Verdict::Skipped),
                text_of(part, "ran_as"),
            ]);
        }
        row([
            "all",
            self.verdict().word(),
            &format!("{sum:.1}"),
            "",
            "",
            "",
            "",
        ]);
        out
    }
}

fn text_of<'a>(part: &'a Value, key: &str) -> &'a str {
    part[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
