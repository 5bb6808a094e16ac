//! Values that are read from files, and read again when the files change: a mounted Secret is
//! replaced while its pod runs. Content that cannot be used is refused at the start, and later left
//! alone: the value before it stays.
//!
//! Files are polled, not watched: kubelet swaps a symbolic link two folders above, of which a
//! watch on the file sees nothing, and network file systems send no events.

use crate::clock::sleep;
use crate::metrics::Metrics;
use crate::vitals::Vitals;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Kubelet takes up to a minute to bring a change, so a second adds nothing to that, and reading
/// some small files costs microseconds.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Files and what they mean.
pub(crate) trait Source: Send + Sync + 'static {
    type Content: Clone + PartialEq + Send + 'static;
    type Value: Send + Sync + 'static;
    type Error: std::error::Error + Send + 'static;
    /// Its word in the log and in metrics.
    const NAME: &'static str;

    /// # Errors
    /// What cannot be read, and what to do.
    fn read(&self) -> Result<Self::Content, Self::Error>;

    /// # Errors
    /// What is wrong with the content, where, and what to do.
    fn parse(&self, content: &Self::Content) -> Result<Self::Value, Self::Error>;

    /// Logs what matters about content that was applied.
    fn report(&self, _content: &Self::Content, _metrics: &Metrics) {}

    /// What changed content comes to, and what of it could not be used.
    ///
    /// # Errors
    /// Why nothing of it can be used.
    fn parse_change(&self, content: &Self::Content) -> Result<Change<Self>, Self::Error> {
        let value = self.parse(content)?;
        Ok(Change {
            value,
            unusable: None,
        })
    }
}

/// What changed files come to.
pub(crate) struct Change<S: Source + ?Sized> {
    pub(crate) value: S::Value,
    /// What of them is left out.
    pub(crate) unusable: Option<S::Error>,
}

/// A value that follows its files.
pub(crate) struct Reloaded<T> {
    current: watch::Receiver<Arc<T>>,
}

/// What the polls found: the content that was applied last, and that of the last poll.
struct PollState<C> {
    applied: Polled<C>,
    last: Polled<C>,
}

/// What one poll found: the content, or why there is none, as text since two of these are compared.
type Polled<C> = Result<C, String>;

// === impl Reloaded ===

impl<T: Send + Sync + 'static> Reloaded<T> {
    /// Reads the value, and goes on polling its files for as long as it is held.
    ///
    /// # Errors
    /// Why the files cannot be used.
    pub(crate) fn open<S: Source<Value = T>>(
        source: S,
        metrics: &Arc<Metrics>,
        vitals: &Vitals,
    ) -> Result<Self, S::Error> {
        let content = source.read()?;
        let value = source.parse(&content)?;
        source.report(&content, metrics);
        let (sender, current) = watch::channel(Arc::new(value));
        let state = PollState::new(content);
        let follow = follow(Arc::new(source), state, sender, Arc::clone(metrics));
        vitals.spawn("polls of files", follow);
        Ok(Self { current })
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.current.borrow())
    }
}

// === impl PollState ===

impl<C: Clone + PartialEq> PollState<C> {
    fn new(content: C) -> Self {
        Self {
            applied: Ok(content.clone()),
            last: Ok(content),
        }
    }

    /// The content to apply, if any: it differs from the one that was applied last, and two polls
    /// in a row found it, so that a writer of several files, or of one in several pieces, has
    /// finished.
    fn settle(&mut self, found: Polled<C>) -> Option<&Polled<C>> {
        let finished = found == self.last;
        self.last = found;
        if !finished || self.last == self.applied {
            return None;
        }
        self.applied = self.last.clone();
        Some(&self.applied)
    }
}

async fn follow<S: Source>(
    source: Arc<S>,
    mut state: PollState<S::Content>,
    current: watch::Sender<Arc<S::Value>>,
    metrics: Arc<Metrics>,
) {
    loop {
        tokio::select! {
            () = current.closed() => return,
            () = sleep(POLL_INTERVAL) => {}
        }
        let reader = Arc::clone(&source);
        let found = tokio::task::spawn_blocking(move || reader.read()).await;
        let found = match found {
            Ok(found) => found,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends.
                Err(_) => return,
            },
        };
        let Some(changed) = state.settle(found.map_err(|error| error.to_string())) else {
            continue;
        };
        let value = match changed {
            Ok(content) => source
                .parse_change(content)
                .inspect(|_| source.report(content, &metrics))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        let is_whole = value.as_ref().is_ok_and(|change| change.unusable.is_none());
        metrics.reloaded(S::NAME, is_whole);
        match value {
            Ok(Change { value, unusable }) => {
                match unusable {
                    None => tracing::info!(files = S::NAME, "reloaded"),
                    Some(error) => {
                        tracing::warn!(files = S::NAME, %error, "reloaded; skipped invalid entries");
                    }
                }
                current.send_replace(Arc::new(value));
            }
            Err(error) => {
                tracing::warn!(
                    files = S::NAME,
                    %error,
                    "reload failed, keeping the previous value"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
