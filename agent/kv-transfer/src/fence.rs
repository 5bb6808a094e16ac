//! Whether pages may be used again: a fence is open while a room may touch memory, is closed once,
//! and is released when the last one inside has left.

use crate::clock::Instant;
use crate::config::Waker;
use crate::metrics::FenceMetrics;
use parking_lot::Mutex;
use std::sync::Arc;

/// Guards the pages, state slots and metadata row of one room on one side.
#[derive(Clone)]
pub(crate) struct Fence {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    waker: Waker,
    metrics: FenceMetrics,
}

#[derive(Clone, Copy)]
struct State {
    closed_at: Option<Instant>,
    inside: usize,
}

/// While it lives, the room's memory is being read or written.
pub(crate) struct FenceGuard {
    inner: Arc<Inner>,
}

impl Fence {
    pub(crate) fn new(waker: Waker, metrics: FenceMetrics) -> Self {
        let state = Mutex::new(State {
            closed_at: None,
            inside: 0,
        });
        Self {
            inner: Arc::new(Inner {
                state,
                waker,
                metrics,
            }),
        }
    }

    /// Enters, unless the fence is closed. Hold the guard only over what ends by itself, a copy or a
    /// system call that does not block, or while a NIC may touch the memory.
    pub(crate) fn enter(&self) -> Option<FenceGuard> {
        let mut state = self.inner.state.lock();
        if state.closed_at.is_some() {
            return None;
        }
        state.inside += 1;
        Some(FenceGuard {
            inner: Arc::clone(&self.inner),
        })
    }

    /// Lets no one in any more.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state.lock();
        if state.closed_at.is_some() {
            return;
        }
        state.closed_at = Some(Instant::now());
        match state.inside {
            0 => self.inner.metrics.released_at_once(),
            _ => self.inner.metrics.held(),
        }
    }

    /// Closed, and everyone has left: the memory may be used again.
    pub(crate) fn is_released(&self) -> bool {
        let state = *self.inner.state.lock();
        state.closed_at.is_some() && state.inside == 0
    }
}

impl Drop for FenceGuard {
    fn drop(&mut self) {
        let released = {
            let mut state = self.inner.state.lock();
            state.inside -= 1;
            let closed_at = state.closed_at.filter(|_| state.inside == 0);
            if let Some(closed_at) = closed_at {
                self.inner.metrics.left(closed_at.elapsed());
            }
            closed_at.is_some()
        };
        if released {
            (self.inner.waker)();
        }
    }
}

#[cfg(test)]
mod tests;
