//! Connections of a program's listeners: how many are open, and how many were refused or ended for what their clients
//! owed, as a series for each reason. Refusals of requests have series of their own, by status.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

/// Why a connection was ended or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No request came.
    Idle,
    /// A request's head was not completed.
    Head,
    /// An answer was not read.
    Unread,
    /// It waited for its client, and another connection needed the room.
    Evicted,
    /// All are served: it was answered 503.
    Full,
    /// All are served, and too many are being answered 503: it was closed without a word.
    Swamped,
}

/// What a program counts of all its listeners; clones share it.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    open: IntGaugeVec,
    ended: IntCounterVec,
    bodies_late: IntCounterVec,
}

/// What is counted of one listener; clones share it.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    pub(crate) open: IntGauge,
    pub(crate) bodies_late: IntCounter,
    ended: [IntCounter; Ended::ALL.len()],
}

// === impl Ended ===

impl Ended {
    const ALL: [Self; 6] = [
        Self::Idle,
        Self::Head,
        Self::Unread,
        Self::Evicted,
        Self::Full,
        Self::Swamped,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Head => "head",
            Self::Unread => "unread",
            Self::Evicted => "evicted",
            Self::Full => "full",
            Self::Swamped => "swamped",
        }
    }
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// Series whose names begin with `prefix`, such as `pd_router`.
    ///
    /// # Panics
    /// The prefix is no part of a metric's name.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let opts = |name: &str, help: &str| Opts::new(format!("{prefix}_{name}"), help);
        let open = opts("connections", "Connections that are open");
        let ended = opts(
            "connections_ended_total",
            "Connections that were refused, or ended for what their clients owed, by why",
        );
        let late = opts(
            "request_bodies_late_total",
            "Bodies of which nothing came for too long; their requests were answered 408",
        );
        let valid = "the prefix is part of a name";
        Self {
            open: IntGaugeVec::new(open, &["listener"]).expect(valid),
            ended: IntCounterVec::new(ended, &["listener", "reason"]).expect(valid),
            bodies_late: IntCounterVec::new(late, &["listener"]).expect(valid),
        }
    }

    /// To be registered by the program.
    #[must_use]
    pub fn collectors(&self) -> [Box<dyn Collector>; 3] {
        [
            Box::new(self.open.clone()),
            Box::new(self.ended.clone()),
            Box::new(self.bodies_late.clone()),
        ]
    }

    /// The series of one listener, which begin at 0.
    #[must_use]
    pub fn listener(&self, name: &str) -> ListenerMetrics {
        ListenerMetrics {
            open: self.open.with_label_values(&[name]),
            bodies_late: self.bodies_late.with_label_values(&[name]),
            ended: Ended::ALL.map(|why| self.ended.with_label_values(&[name, why.name()])),
        }
    }
}

// === impl ListenerMetrics ===

/// Metrics that no one reads.
impl Default for ListenerMetrics {
    fn default() -> Self {
        ConnectionMetrics::new("unread").listener("unread")
    }
}

impl ListenerMetrics {
    pub(crate) fn ended(&self, why: Ended) {
        self.ended[why as usize].inc();
    }

    #[cfg(test)]
    pub(crate) fn number(&self, why: Ended) -> u64 {
        self.ended[why as usize].get()
    }
}

/// Counts where no one reads it.
#[cfg(test)]
pub(crate) fn uncounted() -> ListenerMetrics {
    ConnectionMetrics::new("test").listener("test")
}
