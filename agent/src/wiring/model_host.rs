//! Loads the model of this process: the first, and those whose weights take its place. The one that is replaced ends, and gives
//! its memory back, before the next is loaded; what is not read or not of the same network is refused before that.

use super::engine_config;
use crate::args::{Args, ModelArgs};
use crate::listeners::Ports;
use crate::service::answer_forms::AnswerForms;
use crate::service::gate::Closed;
use crate::service::{App, Service};
use crate::weights::Asked;
use anyhow::{Context, Result};
use pd_engine::engine::{Engine, EngineConfig, EngineHandle};
use pd_kv_transfer::BootstrapServer;
use pd_protocol::weights::{Checkpoint, WeightsPhase, WeightsUpdate};
use std::net::TcpListener;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// Interval of polls while requests are in flight; much shorter than a token takes to read.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// What requests get that do not end in time.
const REPLACED: &str = "its weights were replaced before the answer ended; send it again";

pub(super) struct ModelHost {
    args: Args,
    ports: Ports,
    app: Arc<App>,
    /// Of prefill: the bootstrap servers of all models listen on it, one after the other.
    listener: Option<TcpListener>,
    running: Option<Running>,
}

/// What a loaded model brings.
struct Running {
    bootstrap: Option<BootstrapServer>,
    transfer_failed: Pin<Box<dyn Future<Output = Arc<str>> + Send>>,
}

/// Sizes that were chosen for the log: of a prompt's chunk, if it is computed in chunks, and of requests that run at once.
pub(super) type Sizes = (Option<u32>, u32);

// === impl ModelHost ===

impl ModelHost {
    /// # Errors
    /// When the bootstrap server's listener has no descriptor any more.
    pub(super) fn new(
        args: Args,
        ports: Ports,
        app: Arc<App>,
        bootstrap: Option<tokio::net::TcpListener>,
    ) -> Result<Self> {
        let listener = bootstrap.map(tokio::net::TcpListener::into_std).transpose();
        Ok(Self {
            args,
            ports,
            app,
            listener: listener.context("cannot serve the bootstrap table")?,
            running: None,
        })
    }

    /// Loads the first model, and serves it.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub(super) async fn load(&mut self) -> Result<Sizes> {
        let model = self.args.model.clone();
        self.serve(&model).await
    }

    /// Loads a model and serves it. None runs.
    async fn serve(&mut self, model: &ModelArgs) -> Result<Sizes> {
        let config = engine_config::build((&self.args, model), self.ports, &self.app)?;
        let sizes = (config.chunked_prefill_size, config.max_running_requests);
        let service = load(config, model).await?;
        self.running = Some(Running {
            bootstrap: self.start_bootstrap(&service.engine)?,
            transfer_failed: Box::pin(service.engine.transfer_failed()),
        });
        self.app.open(service);
        self.app.weights.set_serving(Checkpoint {
            model_path: model.model_path.display().to_string(),
            weight_version: model.weight_version.clone(),
        });
        Ok(sizes)
    }

    /// Serves the bootstrap table on prefill. If the engine has not registered its rank yet, its
    /// request waits in the listener's backlog.
    fn start_bootstrap(&self, engine: &EngineHandle) -> Result<Option<BootstrapServer>> {
        let info = engine.info();
        let start = |listener: &TcpListener| {
            let metrics = self.app.metrics.bootstrap.clone();
            let identity = (&*info.boot_id, &*info.kv_compat);
            BootstrapServer::start_counted(
                listener.try_clone()?,
                &self.app.peers,
                identity,
                metrics,
            )
        };
        let started = self.listener.as_ref().map(start).transpose();
        started.context("cannot serve the bootstrap table")
    }

    /// Resolves when what was loaded cannot serve any longer, with the reason.
    pub(super) async fn fault(&mut self) -> String {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let bootstrap_ended = async {
            match &mut running.bootstrap {
                Some(server) => server.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = &mut running.transfer_failed => reason.to_string(),
            reason = bootstrap_ended => reason,
        }
    }

    /// Replaces the weights as asked, or only reads those that are to replace them.
    ///
    /// # Errors
    /// When neither the new nor those from before can be loaded.
    pub(super) async fn update(&mut self, asked: Asked) -> Result<()> {
        let Asked { update, done_tx } = asked;
        let model = self.with(&update);
        let checkpoint = Checkpoint {
            model_path: update.model_path.clone(),
            weight_version: model.weight_version.clone(),
        };
        let app = Arc::clone(&self.app);
        let board = &app.weights;
        let checked = self.check(&model).await;
        let is_read = checked.is_ok();
        let outcome = match (checked, update.prepare_only) {
            (Err(reason), _) => Err(reason),
            (Ok(()), Some(true)) => {
                board.set_prepared(checkpoint.clone());
                Ok(0)
            }
            (Ok(()), Some(false) | None) => {
                board.set_prepared(checkpoint.clone());
                self.replace(model, &update).await?
            }
        };
        if let Err(reason) = &outcome {
            tracing::warn!(path = checkpoint.model_path, %reason, "weights not replaced");
            board.set_failed(checkpoint, reason.clone(), is_read);
        }
        board.set_phase(WeightsPhase::Serving);
        // Who asked may have gone.
        let _ = done_tx.send(outcome);
        Ok(())
    }

    /// The model's arguments with the checkpoint that is asked for.
    fn with(&self, update: &WeightsUpdate) -> ModelArgs {
        let mut model = self.args.model.clone();
        model.read_from(update.model_path.clone().into());
        model.weight_version = update
            .weight_version
            .clone()
            .unwrap_or(model.weight_version);
        model
    }

    /// # Errors
    /// Why the checkpoint cannot take the place of the one that runs.
    async fn check(&self, model: &ModelArgs) -> Result<(), String> {
        let service = self.app.service().map_err(|why| why.message)?;
        let config = engine_config::of_model(model, &self.args);
        let check = move || service.engine.check_replacement(&config);
        match tokio::task::spawn_blocking(check).await {
            Ok(checked) => checked.map_err(|why| why.to_string()),
            Err(panicked) => Err(format!("reading it panicked: {panicked}")),
        }
    }

    /// Ends the model that runs and serves another, or else the same again. Returns how many requests waited.
    async fn replace(
        &mut self,
        model: ModelArgs,
        update: &WeightsUpdate,
    ) -> Result<Result<u64, String>> {
        let began = Instant::now();
        let app = Arc::clone(&self.app);
        let before = app.service().map_err(|why| anyhow::anyhow!(why.message))?;
        app.weights.set_phase(WeightsPhase::Draining);
        let limit = self.drain_limit(update);
        let closed = close(&app, &before.engine, limit).await;
        let drained = began.elapsed();
        app.weights.set_phase(WeightsPhase::Loading);
        self.running = None;
        let engine = before.engine.clone();
        let ended = tokio::task::spawn_blocking(|| engine.end());
        ended.await.context("the engine panicked while it ended")?;
        drop(before);
        let loaded = self.serve(&model).await;
        let outcome = match loaded {
            Ok(_) => {
                let waiting = app.gate.waiting();
                tracing::info!(
                    path = %model.model_path.display(),
                    version = model.weight_version,
                    "weights replaced in {:.2} s, {:.2} s of them for {waiting} waiting requests",
                    began.elapsed().as_secs_f64(),
                    (began.elapsed() - drained).as_secs_f64(),
                );
                self.args.model = model;
                Ok(waiting)
            }
            Err(why) => {
                self.running = None;
                let again = self.load().await;
                again.with_context(|| {
                    format!("neither new weights ({why:#}) nor those from before can be loaded")
                })?;
                Err(format!("{why:#}; the weights from before serve on"))
            }
        };
        drop(closed);
        Ok(outcome)
    }

    fn drain_limit(&self, update: &WeightsUpdate) -> Duration {
        if update.abort_all_requests == Some(true) {
            return Duration::ZERO;
        }
        let given = update.drain_timeout_secs;
        let given = given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        given.unwrap_or(self.args.server.drain_timeout)
    }
}

/// Closes the gate and waits until no request is left, for at most `limit`; then the rest ends retriably.
async fn close(app: &App, engine: &EngineHandle, limit: Duration) -> Closed {
    let deadline = Instant::now() + limit;
    let mut closing = pin!(app.gate.close());
    let closed = match timeout_at(deadline, &mut closing).await {
        Ok(closed) => closed,
        Err(_) => {
            engine.stop_because(REPLACED);
            closing.await
        }
    };
    let idle = async {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while engine.drain_status().in_flight > 0 {
            looks.tick().await;
        }
    };
    if timeout_at(deadline, idle).await.is_err() {
        let left = engine.drain_status().in_flight;
        tracing::warn!("cutting off {left} requests for new weights; their clients may retry");
        engine.stop_because(REPLACED);
    }
    closed
}

async fn load(config: EngineConfig, model: &ModelArgs) -> Result<Service> {
    let engine = tokio::task::spawn_blocking(move || Engine::start(config));
    let engine = engine.await.context("the engine's start panicked")?;
    let engine = engine.context("the engine did not start")?;
    let forms = AnswerForms::new(
        model.reasoning_parser,
        model.tool_call_parser,
        engine.chat_template(),
        engine.tokenizer(),
    );
    forms.log();
    Ok(Service::new(engine, forms))
}
