//! The state of one room on one side: a `KvPoll` that only advances, and why it failed. The engine
//! polls it; the manager's tasks await it.

use crate::config::Waker;
use crate::failure::FailureReason;
use parking_lot::Mutex;
use pd_protocol::KvPoll;
use tokio::sync::watch;

pub(crate) struct Progress {
    state: Mutex<State>,
    /// The state's poll, for tasks.
    polls: watch::Sender<KvPoll>,
    waker: Waker,
}

struct State {
    poll: KvPoll,
    /// The poll is not the last that was announced.
    is_quiet: bool,
    failure: Option<FailureReason>,
}

impl Progress {
    pub(crate) fn new(waker: Waker) -> Self {
        let poll = KvPoll::Bootstrapping;
        Self {
            state: Mutex::new(State {
                poll,
                is_quiet: false,
                failure: None,
            }),
            polls: watch::Sender::new(poll),
            waker,
        }
    }

    pub(crate) fn poll(&self) -> KvPoll {
        self.state.lock().poll
    }

    pub(crate) fn failure(&self) -> Option<FailureReason> {
        self.state.lock().failure.clone()
    }

    /// Moves on to `next`; false if that changes nothing.
    pub(crate) fn advance(&self, next: KvPoll) -> bool {
        self.advance_with(next, || {})
    }

    /// Moves on to `next`, and if that changes anything does `first` before it wakes a thread: a peer that waits for it
    /// has the longer way.
    pub(crate) fn advance_with(&self, next: KvPoll, first: impl FnOnce()) -> bool {
        self.change(next, None, first).is_some()
    }

    /// Moves on to `next` and wakes no thread yet: what follows soon may be the end.
    pub(crate) fn advance_quietly(&self, next: KvPoll) {
        let mut state = self.state.lock();
        let advanced = state.poll.advance(next);
        state.is_quiet |= advanced != state.poll;
        state.poll = advanced;
    }

    /// Wakes those that wait for what `advance_quietly` changed, once.
    pub(crate) fn announce(&self) {
        let poll = {
            let mut state = self.state.lock();
            let was_quiet = std::mem::replace(&mut state.is_quiet, false);
            was_quiet.then_some(state.poll)
        };
        if let Some(poll) = poll {
            self.wake(poll);
        }
    }

    /// Fails the room; the state that it was in, `None` if it had ended before.
    pub(crate) fn fail(&self, reason: FailureReason) -> Option<KvPoll> {
        self.change(KvPoll::Failed, Some(reason), || {})
    }

    /// The state before, if that changes anything.
    fn change(
        &self,
        next: KvPoll,
        failure: Option<FailureReason>,
        first: impl FnOnce(),
    ) -> Option<KvPoll> {
        let before = {
            let mut state = self.state.lock();
            let advanced = state.poll.advance(next);
            if advanced == state.poll {
                return None;
            }
            state.failure = failure;
            state.is_quiet = false;
            std::mem::replace(&mut state.poll, advanced)
        };
        first();
        self.wake(next);
        Some(before)
    }

    fn wake(&self, reached: KvPoll) {
        // The engine's thread has to wake, the manager's tasks may run on this one.
        (self.waker)();
        // Another thread may have come further meanwhile.
        let advance = |poll: &mut KvPoll| *poll = poll.advance(reached);
        self.polls.send_modify(advance);
    }

    /// Waits until the room has reached `poll`, or has ended.
    pub(crate) async fn reached(&self, poll: KvPoll) -> KvPoll {
        let mut changes = self.polls.subscribe();
        let reached = changes
            .wait_for(|&now| now.is_terminal() || now >= poll)
            .await;
        reached.map_or(KvPoll::Failed, |now| *now)
    }
}

#[cfg(test)]
mod tests;
