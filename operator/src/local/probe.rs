//! Probes: what a container's health is, from the answers to its HTTP GETs, or from connections.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The probes of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probes {
    /// Until it succeeds, the other two are not asked; its failure restarts the container.
    pub(crate) startup: Option<ProbeSpec>,
    /// Whether the container gets requests.
    pub(crate) readiness: Option<ProbeSpec>,
    /// Its failure restarts the container.
    pub(crate) liveness: Option<ProbeSpec>,
}

/// What a probe asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeTarget {
    /// A GET of this URL.
    Http(String),
    /// A connection.
    Tcp(SocketAddr),
}

/// What to ask, when, and what its answers mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSpec {
    pub(crate) target: ProbeTarget,
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
    /// Failures in a row that make it fail.
    pub(crate) failures: u32,
    /// Successes in a row that make it succeed.
    pub(crate) successes: u32,
}

/// A probe's answers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streak {
    verdict: Option<bool>,
    /// Answers in a row that are the last one's kind.
    run: u32,
    last: Option<bool>,
}

// === impl ProbeTarget ===

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => url.fmt(f),
            Self::Tcp(at) => at.fmt(f),
        }
    }
}

// === impl Streak ===

impl Streak {
    /// Takes an answer and returns the verdict: nothing until a threshold is first reached.
    pub(crate) fn answer(&mut self, ok: bool, spec: &ProbeSpec) -> Option<bool> {
        self.run = if self.last == Some(ok) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(ok);
        let threshold = if ok { spec.successes } else { spec.failures };
        if self.run >= threshold {
            self.verdict = Some(ok);
        }
        self.verdict
    }
}

#[cfg(test)]
mod tests;
