//! Results on their way from the device.

use super::driver::DriverError;
use super::pinned::{BLOCK_BYTES_MAX, Block};
use super::shared::Shared;
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
enum Pending {
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
    /// Reads `len_bytes` bytes from the address `from` on as they are when the stream gets there.
    pub(super) fn start(shared: &Arc<Shared>, from: u64, len_bytes: usize) -> Self {
        let started = shared.fault.check().and_then(|()| {
            Pending::start(shared, from, len_bytes)
                .map_err(|error| shared.fault.keep("read", error))
        });
        Self {
            shared: Arc::clone(shared),
            state: Some(started.unwrap_or_else(Pending::Failed)),
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

// === impl Pending ===

impl Pending {
    fn start(shared: &Shared, from: u64, len_bytes: usize) -> Result<Self, DriverError> {
        assert!(!shared.recording.is_on(), "a replayed step reads nothing");
        let mut blocks = Vec::with_capacity(len_bytes.div_ceil(BLOCK_BYTES_MAX));
        for start in (0..len_bytes).step_by(BLOCK_BYTES_MAX) {
            let len = BLOCK_BYTES_MAX.min(len_bytes - start);
            let mut block = shared.pinned.take(len)?;
            // SAFETY: the source is of the caller's buffer.
            unsafe { block.copy_from(from + start as u64, len) }?;
            blocks.push(block);
        }
        let end = StreamEvent::record(&shared.driver)?;
        blocks.iter_mut().for_each(|block| block.use_until(&end));
        Ok(Self::Copying {
            blocks,
            len_bytes,
            end,
        })
    }
}
