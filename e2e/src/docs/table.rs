//! What became of each block and each container, as the table that the test prints. Beside `checked` stands of how many
//! commands.

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
        let place = format!("{}:{}", document.path.display(), block.line);
        Self::new(place, &block.title(), outcome)
    }

    pub(super) fn new(place: String, title: &str, outcome: Outcome) -> Self {
        let mut shown: String = title.chars().take(TITLE_LEN).collect();
        if shown.len() < title.len() {
            shown.push('…');
        }
        Self {
            place,
            title: shown,
            outcome,
        }
    }

    /// Why it is checked and does not run.
    fn reason(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Checked { reason, .. } => reason.as_deref(),
            Outcome::Ran { .. }
            | Outcome::Failed(_)
            | Outcome::NotReached
            | Outcome::Ci
            | Outcome::Shown => None,
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
            Outcome::Checked { commands, .. } => format!("checked, {commands}"),
            Outcome::Shown => "shown".to_owned(),
        };
        write!(f, "{:<50} {outcome:<14} {}", self.place, self.title)?;
        match &self.outcome {
            Outcome::Failed(output) => write!(f, "\n{output}"),
            Outcome::Ran { .. }
            | Outcome::NotReached
            | Outcome::Ci
            | Outcome::Checked { .. }
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
        let mut said = None;
        for row in &self.0 {
            // Many rows in turn have one reason.
            if let Some(reason) = row.reason().filter(|reason| said != Some(*reason)) {
                writeln!(f, "-- not run here: {reason}")?;
            }
            said = row.reason();
            writeln!(f, "{row}")?;
        }
        let count = |is: fn(&Outcome) -> bool| self.0.iter().filter(|r| is(&r.outcome)).count();
        let (ran, ci) = (
            count(|o| matches!(o, Outcome::Ran { .. })),
            count(|o| matches!(o, Outcome::Ci)),
        );
        let reasons = self.0.iter().filter(|row| row.reason().is_some()).count();
        let checked = count(|o| matches!(o, Outcome::Checked { .. })) - reasons;
        write!(
            f,
            "{ran} run, {ci} run by .ci/run, {checked} checked, {reasons} marked with a reason and checked, {} shown, {} failed",
            count(|o| matches!(o, Outcome::Shown)),
            count(|o| matches!(o, Outcome::Failed(_) | Outcome::NotReached))
        )
    }
}
