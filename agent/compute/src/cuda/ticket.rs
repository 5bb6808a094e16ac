//! Results on their way from the device.

use std::sync::Arc;

use super::backend::Shared;
use super::driver::{DriverError, Event};
use super::pinned::{BLOCK_BYTES_MAX, Block};
use crate::buffer::{HostBytes, Ticket};
use crate::error::ComputeError;

/// A ticket of the CUDA stream.
#[derive(Debug)]
pub struct CudaTicket {
    shared: Arc<Shared>,
    /// Until the result is taken.
    state: Option<Pending>,
}

#[derive(Debug)]
pub(super) enum Pending {
    /// The stream copies to these blocks, all but the last of them full, until the event.
    Copying {
        blocks: Vec<Block>,
        len_bytes: usize,
        event: Event,
    },
    Failed(ComputeError),
}

// === impl CudaTicket ===

impl CudaTicket {
    pub(super) fn new(shared: &Arc<Shared>, pending: Pending) -> Self {
        Self {
            shared: Arc::clone(shared),
            state: Some(pending),
        }
    }

    /// The result, the event having passed or failed.
    fn finish(
        &mut self,
        passed: Result<(), DriverError>,
    ) -> Option<Result<HostBytes, ComputeError>> {
        let (blocks, len_bytes, event) = match self.state.take()? {
            Pending::Failed(error) => return Some(Err(error)),
            Pending::Copying {
                blocks,
                len_bytes,
                event,
            } => (blocks, len_bytes, event),
        };
        if let Err(error) = passed {
            self.shared.fault.keep("read", error);
            self.shared.give_back(blocks, event, false);
            return Some(self.shared.fault.check().map(|()| HostBytes::default()));
        }
        let mut host = HostBytes::zeroed(len_bytes);
        for (block, part) in blocks
            .iter()
            .zip(host.as_bytes_mut().chunks_mut(BLOCK_BYTES_MAX))
        {
            // SAFETY: the event has passed, so the stream is done with the block.
            part.copy_from_slice(unsafe { block.bytes(part.len()) });
        }
        self.shared.give_back(blocks, event, true);
        Some(self.shared.fault.check().map(|()| host))
    }
}

impl Ticket for CudaTicket {
    fn wait(mut self) -> Result<HostBytes, ComputeError> {
        let passed = match &self.state {
            Some(Pending::Copying { event, .. }) => self.shared.driver.wait(event),
            Some(Pending::Failed(_)) | None => Ok(()),
        };
        self.finish(passed)
            .expect("a ticket that is waited for has not been taken")
    }

    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>> {
        let passed = match &self.state {
            Some(Pending::Copying { event, .. }) => match self.shared.driver.is_done(event) {
                Ok(false) => return None,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            },
            Some(Pending::Failed(_)) | None => Ok(()),
        };
        self.finish(passed)
    }
}

impl Drop for CudaTicket {
    fn drop(&mut self) {
        if let Some(Pending::Copying { blocks, event, .. }) = self.state.take() {
            self.shared.give_back(blocks, event, false);
        }
    }
}
