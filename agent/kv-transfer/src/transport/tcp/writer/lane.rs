//! A stream as other threads see it: its socket while its task writes nothing, and the frame that one of them began.
//!
//! 1. The task lends the socket (`lend`), and waits for frames.
//! 2. A thread that sends a small frame takes the lane if it is idle, and writes as much as the socket takes (`write`).
//!    Usually that is all: the socket's buffer holds several.
//! 3. What is left stays in the lane, and the task is woken to write it (`has_begun`).
//! 4. Before the task writes, it claims the lane (`claim`): then frames go to another one, or to the queue.

use super::super::frame::DIRECT_BYTES_MAX;
use super::outgoing_frame::{FrameJob, OutgoingFrame};
use crate::memory::Region;
use crate::transport::outgoing::OutboundPeer;
use parking_lot::Mutex;
use std::os::fd::{AsFd, OwnedFd};
use tokio::sync::Notify;

/// See the module's header.
#[derive(Default)]
pub(super) struct Lane {
    state: Mutex<LaneState>,
    begun: Notify,
}

#[derive(Default)]
struct LaneState {
    /// While the connection is open, and nothing encrypts on the way.
    socket: Option<OwnedFd>,
    is_claimed: bool,
    /// A frame of which a part has left; the next one follows it.
    begun: Option<OutgoingFrame>,
}

/// While it lives, the socket is lent. Its end closes the descriptor: otherwise the connection would outlive its task.
pub(super) struct Loan<'a>(&'a Lane);

/// While it lives, only the task writes.
pub(super) struct Claim<'a>(&'a Lane);

// === impl Lane ===

impl Lane {
    pub(super) fn lend(&self, socket: Option<OwnedFd>) -> Loan<'_> {
        self.state.lock().socket = socket;
        Loan(self)
    }

    /// Waits until a frame has begun that the task has to end.
    pub(super) async fn has_begun(&self) {
        self.begun.notified().await;
    }

    /// Keeps others out, and takes the frame that has begun.
    pub(super) fn claim(&self) -> (Claim<'_>, Option<OutgoingFrame>) {
        let mut state = self.state.lock();
        state.is_claimed = true;
        (Claim(self), state.begun.take())
    }

    /// Writes a frame, or begins to; the frame if the lane is in use, or it is not small enough.
    pub(super) fn write(
        &self,
        job: FrameJob,
        peer: &OutboundPeer,
        regions: &[Region],
    ) -> Option<FrameJob> {
        let Some(mut state) = self.state.try_lock() else {
            return Some(job);
        };
        let LaneState {
            socket: Some(socket),
            is_claimed: false,
            begun: begun @ None,
        } = &mut *state
        else {
            return Some(job);
        };
        // Of a room that has ended nothing is left to write.
        let _guard = job.room.fence().enter()?;
        let mut frame = OutgoingFrame::new(job, &peer.plan);
        if frame.payload_bytes() > DIRECT_BYTES_MAX || !frame.cursor.fits_one_call(regions) {
            return Some(frame.job);
        }
        // It is full; or it is broken, which its task finds out too.
        let Ok(is_whole) = frame.write_at_once(socket.as_fd(), regions) else {
            return Some(frame.job);
        };
        frame.count_plan(peer);
        if is_whole {
            frame.count_written(peer);
        } else {
            *begun = Some(frame);
            self.begun.notify_one();
        }
        None
    }
}

// === impl Loan ===

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        *self.0.state.lock() = LaneState::default();
    }
}

// === impl Claim ===

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_claimed = false;
    }
}
