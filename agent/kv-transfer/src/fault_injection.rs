//! Fault injection: `DISAGGREGATION_TEST_FAILURE_PROB` fails a share of the rooms, each at one
//! `FaultPoint`, so that tests take every path out of a transfer. Source: docs/sglang-protocol.md#fake-transfers.

use crate::failure::FailureReason;
use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Where a room can fail on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultPoint {
    Bootstrap,
    Waiting,
    Transfer,
}

/// Draws which rooms fail.
pub(crate) struct FaultInjection {
    probability: f64,
    draws: Mutex<StdRng>,
}

impl FaultInjection {
    pub(crate) fn new(probability: f64, seed: u64) -> Self {
        Self {
            probability: probability.clamp(0.0, 1.0),
            draws: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }

    pub(crate) fn draw(&self) -> Option<FaultPoint> {
        let mut draws = self.draws.lock();
        let points = [
            FaultPoint::Bootstrap,
            FaultPoint::Waiting,
            FaultPoint::Transfer,
        ];
        draws
            .random_bool(self.probability)
            .then(|| points[draws.random_range(0..points.len())])
    }
}

impl FaultPoint {
    pub(crate) fn reason(self, room: BootstrapRoom) -> FailureReason {
        let message = format!("room {room} failed on purpose at {self:?} (test failure injection)");
        FailureReason::application(message)
    }
}
