//! Results of ops, which run as they are called.

use crate::buffer::{HostBytes, Ticket};
use crate::error::ComputeError;

/// A result that was here at once.
#[derive(Debug)]
pub struct TchTicket {
    pub(super) result: Option<Result<HostBytes, ComputeError>>,
}

impl Ticket for TchTicket {
    fn wait(self) -> Result<HostBytes, ComputeError> {
        self.result
            .expect("a ticket that is waited for was not asked before")
    }

    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>> {
        self.result.take()
    }
}
