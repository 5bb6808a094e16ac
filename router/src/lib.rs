//! The router: an OpenAI API in front, one prefill and one decode worker behind each request. What
//! it leaves to the workers: tokens, templates, KV.
//!
//! A request goes down this list, and its answer comes back as the last of it:
//!
//! 1. `server` accepts the connection, through `tls` where a certificate is given.
//! 2. `api` has its path, `cors` and `api_keys` let it in, and `request` reads its routing fields.
//! 3. `dispatch` makes attempts until one has decode's first byte, or the last that `retry` allows
//!    has failed. For each, its `admission` acquires a permit of `queue` and leases of the workers
//!    that `route` chooses by `policy`; its `attempt` draws `rooms`, has `splice` write them into
//!    the client's bytes, and sends both legs through `client`.
//!    To a pair of vLLM's the legs go one after the other, and `split` asks for each answer by itself.
//! 4. `relay` carries decode's answer to its last byte, by `sse` events, `logprobs` merged in.
//!
//! A module knows only modules below its own line:
//!
//! ```text
//! server                                        the process: bind, serve, drain
//! admin                                         the operator's paths
//! api                                           the clients' paths
//! split                                         several answers, where each has a prefill of its own
//! relay                                         the answer
//! dispatch  discovery                           what acts on the router's state
//! args  router                                  flags; the state that all requests share
//! config                                        what flags come to
//! api_keys  body_limit  tls                     limits; what follows its file
//! error  reload
//! metrics  route
//! request  workers                              what is asked, and who can answer
//! client  logprobs  pause  queue
//! clock  net                                    the seams: time and sockets
//! cors  headers  policy  retry  rooms  splice  sse  timeline  vitals
//! ```

mod admin;
mod api;
mod api_keys;
mod args;
mod body_limit;
mod client;
mod clock;
mod config;
mod cors;
mod discovery;
mod dispatch;
mod error;
mod headers;
mod logprobs;
mod metrics;
mod net;
mod pause;
mod policy;
mod queue;
mod relay;
mod reload;
mod request;
mod retry;
mod rooms;
mod route;
mod router;
mod server;
mod splice;
mod split;
mod sse;
mod timeline;
mod tls;
mod vitals;
mod workers;

pub use args::Args;
pub use config::Config;
pub use router::Router;
pub use server::{Server, Stopped};

use anyhow::Context;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Runs the router until SIGTERM; says on stderr what keeps it from starting, or which task it has
/// lost.
pub fn run(args: Args) -> ExitCode {
    let code = match try_run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            pd_log::to_stderr(format_args!("error: {}", in_one_line(&error)));
            ExitCode::FAILURE
        }
    };
    pd_log::flush();
    code
}

fn try_run(args: Args) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log_level)
        .with_context(|| format!("--log-level {:?} is no log level", args.log_level))?;
    if args.check {
        return Ok(args.into_config().map(drop)?);
    }
    pd_log::init(filter);
    pd_http::raise_limit();
    if let Err(error) = pd_allocator::refuse_huge_pages() {
        tracing::info!(%error, "memory comes in huge pages, so that this process may hold more than it uses");
    }
    report_substitutes(&args);
    let runtime = pd_allocator::runtime()
        .thread_name("pd-router")
        .enable_all()
        .build()
        .context("cannot start the worker threads")?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let server = Server::bind(args.into_config()?).await?;
    tracing::info!(
        api = %server.api_addr()?,
        tls = server.is_tls(),
        admin = %server.admin_addr()?,
        "serving",
    );
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    if server.run(shutdown).await? == Stopped::CutOff {
        tracing::warn!("grace period ended with answers in flight");
    }
    Ok(())
}

/// An error with its causes, each once: most of our messages quote theirs.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Says which flags mean less here than in SGLang's router.
fn report_substitutes(args: &Args) {
    for warning in args.sglang.warnings() {
        tracing::warn!("{warning}");
    }
    let policies = args.substituted_policies();
    if !policies.is_empty() {
        tracing::warn!(
            "{} serves as least_loaded in this version",
            policies.join(", ")
        );
    }
}

#[cfg(test)]
mod tests;
