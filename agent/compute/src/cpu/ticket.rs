//! Results on their way from the queue thread to their waiter.

use crate::buffer::{HostBytes, Ticket};
use crate::error::ComputeError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// A ticket of the CPU queue.
#[derive(Debug)]
pub struct CpuTicket {
    state: Arc<TicketState>,
}

#[derive(Debug, Default)]
pub(super) struct TicketState {
    result: Mutex<Option<Result<HostBytes, ComputeError>>>,
    done: Condvar,
}

// === impl CpuTicket ===

impl CpuTicket {
    pub(super) fn new(state: Arc<TicketState>) -> Self {
        Self { state }
    }
}

impl Ticket for CpuTicket {
    fn wait(self) -> Result<HostBytes, ComputeError> {
        let mut result = self.state.result.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            self.state.done.wait(&mut result);
        }
    }

    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>> {
        self.state.result.lock().take()
    }
}

// === impl TicketState ===

impl TicketState {
    pub(super) fn complete(&self, result: Result<HostBytes, ComputeError>) {
        *self.result.lock() = Some(result);
        self.done.notify_all();
    }
}
