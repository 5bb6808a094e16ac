//! The ratio of two sums that decay.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecayedRatio {
    over: f64,
    under: f64,
}

// === impl DecayedRatio ===

impl DecayedRatio {
    /// Adds to both sums. Of what was there, a share goes that is as large as `under` is of
    /// `memory`, so that silence forgets nothing.
    pub(crate) fn add(&mut self, over: f64, under: f64, memory: f64) {
        let kept = (-under / memory).exp();
        self.over = self.over * kept + over;
        self.under = self.under * kept + under;
    }

    /// Nothing before `under` has come to `least`.
    pub(crate) fn get(&self, least: f64) -> Option<f64> {
        (self.under >= least).then(|| self.over / self.under)
    }
}
