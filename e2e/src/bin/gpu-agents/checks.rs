//! `Checks`: what a part has found so far; each is a line on the terminal when it is known.

use anyhow::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Verdict {
    #[serde(rename = "skipped")]
    Skipped,
    #[serde(rename = "ok")]
    Ok,
    #[serde(rename = "FAILED")]
    Failed,
}

#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
    /// What was measured, or why it failed or was skipped.
    pub(crate) note: String,
}

#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<Check>);

// === impl Verdict ===

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Failed => "FAILED",
        }
    }
}

// === impl Checks ===

impl Checks {
    /// Waits for a check; it fails with its error, and notes what it gives.
    pub(crate) async fn check(
        &mut self,
        name: impl Into<String>,
        check: impl Future<Output = Result<String>>,
    ) {
        let started = Instant::now();
        let (verdict, note) = match check.await {
            Ok(note) => (Verdict::Ok, note),
            Err(why) => (Verdict::Failed, format!("{why:#}")),
        };
        self.enter(Check {
            name: name.into(),
            verdict,
            seconds: started.elapsed().as_secs_f64(),
            note,
        });
    }

    /// Waits for what checks compare with; that it errs is a failed check.
    pub(crate) async fn expected<T>(
        &mut self,
        name: impl Into<String>,
        expected: impl Future<Output = Result<T>>,
    ) -> Option<T> {
        match expected.await {
            Ok(expected) => Some(expected),
            Err(why) => {
                self.failed(&name.into(), &why);
                None
            }
        }
    }

    pub(crate) fn skipped(&mut self, name: &str, why: &str) {
        self.enter(Check {
            name: name.to_owned(),
            verdict: Verdict::Skipped,
            seconds: 0.0,
            note: why.to_owned(),
        });
    }

    pub(crate) fn failed(&mut self, name: &str, why: &Error) {
        self.enter(Check {
            name: name.to_owned(),
            verdict: Verdict::Failed,
            seconds: 0.0,
            note: format!("{why:#}"),
        });
    }

    pub(crate) fn enter(&mut self, check: Check) {
        let Check {
            name,
            verdict,
            seconds,
            note,
        } = &check;
        println!("{:7} {seconds:7.2} s  {name}  ({note})", verdict.word());
        self.0.push(check);
    }

    /// The worst of all; skipped when nothing was checked.
    pub(crate) fn verdict(&self) -> Verdict {
        let verdicts = self.0.iter().map(|check| check.verdict);
        verdicts.max().unwrap_or(Verdict::Skipped)
    }

    pub(crate) fn done(self) -> Vec<Check> {
        self.0
    }
}
