//! `pd-fetch`: fetches a model into a cache folder of the hub, and says how far it is.

mod args;

use anyhow::Context;
use args::Args;
use clap::Parser;
use pd_hub::{Cache, CleanUp, Fetch, Hub, HubError, Progress, Report, look_up};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// How often it is logged how far it is.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Exit status where asking again cannot help before someone has changed something.
const FINAL: u8 = 2;

/// What was fetched, or without a path what would be.
#[derive(Serialize)]
struct Outcome {
    commit: String,
    path: Option<PathBuf>,
    bytes: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env();
    pd_log::init(filter.unwrap_or_else(|_| EnvFilter::new("info")));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let code = match runtime {
        Ok(runtime) => runtime.block_on(run(&args)),
        Err(error) => {
            pd_log::to_stderr(format_args!("error: cannot start threads: {error}"));
            ExitCode::FAILURE
        }
    };
    pd_log::flush();
    code
}

async fn run(args: &Args) -> ExitCode {
    let done = match fetch(args).await {
        Ok(outcome) => report(args, &outcome),
        Err(why) => Err(why),
    };
    let Err(why) = done else {
        return ExitCode::SUCCESS;
    };
    pd_log::to_stderr(format_args!("error: {why}"));
    if why.downcast_ref().is_some_and(HubError::is_final) {
        return ExitCode::from(FINAL);
    }
    ExitCode::FAILURE
}

/// Says where all of it is.
fn report(args: &Args, outcome: &Outcome) -> anyhow::Result<()> {
    match &outcome.path {
        Some(path) => pd_log::to_stdout(path.display()),
        None => pd_log::to_stdout(&outcome.commit),
    }
    let Some(result) = &args.result else {
        return Ok(());
    };
    let written = std::fs::write(result, serde_json::to_string(outcome)?);
    written.with_context(|| format!("cannot write {}", result.display()))
}

/// What was fetched, or would be where only that is asked.
async fn fetch(args: &Args) -> anyhow::Result<Outcome> {
    let repo = args.repo.parse().map_err(HubError::from)?;
    let hub = Hub::from_env(None)?;
    let progress = Arc::new(Progress::default());
    if let Some(port) = args.port {
        answer(SocketAddr::new(args.host, port), Arc::clone(&progress)).await?;
    }
    if args.resolve {
        let wanted = look_up(&hub, &repo, &args.revision, args.file.as_deref());
        let (commit, bytes) = until_ended(wanted).await??;
        return Ok(Outcome {
            commit: commit.to_string(),
            path: None,
            bytes,
        });
    }
    let cache = match &args.cache_dir {
        Some(folder) => Cache::new(folder),
        None => Cache::from_env()?,
    };
    let fetch = Fetch {
        repo,
        revision: args.revision.clone(),
        file: args.file.clone(),
        cache,
        connections: args.connections.into(),
        clean_up: args.remove_unused_after_days.map(|days| CleanUp {
            keep: args.keep.clone(),
            unused_for: Duration::from_hours(24) * days,
        }),
    };
    let say = |report: Report| tracing::info!("{report}");
    let work = Box::pin(until_ended(fetch.run(&hub, &progress)));
    let fetched = progress.said_until(SAY_EVERY, say, work).await;
    let fetched = fetched??;
    tracing::info!(commit = %fetched.commit, bytes = fetched.bytes, path = %fetched.path.display(), "fetched");
    Ok(Outcome {
        commit: fetched.commit.to_string(),
        path: Some(fetched.path),
        bytes: fetched.bytes,
    })
}

/// Ends with a signal, which the first process of a container must see to itself.
async fn until_ended<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = work => Ok(done),
        _ = terminate.recv() => anyhow::bail!("ended by SIGTERM; what came is kept"),
        _ = interrupt.recv() => anyhow::bail!("interrupted; what came is kept"),
    }
}

/// Answers how far it is, to everyone who asks.
async fn answer(listen: SocketAddr, progress: Arc<Progress>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|why| anyhow::anyhow!("cannot listen on {listen}: {why}"))?;
    let report = move || async move { axum::Json(progress.report()) };
    let routes = axum::Router::new().route("/progress", axum::routing::get(report));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(())
}
