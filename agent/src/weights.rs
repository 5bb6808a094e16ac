//! What is said of a process's weights, and where others are asked for; `wiring::model_host` loads them.

use crate::http::error::ApiError;
use http::StatusCode;
use parking_lot::Mutex;
use pd_protocol::weights::{Checkpoint, FailedWeights, WeightsPhase, WeightsStatus, WeightsUpdate};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Asks for other weights.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) update: WeightsUpdate,
    /// Requests that waited meanwhile, or why the weights are those from before.
    pub(crate) done_tx: oneshot::Sender<Result<u64, String>>,
}

/// Weights that were asked for.
#[derive(Debug)]
pub(crate) struct Coming(oneshot::Receiver<Result<u64, String>>);

#[derive(Debug)]
pub(crate) struct WeightsBoard {
    said: Mutex<Said>,
    asked_tx: mpsc::Sender<Asked>,
}

#[derive(Debug, Default)]
struct Said {
    serving: Option<Checkpoint>,
    phase: WeightsPhase,
    /// When the phase began.
    since: Option<Instant>,
    prepared: Option<Checkpoint>,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    checkpoint: Checkpoint,
    reason: String,
    was_loaded: bool,
    at: Instant,
}

// === impl WeightsBoard ===

impl WeightsBoard {
    /// A board, and who asks by it: one at a time.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (asked_tx, asked_rx) = mpsc::channel(1);
        let board = Self {
            said: Mutex::default(),
            asked_tx,
        };
        (board, asked_rx)
    }

    /// Asks for other weights. They come whether their arrival is waited for or not.
    ///
    /// # Errors
    /// 409 while others come, 503 while the first model loads.
    pub(crate) fn ask(&self, update: WeightsUpdate) -> Result<Coming, ApiError> {
        let under_way = || {
            let message = "weights are being read or replaced; GET /weights says how far it is";
            ApiError::new(StatusCode::CONFLICT, message).with_code("update_under_way")
        };
        let (done_tx, done_rx) = oneshot::channel();
        let mut said = self.said.lock();
        if said.serving.is_none() {
            return Err(ApiError::retriable("the model is still loading"));
        }
        if said.phase != WeightsPhase::Serving {
            return Err(under_way());
        }
        let asked = Asked { update, done_tx };
        self.asked_tx.try_send(asked).map_err(|_| under_way())?;
        said.phase = WeightsPhase::Preparing;
        Ok(Coming(done_rx))
    }

    /// `waiting`: requests that wait for new weights.
    ///
    /// # Errors
    /// 503 while the first model loads.
    pub(crate) fn status(&self, waiting: u64) -> Result<WeightsStatus, ApiError> {
        let said = self.said.lock();
        let loading = || ApiError::retriable("the model is still loading");
        Ok(WeightsStatus {
            serving: said.serving.clone().ok_or_else(loading)?,
            phase: said.phase,
            prepared: said.prepared.clone(),
            failed: said.failed.as_ref().map(Failed::said),
            waiting,
        })
    }

    /// How long it is in its phase.
    pub(crate) fn in_phase_for(&self) -> Duration {
        let since = self.said.lock().since;
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) fn set_phase(&self, phase: WeightsPhase) {
        let mut said = self.said.lock();
        said.phase = phase;
        said.since = Some(Instant::now());
    }

    pub(crate) fn set_serving(&self, checkpoint: Checkpoint) {
        self.said.lock().serving = Some(checkpoint);
    }

    pub(crate) fn set_prepared(&self, checkpoint: Checkpoint) {
        let mut said = self.said.lock();
        said.prepared = Some(checkpoint);
        said.failed = None;
    }

    /// `was_loaded`: after it had been read and checked.
    pub(crate) fn set_failed(&self, checkpoint: Checkpoint, reason: String, was_loaded: bool) {
        let mut said = self.said.lock();
        said.prepared = None;
        said.failed = Some(Failed {
            checkpoint,
            reason,
            was_loaded,
            at: Instant::now(),
        });
    }
}

// === impl Coming ===

impl Coming {
    /// Waits until the weights serve. Returns how many requests waited for them, or why those from before serve.
    ///
    /// # Errors
    /// 503 when the process ends.
    pub(crate) async fn arrival(self) -> Result<Result<u64, String>, ApiError> {
        let ends = |_| ApiError::retriable("the process ends; its weights are those from before");
        self.0.await.map_err(ends)
    }
}

// === impl Failed ===

impl Failed {
    fn said(&self) -> FailedWeights {
        FailedWeights {
            checkpoint: self.checkpoint.clone(),
            reason: self.reason.clone(),
            was_loaded: self.was_loaded,
            age_secs: self.at.elapsed().as_secs(),
        }
    }
}
