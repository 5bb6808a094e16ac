//! The other clients: they ask one question after another, whose answer is known, and note how long each took.

use pd_e2e::client::Client;
use pd_e2e::load::Known;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Clients at once, and the pause of each: most of the machine is idle, so that waiting is seen.
const CLIENTS: usize = 2;
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Probe {
    stop: CancellationToken,
    clients: JoinSet<Answers>,
}

/// What they got.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    took: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

// === impl Probe ===

impl Probe {
    pub(crate) fn start(url: &str, known: &Known) -> Self {
        let stop = CancellationToken::new();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (stop, url, known) = (stop.clone(), url.to_owned(), known.clone());
            clients.spawn(async move {
                let client = Client::new();
                let mut answers = Answers::default();
                while !stop.is_cancelled() {
                    let began = Instant::now();
                    match known.ask(&client, &url, false).await {
                        Ok(()) => answers.took.push(began.elapsed()),
                        Err(why) => answers.failures.push(why),
                    }
                    sleep(PAUSE).await;
                }
                answers
            });
        }
        Self { stop, clients }
    }

    pub(crate) async fn stop(self) -> Answers {
        self.stop.cancel();
        let mut all = Answers::default();
        for answers in self.clients.join_all().await {
            all.took.extend(answers.took);
            all.failures.extend(answers.failures);
        }
        all.took.sort_unstable();
        all
    }
}

// === impl Answers ===

impl Answers {
    pub(crate) fn number(&self) -> usize {
        self.took.len()
    }

    /// So many of a thousand were at most this late.
    pub(crate) fn quantile(&self, per_mille: usize) -> Duration {
        let last = self.took.len().saturating_sub(1);
        let at = (self.took.len() * per_mille / 1000).min(last);
        self.took.get(at).copied().unwrap_or_default()
    }
}
