//! Requests in flight together, each with how it ended and how long that took; and traffic that goes
//! on until it is stopped.

use crate::client::Client;
use anyhow::{Error, Result, bail, ensure};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How one request ended.
#[derive(Debug)]
pub struct Outcome {
    pub index: usize,
    /// The answer, or the reason that came instead of it.
    pub result: Result<Value, String>,
    pub took: Duration,
}

/// Requests in flight.
#[derive(Default)]
pub struct Load {
    tasks: JoinSet<Outcome>,
    started: usize,
}

// === impl Load ===

impl Load {
    /// Sends one request to `/generate`, streamed or not, as its body says.
    pub fn send(&mut self, client: &Client, url: &str, request: Value) {
        let index = self.started;
        self.started += 1;
        let (client, url) = (client.clone(), url.to_owned());
        self.tasks.spawn(async move {
            let started = Instant::now();
            let result = whole_answer(&client, &url, &request).await;
            Outcome {
                index,
                result,
                took: started.elapsed(),
            }
        });
    }

    /// Every outcome, in order of sending.
    ///
    /// # Errors
    /// When a request still hangs after `limit`.
    pub async fn outcomes(mut self, limit: Duration) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        while outcomes.len() < self.started {
            match timeout(limit, self.tasks.join_next()).await {
                Ok(Some(outcome)) => outcomes.push(outcome?),
                Ok(None) => bail!("a request's task is gone"),
                Err(_) => bail!("{} requests hang", self.started - outcomes.len()),
            }
        }
        outcomes.sort_by_key(|outcome| outcome.index);
        Ok(outcomes)
    }
}

/// Clients that each ask one question after another, whose answers are known.
pub struct Traffic {
    stop: CancellationToken,
    clients: JoinSet<Tally>,
}

/// What traffic came to.
#[derive(Debug, Default)]
pub struct Tally {
    pub answered: usize,
    /// Answers that failed, were cut off, or had other tokens.
    pub failures: Vec<(Instant, String)>,
}

// === impl Traffic ===

impl Traffic {
    /// Starts `clients`, each asking from another place in the list; half of them stream. A pause
    /// after each answer leaves the processors to what is being proven.
    pub fn start(url: &str, known: &Arc<Vec<Known>>, clients: usize, pause: Duration) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for nr in 0..clients {
            let (stop, url, known) = (stop.clone(), url.to_owned(), Arc::clone(known));
            tasks.spawn(async move {
                let client = Client::new();
                let mut tally = Tally::default();
                let mut questions = known.iter().cycle().skip(nr * known.len() / clients);
                while let Some(known) = questions.next().filter(|_| !stop.is_cancelled()) {
                    tally.count(known.ask(&client, &url, nr % 2 == 0).await);
                    tokio::time::sleep(pause).await;
                }
                tally
            });
        }
        Self {
            stop,
            clients: tasks,
        }
    }

    /// Lets every client finish its request.
    ///
    /// # Errors
    /// When one hangs for longer than `limit`.
    pub async fn stop(mut self, limit: Duration) -> Result<Tally> {
        self.stop.cancel();
        let mut all = Tally::default();
        while !self.clients.is_empty() {
            match timeout(limit, self.clients.join_next()).await {
                Ok(Some(tally)) => all.add(tally?),
                Ok(None) => break,
                Err(_) => bail!("{} requests hang", self.clients.len()),
            }
        }
        Ok(all)
    }
}

// === impl Tally ===

impl Tally {
    fn count(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.answered += 1,
            Err(why) => self.failures.push((Instant::now(), why)),
        }
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.failures.extend(other.failures);
    }
}

/// A request to `/generate` with the tokens that must come of it.
#[derive(Clone, Debug)]
pub struct Known {
    pub request: Value,
    pub output_ids: Value,
}

// === impl Known ===

impl Known {
    /// Asks a server that is trusted.
    ///
    /// # Errors
    /// When it has no whole answer.
    pub async fn learn(client: &Client, url: &str, request: Value) -> Result<Self> {
        let answer = whole_answer(client, url, &request).await;
        let answer = answer.map_err(Error::msg)?;
        Ok(Self {
            output_ids: answer["output_ids"].clone(),
            request,
        })
    }

    /// # Errors
    /// Why there is no answer, or another one than is known.
    pub async fn ask(&self, client: &Client, url: &str, stream: bool) -> Result<(), String> {
        let mut request = self.request.clone();
        request["stream"] = Value::Bool(stream);
        let answer = whole_answer(client, url, &request).await?;
        if answer["output_ids"] == self.output_ids {
            return Ok(());
        }
        Err(format!(
            "other tokens: {} instead of {}",
            answer["output_ids"], self.output_ids
        ))
    }
}

/// The answer with all of its tokens.
///
/// # Errors
/// Why there is none.
pub async fn whole_answer(client: &Client, url: &str, request: &Value) -> Result<Value, String> {
    let answer = match request["stream"].as_bool() {
        Some(true) => last_event(client, url, request).await,
        _ => plain(client, url, request).await,
    };
    let answer = answer.map_err(|error| format!("{error:#}"))?;
    let wanted = request["sampling_params"]["max_new_tokens"].as_u64();
    let got = answer["meta_info"]["completion_tokens"].as_u64();
    if got == wanted {
        Ok(answer)
    } else {
        Err(format!("truncated: {got:?} of {wanted:?} tokens"))
    }
}

async fn plain(client: &Client, url: &str, request: &Value) -> Result<Value> {
    let answer = client.post(url, request).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    answer.json()
}

async fn last_event(client: &Client, url: &str, request: &Value) -> Result<Value> {
    let events = client.stream(url, request).await?.rest().await?;
    let Some(last) = events.into_iter().last() else {
        bail!("the stream is empty")
    };
    match last["error"]["message"].as_str() {
        Some(message) => bail!("error event: {message}"),
        None => Ok(last),
    }
}
