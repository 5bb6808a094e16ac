//! Results on their way from the device.

use super::backend::Shared;
use super::driver::DriverError;
use super::pinned::{BLOCK_BYTES_MAX, Block};
use super::stream_event::StreamEvent;
use crate::buffer::{HostBytes, Ticket};
use crate::error::ComputeError;
use std::sync::Arc;

/// A ticket of the CUDA stream.
#[derive(Debug)]
pub struct CudaTicket {
    shared: Arc<Shared>,
    /// Until the result is taken.
    state: Option<Pending>,
}

#[derive(Debug)]
pub(super) enum Pending {
    /// The stream copies to these blocks, all but the last of them full, until the end.
    Copying {
        blocks: Vec<Block>,
        len_bytes: usize,
        end: Arc<StreamEvent>,
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

    /// The result, the end having been passed or failed.
    fn finish(
        &mut self,
        passed: Result<(), DriverError>,
    ) -> Option<Result<HostBytes, ComputeError>> {
        let (mut blocks, len_bytes) = match self.state.take()? {
            Pending::Failed(error) => return Some(Err(error)),
            Pending::Copying {
                blocks, len_bytes, ..
            } => (blocks, len_bytes),
        };
        if let Err(error) = passed {
            return Some(Err(self.shared.fault.keep("read", error)));
        }
        let mut host = HostBytes::zeroed(len_bytes);
        for (block, part) in blocks
            .iter_mut()
            .zip(host.as_bytes_mut().chunks_mut(BLOCK_BYTES_MAX))
        {
            // SAFETY: the end is passed, and the blocks were used until then.
            unsafe { block.read(part) };
        }
        Some(self.shared.fault.check().map(|()| host))
    }
}

impl Ticket for CudaTicket {
    fn wait(mut self) -> Result<HostBytes, ComputeError> {
        let passed = match &self.state {
            Some(Pending::Copying { end, .. }) => end.wait(),
            Some(Pending::Failed(_)) | None => Ok(()),
        };
        self.finish(passed)
            .expect("a ticket that is waited for has not been taken")
    }

    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>> {
        let passed = match &self.state {
            Some(Pending::Copying { end, .. }) => match end.is_done() {
                Ok(false) => return None,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            },
            Some(Pending::Failed(_)) | None => Ok(()),
        };
        self.finish(passed)
    }
}
