//! What one pool needs, in replicas that are not whole yet.

use super::decision::Reason;

/// What one pool needs, and what for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Need {
    /// For what comes and for what waits.
    pub(crate) replicas: f64,
    pub(crate) reason: Reason,
    /// For what comes alone.
    pub(crate) flow: f64,
}

// === impl Need ===

impl Need {
    pub(super) const NONE: Self = Self {
        replicas: 0.0,
        reason: Reason::Steady,
        flow: 0.0,
    };

    pub(super) fn largest(flow: &[(Reason, f64)], waiting: (Reason, f64)) -> Self {
        let larger = |most: (Reason, f64), need: &(Reason, f64)| {
            if need.1 > most.1 { *need } else { most }
        };
        let most = flow.iter().fold((Reason::Steady, 0.0), larger);
        let (reason, replicas) = larger(most, &waiting);
        Self {
            replicas,
            reason,
            flow: most.1,
        }
    }

    /// As many more as there are degraded replicas. If only they make the pool grow
    /// beyond its target, they are why.
    pub(super) fn beside(self, degraded: u32, target: u32) -> Self {
        let more = Self {
            replicas: self.replicas + f64::from(degraded),
            flow: self.flow + f64::from(degraded),
            ..self
        };
        if self.whole() <= target && more.whole() > target {
            return Self {
                reason: Reason::Degraded,
                ..more
            };
        }
        more
    }

    /// In whole replicas; a hair above a whole number is the whole number.
    pub(crate) fn whole(&self) -> u32 {
        whole(self.replicas)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and a need is not negative"
)]
pub(crate) fn whole(replicas: f64) -> u32 {
    (replicas - 1e-9).ceil() as u32
}
