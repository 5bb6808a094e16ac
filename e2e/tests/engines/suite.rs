//! What holds for every engine: the answers of one process come from a pair, and if a worker is killed or freezes, every
//! request ends.

use crate::workers;
use anyhow::{Context, Result, bail, ensure};
use pd_e2e::address;
use pd_e2e::client::Client;
use pd_e2e::engines::{Engine, MODEL};
use pd_e2e::fleet::eventually;
use pd_e2e::local::Local;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const QUESTIONS: [&str; 4] = [
    "What is the capital of France?",
    "Name three colours.",
    "Write one sentence about the sea.",
    "What is two plus three?",
];
/// Tokens of an answer that is compared, and of one that takes a while.
const SHORT: u32 = 24;
const LONG: u32 = 200;
const AT_ONCE: usize = 16;
/// Streams that run together have all begun by then.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);
/// A request whose worker was killed has ended by then, and one whose worker froze.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Long answers of `AT_ONCE / 2` streams on two cores.
const WHOLE_WITHIN: Duration = Duration::from_secs(180);
const FROZEN_WITHIN: Duration = Duration::from_secs(30);
/// Nothing of a request is left by then.
const GONE_WITHIN: Duration = Duration::from_secs(15);

/// How a request ended.
#[derive(Debug, Default)]
struct Ends {
    whole: usize,
    /// By a status other than 200, or an error within the stream.
    refused: usize,
    /// By the end of the connection alone.
    cut: usize,
    slowest: Duration,
}

pub(crate) async fn run(engine: &Engine) -> Result<()> {
    let name = engine.name;
    let alone = answers_alone(engine).await?;
    eprintln!("{name}: alone: {alone:?}");
    let folder = tempfile::tempdir()?;
    let text = engine.deployment()?.to_string();
    let env: Vec<(&str, &str)> = engine.env().collect();
    let began = Instant::now();
    let local = Local::start_with(folder.path(), &text, &env, engine.starts_within).await?;
    eprintln!(
        "{name}: a pair is ready after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let proven = prove(engine, &local, &alone).await;
    proven.with_context(|| local.operator.log())?;
    local.stop().await
}

async fn prove(engine: &Engine, local: &Local, alone: &[String]) -> Result<()> {
    let (name, client) = (engine.name, Client::new());
    let chat = format!("{}/v1/chat/completions", local.base);
    let begun = AtomicUsize::new(0);
    for (question, wanted) in QUESTIONS.iter().zip(alone) {
        let plain = text(&client.post(&chat, &ask(question, SHORT)).await?.json()?)?;
        ensure!(
            plain == *wanted,
            "{question}: {plain:?} instead of {wanted:?}"
        );
        let streamed = stream(&client, &chat, &ask(question, SHORT), &begun).await?;
        ensure!(
            streamed == *wanted,
            "{question}, streamed: {streamed:?} instead of {wanted:?}"
        );
    }
    eprintln!(
        "{name}: {} answers, plain and streamed, are those of one process",
        alone.len()
    );

    eprintln!("{name}: {}", workers::refuse_others(engine, local).await?);

    let mut request = ask(QUESTIONS[0], SHORT);
    (request["logprobs"], request["top_logprobs"]) = (json!(true), json!(2));
    let answer = client.post(&chat, &request).await?.json()?;
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array();
    let tokens = tokens.context("no log probabilities")?;
    ensure!(
        !tokens.is_empty()
            && tokens.iter().all(|token| {
                token["top_logprobs"]
                    .as_array()
                    .is_some_and(|top| top.len() == 2)
            }),
        "{tokens:?}"
    );

    let ends = all_at_once(&chat, AT_ONCE, SHORT)
        .settle(KILLED_WITHIN * 6)
        .await?;
    ensure!(ends.whole == AT_ONCE, "of {AT_ONCE} at once: {ends:?}");
    eprintln!("{name}: {AT_ONCE} at once: {ends}");

    let moved = kv_of_one_request(engine, local, &chat).await?;
    eprintln!("{name}: {moved}");

    if !engine.is_ours() {
        eprintln!("{name}: {}", workers::shows(engine, local).await?);
    }

    leave(local, &chat).await?;
    eprintln!("{name}: of a client that left nothing stays in flight");

    for role in ["decode", "prefill"] {
        kill(engine, local, role, &chat).await?;
        serves_again(&client, &chat, &alone[0], engine.starts_within).await?;
    }
    freeze_decode(engine, local, &chat).await?;
    serves_again(&client, &chat, &alone[0], engine.starts_within).await
}

/// KV of one token of SmolLM2: 30 layers of keys and values, 3 heads of 64 numbers.
const KV_TOKEN_NUMBERS: f64 = 30.0 * 2.0 * 3.0 * 64.0;
/// Tokens of the largest block: vLLM's on CPUs.
const BLOCK_TOKENS: f64 = 128.0;

/// Decode got what prefill computed: as many bytes as the prompt's tokens take, within a block.
async fn kv_of_one_request(engine: &Engine, local: &Local, chat: &str) -> Result<String> {
    let before = kv_bytes(engine, local).await?;
    let words: Vec<String> = (0..80).map(|nr| format!("{}", nr * 7919 % 1000)).collect();
    let question = format!("Which is the largest? {}", words.join(" "));
    let answer = Client::new().post(chat, &ask(&question, 4)).await?.json()?;
    let prompt = answer["usage"]["prompt_tokens"].as_f64();
    let prompt = prompt.with_context(|| answer.to_string())?;
    let token_bytes = KV_TOKEN_NUMBERS * engine.kv_number_bytes;
    let least = (prompt - BLOCK_TOKENS) * token_bytes;
    eventually(GONE_WITHIN, || async {
        let bytes = kv_bytes(engine, local).await? - before;
        ensure!(bytes > least, "{bytes} bytes of KV of {prompt} tokens");
        Ok(())
    })
    .await?;
    let moved = kv_bytes(engine, local).await? - before;
    let most = (prompt + BLOCK_TOKENS) * token_bytes;
    ensure!(moved <= most, "{moved} bytes of KV of {prompt} tokens");
    let tokens = moved / token_bytes;
    Ok(format!(
        "a prompt of {prompt} tokens moved {moved} bytes of KV, which are {tokens} tokens"
    ))
}

async fn kv_bytes(engine: &Engine, local: &Local) -> Result<f64> {
    let (role, series, unit) = engine.kv_bytes;
    let pods = local.pods().await?;
    let pod = pods.iter().find(|pod| pod["component"] == role);
    let url = pod.and_then(|pod| pod["url"].as_str()).context("a URL")?;
    Ok(local.metrics(url).await?.sum(series, &[]) * unit)
}

/// Kills a worker under streams. Those whose KV has moved need their prefill no more.
async fn kill(engine: &Engine, local: &Local, role: &str, chat: &str) -> Result<()> {
    let number = AT_ONCE / 2;
    let load = all_at_once(chat, number, LONG);
    load.begun().await?;
    signal(local, role, Signal::KILL).await?;
    let is_decode = role == "decode";
    let limit = if is_decode {
        KILLED_WITHIN
    } else {
        WHOLE_WITHIN
    };
    let ends = load.settle(limit).await;
    let ends = ends.with_context(|| format!("{role} killed"))?;
    let name = engine.name;
    eprintln!("{name}: {role} killed under {number} streams: {ends}");
    ensure!(is_decode || ends.whole == number, "{role} killed: {ends}");
    local.become_ready(1, 1, engine.starts_within).await
}

async fn freeze_decode(engine: &Engine, local: &Local, chat: &str) -> Result<()> {
    let (name, number) = (engine.name, AT_ONCE / 2);
    let load = all_at_once(chat, number, LONG);
    load.begun().await?;
    signal(local, "decode", Signal::STOP).await?;
    let ends = load.settle(FROZEN_WITHIN).await;
    signal(local, "decode", Signal::CONT).await?;
    eprintln!("{name}: decode frozen under {number} streams: {}", ends?);
    Ok(())
}

/// What the engine answers without being split.
async fn answers_alone(engine: &Engine) -> Result<Vec<String>> {
    let (address, port) = (address::fresh(), pd_protocol::ports::HTTP);
    let mut process = engine.start_alone(address, port)?;
    let (client, base) = (Client::new(), format!("http://{address}:{port}"));
    let began = Instant::now();
    loop {
        process.check_alive()?;
        let health = client.get(&format!("{base}/health")).await;
        if health.is_ok_and(|answer| answer.status == 200) {
            break;
        }
        if began.elapsed() > engine.starts_within {
            bail!("{} does not start alone:\n{}", engine.name, process.log());
        }
        sleep(Duration::from_millis(200)).await;
    }
    let chat = format!("{base}/v1/chat/completions");
    let mut answers = Vec::new();
    for question in QUESTIONS {
        let answer = client.post(&chat, &ask(question, SHORT)).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        answers.push(text(&answer.json()?)?);
    }
    process.signal(Signal::TERM)?;
    process.wait_exit(Duration::from_secs(30)).await?;
    Ok(answers)
}

/// A greedy chat of one question.
fn ask(question: &str, max_tokens: u32) -> Value {
    json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
    })
}

fn text(answer: &Value) -> Result<String> {
    let content = answer["choices"][0]["message"]["content"].as_str();
    Ok(content.with_context(|| answer.to_string())?.to_owned())
}

/// The text of a stream, which must end as streams do.
async fn stream(
    client: &Client,
    url: &str,
    request: &Value,
    begun: &AtomicUsize,
) -> Result<String> {
    let mut request = request.clone();
    request["stream"] = json!(true);
    let mut events = client.stream(url, &request).await?;
    let begins = || {
        begun.fetch_add(1, Ordering::Relaxed);
    };
    events.said(begins).await
}

/// Streams that run together.
struct Streams {
    streams: JoinSet<Result<String>>,
    /// Those whose first event is here.
    begun: Arc<AtomicUsize>,
}

fn all_at_once(url: &str, number: usize, max_tokens: u32) -> Streams {
    let (mut streams, begun) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for nr in 0..number {
        let mut request = ask(QUESTIONS[nr % QUESTIONS.len()], max_tokens);
        if max_tokens == LONG {
            request["ignore_eos"] = json!(true);
        }
        let (url, begun) = (url.to_owned(), Arc::clone(&begun));
        streams.spawn(async move { stream(&Client::new(), &url, &request, &begun).await });
    }
    Streams { streams, begun }
}

// === impl Streams ===

impl Streams {
    /// Waits until all have their first event: their KV has moved.
    async fn begun(&self) -> Result<()> {
        let number = self.streams.len();
        eventually(BEGUN_WITHIN, || async {
            let begun = self.begun.load(Ordering::Relaxed);
            ensure!(begun == number, "{begun} of {number} streams have begun");
            Ok(())
        })
        .await
    }

    /// How they ended, all of them within `limit` from now.
    async fn settle(mut self, limit: Duration) -> Result<Ends> {
        let (mut ends, began) = (Ends::default(), Instant::now());
        while !self.streams.is_empty() {
            let left = limit.saturating_sub(began.elapsed());
            let Ok(Some(ended)) = timeout(left, self.streams.join_next()).await else {
                bail!(
                    "{} requests have not ended within {limit:?}; {ends}",
                    self.streams.len()
                );
            };
            ends.slowest = began.elapsed();
            match ended?.map_err(|why| format!("{why:#}")) {
                Ok(_) => ends.whole += 1,
                Err(why) if why.contains("REFUSED") || why.contains("answered") => {
                    ends.refused += 1
                }
                Err(_) => ends.cut += 1,
            }
        }
        Ok(ends)
    }
}

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            whole,
            refused,
            cut,
            slowest,
        } = self;
        write!(
            f,
            "{whole} whole, {refused} ended with an error, {cut} cut; the last after {:.1} s",
            slowest.as_secs_f64()
        )
    }
}

/// Leaves a stream after its first event; the router then has nothing in flight.
async fn leave(local: &Local, url: &str) -> Result<()> {
    let mut request = ask(QUESTIONS[2], LONG);
    (request["stream"], request["ignore_eos"]) = (json!(true), json!(true));
    let mut events = Client::new().stream(url, &request).await?;
    events.next().await?.context("no event")?;
    ensure!(
        in_flight(local).await? > 0.0,
        "nothing is in flight while a stream runs"
    );
    drop(events);
    eventually(GONE_WITHIN, || async {
        let left = in_flight(local).await?;
        ensure!(left == 0.0, "{left} in flight");
        Ok(())
    })
    .await
}

/// Requests that the router has on its workers.
async fn in_flight(local: &Local) -> Result<f64> {
    let metrics = pd_e2e::metrics::Metrics::scrape(&Client::new(), &local.base).await?;
    ensure!(metrics.has("pd_router_in_flight"), "no such series");
    Ok(metrics.sum("pd_router_in_flight", &[]))
}

/// Sends a signal to the processes of a worker of `role`.
async fn signal(local: &Local, role: &str, signal: Signal) -> Result<()> {
    let pods = local.pods().await?;
    let pod = pods.iter().find(|pod| pod["component"] == role);
    let pid = pod
        .and_then(|pod| pod["pid"].as_i64())
        .context("a process")?;
    let group = Pid::from_raw(i32::try_from(pid)?).context("a process id")?;
    Ok(kill_process_group(group, signal)?)
}

async fn serves_again(client: &Client, url: &str, wanted: &str, limit: Duration) -> Result<()> {
    eventually(limit, || async {
        let answer = client.post(url, &ask(QUESTIONS[0], SHORT)).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        let said = text(&answer.json()?)?;
        ensure!(said == wanted, "{said:?} instead of {wanted:?}");
        Ok(())
    })
    .await
}
