//! Tasks that every request depends on: the probes of workers, the watch on pods, the polls of
//! files, the listeners. One that is lost would leave a router behind that says it is well and is
//! not, so it ends the process, and what supervises it starts another.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Spawns such tasks and hears of the first that is lost.
#[derive(Clone, Debug)]
pub(crate) struct Vitals {
    lost: Arc<watch::Sender<Option<LostTask>>>,
}

/// A task that ended although it was needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task {task} is lost, and requests would be with it: {reason}")]
pub struct LostTask {
    pub(crate) task: &'static str,
    pub(crate) reason: String,
}

// === impl Vitals ===

impl Vitals {
    /// Runs a task, which is lost if it panics.
    pub(crate) fn spawn(
        &self,
        task: &'static str,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spawn_boxed(task, run.boxed())
    }

    /// One type for every task: tokio's machinery is compiled once, not for each.
    fn spawn_boxed(&self, task: &'static str, run: BoxFuture<'static, ()>) -> JoinHandle<()> {
        let vitals = self.clone();
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(run).catch_unwind().await {
                vitals.report(task, panic_message(&*panic));
            }
        })
    }

    /// A task has ended by itself. Of several only the first counts.
    pub(crate) fn report(&self, task: &'static str, reason: impl Into<String>) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| LostTask {
                task,
                reason: reason.into(),
            });
            is_first
        });
    }

    /// Waits until a task is lost.
    pub(crate) async fn lost(&self) -> LostTask {
        let mut lost = self.lost.subscribe();
        let lost = lost.wait_for(Option::is_some).await;
        let lost = lost.expect("this value holds the sender");
        (*lost).clone().expect("waited for one that is lost")
    }
}

impl Default for Vitals {
    fn default() -> Self {
        Self {
            lost: Arc::new(watch::Sender::new(None)),
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.map_or_else(
        || "it panicked".to_owned(),
        |text| format!("it panicked: {text}"),
    )
}

#[cfg(test)]
mod tests;
