//! A prefill agent on one host, a decode agent on the other and a router: tokens over RDMA, and over
//! links, devices and peers that break.

use crate::stand::{A, B, PATIENCE};
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::{binary, tiny_model};
use pd_e2e::prompts::{essence, greedy, ids, sampled};
use pd_e2e::rdma::bench::{Bench, address};
use pd_e2e::rdma::ethernet::Trouble;
use pd_e2e::rdma::machine::Running;
use serde_json::Value;
use std::time::Duration;

const REQUESTS: usize = 50;
const NICS: usize = 2;
/// Carries what is not RDMA, too.
const FIRST: usize = 0;
const SECOND: usize = 1;
/// A round of requests on emulated processors.
const ROUND: Duration = Duration::from_secs(120);
const MODEL: &str = "/model";

/// Two hosts with two NICs each, and what runs on them.
struct Stand {
    bench: Bench,
    prefill: Running,
    decode: Running,
    _router: Running,
    /// What a unified agent answers.
    expected: Vec<Value>,
}

/// Prompts of ragged lengths, greedy and sampled in turn.
fn requests() -> impl Iterator<Item = (usize, Value)> {
    (0..REQUESTS).map(|nr| {
        let prompt = ids(nr as u64, 1 + nr * 7 % 130);
        let request = match nr % 2 {
            0 => greedy(&prompt, 12),
            _ => sampled(&prompt, 12, nr as u64),
        };
        (nr, request)
    })
}

fn files() -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(tiny_model("tiny-llama"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = entry.file_name().into_string();
            let name = name.ok().context("a model's files have names")?;
            files.push((format!("{MODEL}/{name}"), std::fs::read(entry.path())?));
        }
    }
    for (nr, request) in requests() {
        files.push((format!("/request/{nr}"), request.to_string().into_bytes()));
    }
    Ok(files)
}

/// An agent's command line; it says what it does on the console.
fn agent(host: usize, port: u16, flags: &str) -> String {
    let address = address(host, FIRST);
    let admin = port + 900;
    format!(
        "exec pd-agent --model-path {MODEL} --host {address} --port {port} --admin-port {admin} \
         --page-size 16 {flags}"
    )
}

fn decode() -> String {
    let flags = "--disaggregation-mode decode --disaggregation-transfer-backend rdma";
    agent(B, 30000, flags)
}

async fn wait_healthy(bench: &mut Bench, host: usize, port: u16, path: &str) -> Result<()> {
    let url = format!("http://{}:{port}{path}", address(host, FIRST));
    let wait = format!("until wget -q -O /dev/null {url}; do sleep 0.2; done");
    bench.hosts[host].run(&wait, PATIENCE).await?;
    Ok(())
}

/// A command that sends all requests at once, says when the first was answered, and prints the answers,
/// each on a line after its number.
fn ask(host: usize, port: u16) -> String {
    let url = format!("http://{}:{port}/generate", address(host, FIRST));
    let last = REQUESTS - 1;
    format!(
        "for n in $(seq 0 {last}); do (wget -q -O /tmp/answer.$n --header 'Content-Type: application/json' \
         --post-data \"$(cat /request/$n)\" {url} || echo '{{}}' >/tmp/answer.$n) & done; \
         until grep -qs . /tmp/answer.*; do sleep 0.1; done; echo begun; wait; \
         for n in $(seq 0 {last}); do echo \"$n $(cat /tmp/answer.$n)\"; rm /tmp/answer.$n; done"
    )
}

/// The answers of [`ask`], in order; null for a request that was not answered.
async fn answers(asked: Running) -> Result<Vec<Value>> {
    let exit = asked.exit(ROUND).await?;
    let mut answers = vec![Value::Null; REQUESTS];
    for line in &exit.lines {
        if let Some((nr, answer)) = line.split_once(' ')
            && let (Ok(nr), Ok(answer)) = (nr.parse::<usize>(), answer.parse::<Value>())
            && answer["output_ids"].is_array()
        {
            answers[nr] = essence(&answer);
        }
    }
    Ok(answers)
}

/// What one agent answers that does all by itself.
async fn unified(bench: &mut Bench) -> Result<Vec<Value>> {
    let agent = bench.hosts[B].start(&agent(B, 31000, "")).await?;
    wait_healthy(bench, B, 31000, "/health").await?;
    let answers = answers(bench.hosts[B].start(&ask(B, 31000)).await?).await?;
    ensure!(
        answers.iter().all(|answer| !answer.is_null()),
        "the unified agent has not answered all"
    );
    bench.hosts[B].run("killall pd-agent", PATIENCE).await?;
    agent.exit(PATIENCE).await?;
    Ok(answers)
}

// === impl Stand ===

impl Stand {
    async fn start() -> Result<Self> {
        let programs = ["pd-agent", "pd-router"].map(binary);
        let mut bench = Bench::boot(2, NICS, &programs, &files()?).await?;
        bench.add_rdma(NICS).await?;
        let expected = unified(&mut bench).await?;
        let flags = "--disaggregation-mode prefill --disaggregation-transfer-backend rdma \
                     --chunked-prefill-size 64";
        let prefill = bench.hosts[A].start(&agent(A, 30000, flags)).await?;
        let decode = bench.hosts[B].start(&decode()).await?;
        for host in [A, B] {
            wait_healthy(&mut bench, host, 30000, "/health").await?;
        }
        let (a, b) = (address(A, FIRST), address(B, FIRST));
        let router = format!(
            "exec pd-router --pd-disaggregation --host {a} --port 8000 --admin-port 8900 \
             --prefill http://{a}:30000 8998 --decode http://{b}:30000"
        );
        let router = bench.hosts[A].start(&router).await?;
        wait_healthy(&mut bench, A, 8000, "/ready").await?;
        Ok(Self {
            bench,
            prefill,
            decode,
            _router: router,
            expected,
        })
    }

    async fn ask(&mut self) -> Result<Running> {
        self.bench.hosts[A].start(&ask(A, 8000)).await
    }

    /// Every answer is the unified agent's, bit for bit.
    async fn check(&self, what: &str, asked: Running) -> Result<()> {
        let answers = answers(asked).await?;
        let differs = |nr: &usize| answers[*nr] != self.expected[*nr];
        let wrong: Vec<usize> = (0..REQUESTS).filter(differs).collect();
        let null = wrong.iter().filter(|nr| answers[**nr].is_null()).count();
        eprintln!(
            "{what}: {} of {REQUESTS} answers are the unified agent's, {null} requests failed",
            REQUESTS - wrong.len()
        );
        ensure!(wrong.is_empty(), "{what}: requests {wrong:?} differ");
        Ok(())
    }

    /// No page, row or room is in use on either side.
    async fn all_is_back(&mut self) -> Result<()> {
        for host in [A, B] {
            let url = format!("http://{}:30000/metrics", address(host, FIRST));
            let used =
                r#"kv_pages\{state="(locked|held|quarantined)"|metadata_rows_used|rooms_in_flight"#;
            let wait = format!(
                "until wget -q -O /tmp/metrics {url} && grep -E '{used}' /tmp/metrics | grep -vc '^#' | grep -qx 5 && \
                 ! grep -E '{used}' /tmp/metrics | grep -v '^#' | grep -qv ' 0$'; do sleep 0.2; done"
            );
            self.bench.hosts[host].run(&wait, PATIENCE).await?;
        }
        Ok(())
    }
}

async fn a_link_breaks_and_heals(stand: &mut Stand) -> Result<()> {
    let mut asked = stand.ask().await?;
    asked.line("begun", PATIENCE).await?;
    stand.bench.set_trouble(B, SECOND, Trouble::Cut)?;
    stand.check("one of two links is cut", asked).await?;
    stand.prefill.line("rail failed", PATIENCE).await?;
    let asked = stand.ask().await?;
    stand.check("one link is left", asked).await?;
    stand.bench.set_trouble(B, SECOND, Trouble::None)?;
    stand.prefill.line("rail is up", PATIENCE).await?;
    let asked = stand.ask().await?;
    stand.check("the link is back", asked).await
}

async fn packets_are_lost(stand: &mut Stand) -> Result<()> {
    for nic in [FIRST, SECOND] {
        stand.bench.set_trouble(A, nic, Trouble::LosesEvery(20))?;
    }
    let asked = stand.ask().await?;
    stand.check("one packet of twenty is lost", asked).await?;
    for nic in [FIRST, SECOND] {
        stand.bench.set_trouble(A, nic, Trouble::None)?;
    }
    Ok(())
}

async fn a_device_is_removed(stand: &mut Stand) -> Result<()> {
    let asked = stand.ask().await?;
    let remove = "echo 1 >/sys/class/net/eth1/device/../remove";
    let _removal = stand.bench.hosts[B].start(remove).await?;
    stand.check("a NIC is pulled", asked).await
}

/// Requests end; none hangs. The next decode has another identity at the same address.
async fn decode_is_killed_and_comes_back(stand: &mut Stand) -> Result<()> {
    let mut asked = stand.ask().await?;
    asked.line("begun", PATIENCE).await?;
    stand.bench.hosts[B]
        .run("killall -9 pd-agent", PATIENCE)
        .await?;
    let ended = answers(asked).await?;
    let answered = ended.iter().filter(|answer| !answer.is_null()).count();
    eprintln!("decode is killed: all ended, {answered} of {REQUESTS} were answered before");
    stand.decode = stand.bench.hosts[B].start(&decode()).await?;
    wait_healthy(&mut stand.bench, B, 30000, "/health").await?;
    wait_healthy(&mut stand.bench, A, 8000, "/ready").await?;
    let asked = stand.ask().await?;
    stand
        .check("another decode at the same address", asked)
        .await
}

#[tokio::test]
async fn tokens_stay_those_of_one_agent_when_things_break() -> Result<()> {
    let mut stand = Stand::start().await?;
    let asked = stand.ask().await?;
    stand.check("over two NICs", asked).await?;
    stand.decode.line("transport rdma", PATIENCE).await?;
    let info = format!(
        "wget -q -O - http://{}:30000/server_info",
        address(B, FIRST)
    );
    let info = stand.bench.hosts[B].run(&info, PATIENCE).await?.concat();
    let links = &info.parse::<Value>()?["disaggregation_links"];
    ensure!(
        links.to_string().contains("\"transport\":\"rdma\""),
        "decode says of its links: {links}"
    );
    stand.all_is_back().await?;
    a_link_breaks_and_heals(&mut stand).await?;
    stand.all_is_back().await?;
    packets_are_lost(&mut stand).await?;
    a_device_is_removed(&mut stand).await?;
    stand.all_is_back().await?;
    decode_is_killed_and_comes_back(&mut stand).await?;
    stand.all_is_back().await
}
