//! Every task of a manager is spawned here, so that none dies unseen: a panic fails the manager, its rooms
//! end with the reason, and its owner hears of it by [`Failure`]. Tasks that serve for as long as the manager
//! lives return [`Infallible`], so a panic is the only way in which they end.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

type Reason = Option<Arc<str>>;

/// Spawns a manager's tasks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tasks {
    handle: Handle,
    failure: watch::Sender<Reason>,
}

/// Whether a manager has failed: one of its tasks has panicked, so what it serves may hang. It stays failed; only
/// another process helps. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Failure {
    reason: watch::Receiver<Reason>,
}

// === impl Tasks ===

impl Tasks {
    pub(crate) fn new(handle: Handle) -> Self {
        let failure = watch::Sender::new(None);
        Self { handle, failure }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn failure(&self) -> Failure {
        let reason = self.failure.subscribe();
        Failure { reason }
    }

    /// Runs `task` until it ends or its handle is aborted.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        self.spawn_boxed(name, task.boxed())
    }

    /// One type for every task: tokio's machinery is compiled once, not for each.
    fn spawn_boxed(&self, name: &'static str, task: BoxFuture<'static, ()>) -> AbortHandle {
        let tasks = self.clone();
        let watched = async move {
            // What a panic leaves half-done is not used on: the manager has failed.
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                tasks.fail(name, panic.as_ref());
            }
        };
        self.handle.spawn(watched).abort_handle()
    }

    /// Runs a task that lives as long as the manager.
    pub(crate) fn spawn_endless(
        &self,
        name: &'static str,
        task: impl Future<Output = Infallible> + Send + 'static,
    ) {
        self.spawn(name, task.map(|never| match never {}));
    }

    /// Runs a part of a task here; false if it panicked, and the manager has failed.
    pub(crate) fn run(&self, name: &'static str, part: impl FnOnce()) -> bool {
        let ran = catch_unwind(AssertUnwindSafe(part));
        ran.inspect_err(|panic| self.fail(name, panic.as_ref()))
            .is_ok()
    }

    /// Runs `task` on a thread that may block.
    pub(crate) fn spawn_blocking(&self, name: &'static str, task: impl FnOnce() + Send + 'static) {
        let tasks = self.clone();
        let task: Box<dyn FnOnce() + Send> = Box::new(task);
        self.handle.spawn_blocking(move || {
            tasks.run(name, task);
        });
    }

    /// The first reason counts. It is known before it is logged, for the log may be what panics.
    fn fail(&self, name: &str, panic: &(dyn Any + Send)) {
        let what = panic.downcast_ref::<&str>().copied();
        let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let what = what.unwrap_or("no message");
        let reason: Arc<str> =
            format!("the {name} task of the KV transfer panicked: {what}").into();
        self.failure.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert_with(|| Arc::clone(&reason));
            is_first
        });
        tracing::error!("{reason}");
    }
}

// === impl Failure ===

impl Failure {
    /// Why, once it has failed.
    pub fn reason(&self) -> Reason {
        self.reason.borrow().clone()
    }

    /// Waits until it fails; without end if it ends first.
    pub async fn failed(mut self) -> Arc<str> {
        let reason = self.reason.wait_for(Option::is_some).await;
        match reason.ok().and_then(|reason| reason.clone()) {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
