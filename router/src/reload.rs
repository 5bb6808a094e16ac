//! Values that are read from files, and read again when the files change: a mounted Secret is
//! replaced while its pod runs. What cannot be used is refused at the start, and later left alone:
//! the value before it stays.
//!
//! Files are looked at, not watched: kubelet swaps a symbolic link two folders above, of which a
//! watch on the file sees nothing, and network file systems send no events.

use crate::clock::sleep;
use crate::metrics::Metrics;
use crate::vitals::Vitals;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pause between two looks. Kubelet takes up to a minute to bring a change, so a second adds
/// nothing to that, and a look at some small files costs microseconds.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

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

    /// Logs what matters about content that was taken in.
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

/// What was taken in last, and what was seen last.
struct Looks<C> {
    taken: Seen<C>,
    seen: Seen<C>,
}

/// What one look found: the content, or why there is none.
type Seen<C> = Result<C, String>;

// === impl Reloaded ===

impl<T: Send + Sync + 'static> Reloaded<T> {
    /// Reads the value, and goes on looking at its files for as long as it is held.
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
        let looks = Looks::new(content);
        let follow = follow(Arc::new(source), looks, sender, Arc::clone(metrics));
        vitals.spawn("looks at files", follow);
        Ok(Self { current })
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.current.borrow())
    }
}

// === impl Looks ===

impl<C: Clone + PartialEq> Looks<C> {
    fn new(content: C) -> Self {
        Self {
            taken: Ok(content.clone()),
            seen: Ok(content),
        }
    }

    /// What is to be taken in: what differs from what was taken in last and is the same as at the
    /// last poll, so that a writer of several files, or of one in several pieces, has finished.
    fn settle(&mut self, found: Seen<C>) -> Option<&Seen<C>> {
        let finished = found == self.seen;
        self.seen = found;
        if !finished || self.seen == self.taken {
            return None;
        }
        self.taken = self.seen.clone();
        Some(&self.taken)
    }
}

async fn follow<S: Source>(
    source: Arc<S>,
    mut looks: Looks<S::Content>,
    current: watch::Sender<Arc<S::Value>>,
    metrics: Arc<Metrics>,
) {
    loop {
        tokio::select! {
            () = current.closed() => return,
            () = sleep(LOOK_INTERVAL) => {}
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
        let Some(changed) = looks.settle(found.map_err(|error| error.to_string())) else {
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
                tracing::info!(files = S::NAME, "changed, and read again");
                if let Some(error) = unusable {
                    tracing::warn!(files = S::NAME, "changed, and counts but for: {error}");
                }
                current.send_replace(Arc::new(value));
            }
            Err(error) => {
                tracing::warn!(
                    files = S::NAME,
                    "changed, but what was read before stays: {error}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
