//! The state of one room on one side: a `KvPoll` that only advances, and why it failed. The engine
//! polls it; the manager's tasks await it.

use crate::config::Waker;
use crate::failure::FailureReason;
use pd_protocol::KvPoll;
use tokio::sync::watch;

pub(crate) struct Progress {
    state: watch::Sender<State>,
    waker: Waker,
}

struct State {
    poll: KvPoll,
    failure: Option<FailureReason>,
}

impl Progress {
    pub(crate) fn new(waker: Waker) -> Self {
        let state = State {
            poll: KvPoll::Bootstrapping,
            failure: None,
        };
        Self {
            state: watch::Sender::new(state),
            waker,
        }
    }

    pub(crate) fn poll(&self) -> KvPoll {
        self.state.borrow().poll
    }

    pub(crate) fn failure(&self) -> Option<FailureReason> {
        self.state.borrow().failure.clone()
    }

    /// Moves on to `next`; false if that changes nothing.
    pub(crate) fn advance(&self, next: KvPoll) -> bool {
        self.change(next, None).is_some()
    }

    /// Fails the room; the state that it was in, `None` if it had ended before.
    pub(crate) fn fail(&self, reason: FailureReason) -> Option<KvPoll> {
        self.change(KvPoll::Failed, Some(reason))
    }

    /// The state before, if that changes anything.
    fn change(&self, next: KvPoll, failure: Option<FailureReason>) -> Option<KvPoll> {
        let mut before = None;
        self.state.send_if_modified(|state| {
            let advanced = state.poll.advance(next);
            let changed = advanced != state.poll;
            if changed {
                before = Some(state.poll);
                state.poll = advanced;
                state.failure = failure;
            }
            changed
        });
        if before.is_some() {
            (self.waker)();
        }
        before
    }

    /// Waits until the room has reached `poll`, or has ended.
    pub(crate) async fn reached(&self, poll: KvPoll) -> KvPoll {
        let mut changes = self.state.subscribe();
        let reached = changes
            .wait_for(|state| state.poll.is_terminal() || state.poll >= poll)
            .await;
        reached.map_or(KvPoll::Failed, |state| state.poll)
    }
}
