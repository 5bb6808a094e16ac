//! How far a fetch is, for the log, a terminal and the operator.

use crate::error::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// The speed is that of so long a time.
const WINDOW: Duration = Duration::from_secs(30);

/// What a fetch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It asks the hub for the commit and its files.
    #[default]
    Resolving,
    Fetching,
    /// All of it is there.
    Done,
}

/// How far a fetch is, at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub phase: Phase,
    /// Of those wanted; those that were there already count.
    pub bytes: u64,
    pub total_bytes: u64,
    /// Over the last half minute; nothing before a second has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// What it waits for, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// Shared by what fetches and what reports.
#[derive(Debug, Default)]
pub struct Progress {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    report: Report,
    /// Bytes at times within the window, oldest first.
    seen: VecDeque<(Instant, u64)>,
}

// === impl Progress ===

impl Progress {
    /// How far it is now.
    pub fn report(&self) -> Report {
        let now = Instant::now();
        let state = &mut *self.state.lock();
        let bytes = state.report.bytes;
        if state.report.phase == Phase::Fetching {
            state.seen.push_back((now, bytes));
        }
        while state.seen.len() > 2 && now.duration_since(state.seen[0].0) > WINDOW {
            state.seen.pop_front();
        }
        let mut report = state.report.clone();
        report.bytes_per_second = state.seen.front().and_then(|(then, before)| {
            let seconds = now.duration_since(*then).as_secs();
            bytes.saturating_sub(*before).checked_div(seconds)
        });
        report
    }

    /// Waits for work that moves this, and says at every interval how far it is.
    pub async fn said_until<T>(
        &self,
        every: Duration,
        mut say: impl FnMut(Report),
        work: impl Future<Output = T>,
    ) -> T {
        let mut ticks = tokio::time::interval(every);
        // The first is at once, and most often all is there.
        ticks.tick().await;
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => say(self.report()),
            }
        }
    }

    pub(crate) fn begin(&self, bytes: u64, total_bytes: u64) {
        let state = &mut *self.state.lock();
        state.report.phase = Phase::Fetching;
        (state.report.bytes, state.report.total_bytes) = (bytes, total_bytes);
        state.seen = VecDeque::from([(Instant::now(), bytes)]);
    }

    pub(crate) fn done(&self) {
        let report = &mut self.state.lock().report;
        report.phase = Phase::Done;
        report.waits_for = None;
    }

    pub(crate) fn waits_for(&self, what: Option<String>) {
        self.state.lock().report.waits_for = what;
    }

    /// Counts a file's bytes as `now`, which were `before`: fewer where it begins again.
    pub(crate) fn move_to(&self, before: &mut u64, now: u64) {
        let report = &mut self.state.lock().report;
        report.bytes = (report.bytes + now).saturating_sub(*before);
        *before = now;
    }
}

// === impl Report ===

impl Report {
    /// In 0..=100.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let part = self.bytes.saturating_mul(100).checked_div(self.total_bytes);
        part.unwrap_or(0).min(100)
    }

    /// How long it takes at this speed; nothing where that is not known.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.total_bytes.saturating_sub(self.bytes);
        let seconds = left.checked_div(self.bytes_per_second?)?;
        Some(Duration::from_secs(seconds))
    }
}

/// As in `43 % of 65 GB, 12 min left`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.phase {
            Phase::Resolving => write!(f, "asking the hub")?,
            Phase::Fetching => {
                let total = Bytes(self.total_bytes);
                write!(f, "{} % of {total}", self.percent())?;
                if let Some(left) = self.left() {
                    match left.as_secs() {
                        seconds @ 0..90 => write!(f, ", {seconds} s left")?,
                        seconds @ 90..5400 => write!(f, ", {} min left", seconds.div_ceil(60))?,
                        seconds => write!(f, ", {} h left", seconds.div_ceil(3600))?,
                    }
                }
            }
            Phase::Done => write!(f, "all of {}", Bytes(self.total_bytes))?,
        }
        match &self.waits_for {
            Some(what) => write!(f, "; {what}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Facts about progress.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn speed_and_what_is_left_are_those_of_the_last_half_minute() {
        let progress = Progress::default();
        assert_eq!(progress.report().to_string(), "asking the hub");
        progress.begin(10_000_000_000, 65_000_000_000);
        let mut file = 0;
        for second in 1..=40_u64 {
            tokio::time::advance(Duration::from_secs(1)).await;
            // Fast at first.
            let speed: u64 = if second <= 5 {
                1_000_000_000
            } else {
                50_000_000
            };
            let now = file + speed;
            progress.move_to(&mut file, now);
            progress.report();
        }
        let report = progress.report();
        assert_eq!(report.bytes_per_second, Some(50_000_000));
        assert_eq!(report.to_string(), "25 % of 65 GB, 17 min left");
        let mut again = file;
        progress.move_to(&mut again, 0);
        assert_eq!(progress.report().bytes, 10_000_000_000);
        progress.done();
        assert_eq!(progress.report().to_string(), "all of 65 GB");
    }
}
