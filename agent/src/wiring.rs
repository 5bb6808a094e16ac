//! From arguments to a running process: bind the listeners, answer 503 while the model loads, serve
//! until a signal or a fault, drain.

mod engine_config;
mod model_host;
pub(crate) mod own_address;
pub(crate) mod transfer_config;

use crate::args::Args;
use crate::delivery::delivered;
use crate::drain::{EndSignals, drain};
use crate::gpu::sampler::GpuSampler;
use crate::http::metrics::HttpMetrics;
use crate::hub_model;
use crate::listeners::{Listeners, Ports, serve};
use crate::lost_threads::LostThreads;
use crate::peers;
use crate::service::body_limit::all_together;
use crate::service::{App, AppSpec};
use crate::weights::{Asked, WeightsBoard};
use anyhow::{Context, Result};
use model_host::{ModelHost, Sizes};
use pd_identity::Peers;
use pd_protocol::Role;
use pd_spans::Spans;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Threads for HTTP; the engine has its own.
const HTTP_THREADS: usize = 2;
/// Threads that tokenise long prompts; more would only take cores from the engine.
const TEXT_THREADS: usize = 4;
/// How long finished answers may take to be written when the process ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// The agent's name in traces.
const SERVICE: &str = "pdserve-agent";
/// How long the engine may take to give its memory back when the process ends.
const DRIVERS_LIMIT: Duration = Duration::from_secs(5);

/// Runs the agent until a signal ends it.
///
/// # Errors
/// When a port is taken, the model cannot be loaded, or a server or a vital thread fails.
pub(crate) fn run(args: Args) -> Result<()> {
    log_to_stderr(&args.server.log_level)?;
    pd_http::raise_limit();
    args.sglang.log();
    let mut lost = LostThreads::watch(&["pd-scheduler"]);
    let runtime = pd_allocator::runtime()
        .worker_threads(HTTP_THREADS)
        .max_blocking_threads(TEXT_THREADS)
        .thread_name("pd-http")
        .enable_all()
        .build()
        .context("cannot start the HTTP threads")?;
    let ended = runtime.block_on(async {
        tokio::select! {
            reason = lost.next() => Err(anyhow::anyhow!(reason)),
            ended = run_until_signal(args) => ended,
        }
    });
    // The process does not wait for a model that is still loading when the signal arrives.
    runtime.shutdown_background();
    ended
}

async fn run_until_signal(mut args: Args) -> Result<()> {
    let started = Instant::now();
    let mut signals = EndSignals::listen()?;
    let listeners = Listeners::bind(&args).await?;
    let ports = listeners.ports()?;
    let metrics = HttpMetrics::new();
    let changed = metrics.key_changes();
    let (peers, follow_keys) = peers::open(
        args.disaggregation.transfer.peer_key_file.as_deref(),
        move |is_taken| changed[usize::from(is_taken)].inc(),
    )?;
    report_strangers(args.disaggregation.role, &peers);
    let spans = start_spans(&args)?;
    let (weights, mut asked_rx) = WeightsBoard::new();
    let spec = app_spec(&args, ports, (peers, spans), (metrics, weights));
    let app = Arc::new(App::new(spec));
    let end = CancellationToken::new();
    let Listeners {
        http,
        admin,
        bootstrap,
    } = listeners;
    let mut tasks = spawn_servers(&args, http, admin, &app, &end);
    let until = end.clone();
    tasks.spawn(async move {
        until.run_until_cancelled(follow_keys).await;
        "poll of the key file"
    });
    let fetched = tokio::select! {
        path = hub_model::path(&args.model) => path?,
        failed = task_failed(&mut tasks) => return Err(failed),
        () = signals.next() => return Ok(()),
    };
    args.model.read_from(fetched);
    let drain_limit = args.server.drain_timeout;
    let mut host = ModelHost::new(args, ports, Arc::clone(&app), bootstrap)?;
    let sizes = tokio::select! {
        loaded = host.load() => loaded?,
        failed = task_failed(&mut tasks) => return Err(failed),
        () = signals.next() => return Ok(()),
    };
    log_ready(&app, started, sizes);
    let fault = tokio::select! {
        failed = task_failed(&mut tasks) => return Err(failed),
        fault = serve_models(&mut host, &mut asked_rx) => Some(fault),
        () = signals.next() => None,
    };
    if let Some(reason) = &fault {
        tracing::error!("shutting down: {reason}");
    }
    let ended = drain(&app, &mut signals, drain_limit).await;
    drop(host);
    end.cancel();
    let flushed = timeout(FLUSH_LIMIT, tasks.join_all()).await;
    tracing::info!(
        "drained: {ended:?}; connections closed in time: {}; all answers delivered: {}",
        flushed.is_ok(),
        delivered(ports.http).await
    );
    leave(app).await;
    fault.map_or(Ok(()), |reason| Err(anyhow::anyhow!(reason)))
}

/// Sends the last spans, and waits until no thread calls a driver.
async fn leave(app: Arc<App>) {
    if timeout(DRIVERS_LIMIT, leave_drivers(&app)).await.is_err() {
        tracing::warn!(
            "the engine or a GPU driver still runs after {DRIVERS_LIMIT:?}; ending nevertheless"
        );
    }
    if app.spans.is_some() {
        // A panic there has been logged.
        let _ = tokio::task::spawn_blocking(move || app.spans.as_ref().map(Spans::flush)).await;
    }
}

/// Drivers' libraries may be gone before the threads that call them when a process ends.
async fn leave_drivers(app: &App) {
    let end_engine = async {
        if let Ok(service) = app.service() {
            let engine = service.engine.clone();
            // An engine that panics while it ends has said so.
            let _ = tokio::task::spawn_blocking(|| engine.end()).await;
        }
    };
    tokio::join!(app.gpus.end(), end_engine);
}

fn start_spans(args: &Args) -> Result<Option<Spans>> {
    let Some(endpoint) = &args.server.otlp_traces_endpoint else {
        return Ok(None);
    };
    let instance = format!("{}:{}", args.server.host, args.server.port);
    let spans = Spans::start(endpoint, SERVICE, &instance);
    spans.map(Some).context("--otlp-traces-endpoint")
}

fn app_spec(
    args: &Args,
    ports: Ports,
    (peers, spans): (Peers, Option<Spans>),
    (metrics, weights): (HttpMetrics, WeightsBoard),
) -> AppSpec {
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    AppSpec {
        role: args.disaggregation.role,
        served_model_name: args.model.served_name(),
        bootstrap_port: ports.bootstrap,
        transfer_backend: args.disaggregation.transfer.transfer_backend.name,
        started_unix_secs: started.map_or(0, |since| since.as_secs()),
        gpus: GpuSampler::spawn(),
        spans,
        peers,
        metrics,
        body_bytes_max: args.server.max_body_bytes,
        bodies_bytes_max: all_together(args.server.max_body_bytes),
        waiting_max: args.schedule.max_queued_requests,
        weights,
    }
}

fn spawn_servers(
    args: &Args,
    http: TcpListener,
    admin: TcpListener,
    app: &Arc<App>,
    end: &CancellationToken,
) -> JoinSet<&'static str> {
    let server = &args.server;
    let api = crate::http::api(Arc::clone(app), server.api_key.clone());
    let admin_api = crate::http::admin_api(Arc::clone(app), server.admin_token.clone());
    // Operators have no key; the admin API has a token for them.
    let servers = [
        ("HTTP server", "http", http, app.peers.clone(), api),
        ("admin server", "admin", admin, Peers::Plain, admin_api),
    ];
    let mut tasks = JoinSet::new();
    for (name, label, listener, peers, router) in servers {
        let end = end.clone();
        let metrics = app.metrics.connections.listener(label);
        tasks.spawn(async move {
            serve(listener, peers, router, metrics, end).await;
            name
        });
    }
    tasks
}

/// Replaces weights as is asked, until what serves fails; returns why.
async fn serve_models(host: &mut ModelHost, asked_rx: &mut mpsc::Receiver<Asked>) -> String {
    loop {
        let asked = tokio::select! {
            fault = host.fault() => return fault,
            asked = asked_rx.recv() => asked.expect("the app holds a sender"),
        };
        if let Err(why) = host.update(asked).await {
            return format!("{why:#}");
        }
    }
}

fn log_ready(app: &App, started: Instant, (chunk, running): Sizes) {
    let Ok(service) = app.service() else { return };
    let info = service.engine.info();
    tracing::info!(
        "ready in {:.2} s: {} ({}), context {}, KV pool of {} tokens, prompts in {}, {running} requests \
         at once",
        started.elapsed().as_secs_f64(),
        info.served_model_name,
        info.model_type,
        info.context_length,
        info.max_total_tokens,
        chunk.map_or("one piece".to_owned(), |chunk| format!("chunks of {chunk}"))
    );
}

/// Warns where a stranger would be taken for a peer.
fn report_strangers(role: Role, peers: &Peers) {
    if role != Role::Unified && peers.identity().is_none() {
        tracing::warn!(
            "peers are not authenticated: anyone who reaches the ports of this worker can send it requests and KV; give \
             all processes of the deployment one --peer-key-file"
        );
    }
}

/// The failure of the first task that ends before shutdown.
async fn task_failed(tasks: &mut JoinSet<&'static str>) -> anyhow::Error {
    match tasks.join_next().await {
        Some(Ok(name)) => anyhow::anyhow!("the {name} ended unexpectedly"),
        None => anyhow::anyhow!("a server ended unexpectedly"),
        Some(Err(panicked)) => anyhow::Error::new(panicked).context("a server panicked"),
    }
}

pub(crate) fn log_to_stderr(filter: &str) -> Result<()> {
    // Python's names of levels, which SGLang's scripts use.
    let filter = match filter.to_ascii_lowercase().as_str() {
        "warning" => "warn",
        "critical" => "error",
        _ => filter,
    };
    let filter = EnvFilter::try_new(filter).with_context(|| {
        format!("--log-level {filter} is neither a level (error, warn, info, debug, trace) nor a directive")
    })?;
    pd_log::init(filter);
    Ok(())
}
