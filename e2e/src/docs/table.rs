//! What became of each block, as the table that the test prints.

use super::{Block, Document};
use anyhow::{Result, bail};
use std::fmt;

/// Widest title that a row shows.
const TITLE_LEN: usize = 72;

#[derive(Debug)]
pub enum Outcome {
    Ran {
        seconds: f64,
    },
    Failed(String),
    /// A block before it failed.
    NotReached,
    /// Its commands are steps of `.ci/run`.
    Ci,
    /// It cannot run here, and was checked.
    Checked {
        reason: Option<String>,
        commands: usize,
    },
    /// What a program prints; nothing to run.
    Shown,
}

#[derive(Debug)]
pub struct Row {
    place: String,
    title: String,
    outcome: Outcome,
}

#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

// === impl Row ===

impl Row {
    pub fn of(document: &Document, block: &Block, outcome: Outcome) -> Self {
        let mut title: String = block.title().chars().take(TITLE_LEN).collect();
        if title.len() < block.title().len() {
            title.push('…');
        }
        Self {
            place: format!("{}:{}", document.path.display(), block.line),
            title,
            outcome,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match &self.outcome {
            Outcome::Ran { seconds } => format!("run, {seconds:.1} s"),
            Outcome::Failed(_) => "FAILED".to_owned(),
            Outcome::NotReached => "NOT REACHED".to_owned(),
            Outcome::Ci => "run by .ci/run".to_owned(),
            Outcome::Checked { .. } => "checked".to_owned(),
            Outcome::Shown => "shown".to_owned(),
        };
        write!(f, "{:<42} {outcome:<16} {}", self.place, self.title)?;
        match &self.outcome {
            Outcome::Checked {
                reason: Some(reason),
                commands,
            } => write!(f, "\n{:<42} {commands} commands; not run: {reason}", ""),
            Outcome::Failed(output) => write!(f, "\n{output}"),
            Outcome::Ran { .. }
            | Outcome::NotReached
            | Outcome::Ci
            | Outcome::Checked { reason: None, .. }
            | Outcome::Shown => Ok(()),
        }
    }
}

// === impl Table ===

impl Table {
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.0.extend(rows);
    }

    /// # Errors
    /// When a block failed or was not reached; the error is its row.
    pub fn check(&self) -> Result<()> {
        let failed = |row: &&Row| matches!(row.outcome, Outcome::Failed(_) | Outcome::NotReached);
        match self.0.iter().find(failed) {
            Some(row) => bail!("a document is not as it is written: {row}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.0 {
            writeln!(f, "{row}")?;
        }
        let count = |is: fn(&Outcome) -> bool| self.0.iter().filter(|r| is(&r.outcome)).count();
        let (ran, ci) = (
            count(|o| matches!(o, Outcome::Ran { .. })),
            count(|o| matches!(o, Outcome::Ci)),
        );
        let marked = |o: &Outcome| {
            matches!(
                o,
                Outcome::Checked {
                    reason: Some(_),
                    ..
                }
            )
        };
        let plain = |o: &Outcome| matches!(o, Outcome::Checked { reason: None, .. });
        write!(
            f,
            "{ran} run, {ci} run by .ci/run, {} checked, {} marked and checked, {} shown",
            count(plain),
            count(marked),
            count(|o| matches!(o, Outcome::Shown))
        )
    }
}
