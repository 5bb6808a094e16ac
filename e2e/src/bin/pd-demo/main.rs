//! `make demo`: one question to a real model, or a tiny one of any family, through router, prefill and decode; the request's
//! timeline; and the same question to a unified agent, whose token ids must be equal.

#![allow(clippy::print_stdout, reason = "a demo talks to a person")]

mod ask;
mod stages;
mod timeline;

use anyhow::{Context, Result, ensure};
use ask::Question;
use clap::Parser;
use pd_e2e::client::Client;
use pd_e2e::fleet::{FleetSpec, wait_healthy};
use pd_e2e::process::{LogTo, Process};
use pd_e2e::{address, binaries};
use pd_protocol::Role;
use pd_protocol::timeline::RequestTimeline;
use pd_protocol::trace_event::Trace;
use rustix::process::Signal;
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest time for the deployment to drain and stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Args {
    /// The PDDeployment to run; one prefill and one decode worker of the model if absent.
    #[arg(long)]
    deployment: Option<PathBuf>,
    /// Its model, for the unified agent.
    #[arg(long)]
    model: PathBuf,
    #[arg(long, default_value = "Why is the sky blue? Answer in two sentences.")]
    question: String,
    #[arg(long, default_value_t = 80)]
    max_tokens: u32,
    /// Where the request's way is written for Perfetto and chrome://tracing.
    #[arg(long)]
    trace: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match demo(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("\nerror: {why:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: Args) -> Result<()> {
    ensure!(
        args.model.exists(),
        "no model at {}; run `make model`, or give a FAMILY of which agent/engine/golden has a tiny one",
        args.model.display()
    );
    let made = tempfile::tempdir().context("cannot make a folder for the deployment")?;
    let deployment = match args.deployment {
        Some(deployment) => deployment,
        None => write_deployment(made.path(), &args.model)?,
    };
    let question = Question {
        text: args.question,
        max_tokens: args.max_tokens,
    };

    heading(&format!("pd-operator local -f {}", deployment.display()));
    let listen = free_listen_address()?;
    let token = format!("{:032x}", rand::random::<u128>());
    let operator_args = [
        "local".to_owned(),
        "-f".to_owned(),
        deployment.display().to_string(),
        "--listen".to_owned(),
        listen.clone(),
    ];
    let env = [(pd_protocol::labels::ENV_ADMIN_TOKEN, token.as_str())];
    let operator = binaries::binary("pd-operator");
    let mut operator =
        Process::spawn_logging("operator", &operator, &operator_args, &env, LogTo::Shown)?;
    let base = format!("http://{listen}");
    wait_healthy(&Client::new(), &base, "/ready", &mut operator).await?;

    heading(&format!("POST {base}/v1/chat/completions"));
    let answer = question.ask(&base).await?;

    heading("the request's way, as its three processes measured it");
    let timelines = stages::fetch(&base, &answer, &token).await?;
    draw(&timelines, args.trace.as_deref())?;

    heading("the same question to one unified agent");
    let started = Instant::now();
    let mut spec = FleetSpec::new(args.model);
    spec.agent_args = vec!["--served-model-name".to_owned(), answer.model.clone()];
    let unified = spec.start_worker(Role::Unified, address::fresh()).await?;
    println!(
        "agent ready {} ms after its start",
        started.elapsed().as_millis()
    );
    let reference = question.ask(&unified.url()).await?;
    drop(unified);

    operator.signal(Signal::INT)?;
    let status = operator
        .wait_exit(STOP_LIMIT)
        .await
        .context("stop the deployment")?;
    ensure!(status.success(), "pd-operator ended with {status}");

    heading("verdict");
    ensure!(
        answer.token_ids == reference.token_ids,
        "the token ids differ:\n  disaggregated {:?}\n  unified    {:?}",
        answer.token_ids,
        reference.token_ids
    );
    println!(
        "prefill and decode in two processes gave the same {} token ids as one process",
        answer.token_ids.len()
    );
    Ok(())
}

/// Here, and for Perfetto in a file, if one is named.
fn draw(timelines: &[RequestTimeline], file: Option<&Path>) -> Result<()> {
    print!("{}", timeline::draw(timelines));
    let Some(file) = file else { return Ok(()) };
    let trace = serde_json::to_vec(&Trace::of_request(timelines))?;
    std::fs::write(file, trace).with_context(|| format!("cannot write {}", file.display()))?;
    println!(
        "open {} in https://ui.perfetto.dev to look closer",
        file.display()
    );
    Ok(())
}

/// A deployment of one prefill and one decode worker.
fn write_deployment(folder: &Path, model: &Path) -> Result<PathBuf> {
    let path = model.canonicalize().context("the model has no path")?;
    let name = path.file_stem().context("the model has no name")?;
    let document = json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "demo"},
        "spec": {
            "model": {
                "servedModelName": name.to_string_lossy(),
                "source": {"hostPath": {"path": path}},
            },
            "pools": {"prefill": {"replicas": 1}, "decode": {"replicas": 1}},
        },
    });
    let file = folder.join("demo.yaml");
    std::fs::write(&file, document.to_string()).context("cannot write the deployment")?;
    Ok(file)
}

fn heading(text: &str) {
    println!("\n── {text}");
}

/// An address on which nothing listens now.
fn free_listen_address() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?.to_string())
}
