//! The engine's public interface: started once per process, then used through a cheap, cloneable
//! handle. The scheduler's thread is behind a channel; only `flush_cache` waits for it.

use pd_kv_transfer::Failure;
use pd_protocol::BootstrapRoom;
use pd_protocol::Role;
use pd_protocol::timeline::RequestTimeline;
use pd_protocol::trace_event::Trace;
use pd_protocol::workers::{DrainState, DrainStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

pub mod config;
mod device;
mod draft;
mod identity;
mod replacement;
mod scheduler;
mod shared;
mod sizes;
mod start;
mod stream;

use crate::answer::answer;
use crate::command::{Command, RequestId, Submission, stopped};
use crate::grammar::Grammars;
use crate::metrics::EngineMetrics;
use crate::text::{ChatTemplate, Tokenizer};
use shared::{STOPPED, Shared, StopOnDrop};
use stream::AbortOnDrop;

pub use crate::command::EngineStopped;
pub use crate::info::EngineInfo;
pub use crate::profile::ProfileError;
pub use crate::request::{FinishReason, GenerateRequest, LogprobOptions, StopMatch, SubmitError};
pub use crate::request::{TokenEvent, TokenLogprob};
pub use config::{DecodeConfig, Device, DisaggregationMode, EngineConfig, PrefillConfig};
pub use config::{SpeculativeAlgorithm, SpeculativeConfig};
pub use pd_compute::dtype::ComputeDtype;
pub use replacement::ReplacementError;
pub use scheduler::{Scheduler, Turn};
pub use start::StartError;
pub use stream::RequestStream;

/// Starts engines; see [`Engine::start`].
#[derive(Debug)]
pub struct Engine;

/// A running engine. Clones share it; the engine stops with the last one.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    shared: Arc<Shared>,
    _stop: Arc<StopOnDrop>,
}

// === impl Engine ===

impl Engine {
    /// Loads the model, sets up the pools and starts the scheduler's thread. Blocks while loading.
    ///
    /// # Errors
    /// Says which file, flag or device is at fault and what would help.
    pub fn start(config: EngineConfig) -> Result<EngineHandle, StartError> {
        start::start(config)
    }

    /// As [`Self::start`], without the thread: the engine computes when its scheduler is given a turn.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_by_turns(config: EngineConfig) -> Result<(EngineHandle, Scheduler), StartError> {
        start::start_by_turns(&config)
    }
}

// === impl EngineHandle ===

impl EngineHandle {
    /// Queues a request. Never blocks.
    ///
    /// # Errors
    /// Refuses requests that can never be served, and all new ones while cordoned or full.
    pub fn submit(&self, request: GenerateRequest) -> Result<RequestStream, SubmitError> {
        let shared = &self.shared;
        if shared.state.cordoned.load(Ordering::Acquire) {
            return Err(SubmitError::Cordoned);
        }
        let info = &shared.info;
        info.check_lengths(&request)?;
        info.check_tokens(&request)?;
        request.sampling.validate(info.vocab_size)?;
        let grammar = request.grammar.as_ref();
        if grammar.is_some_and(|grammar| !shared.grammars.has_made(grammar)) {
            return Err(SubmitError::ForeignGrammar);
        }
        let room = info.room_of(&request)?;
        let in_flight = shared.in_flight.enter(room)?;
        let id = RequestId(shared.state.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer_tx, answer_rx) = answer(id, shared.commands_tx.clone());
        let submission = Box::new(Submission {
            id,
            request,
            answer: answer_tx,
            in_flight,
        });
        shared
            .commands_tx
            .send(Command::Generate(submission))
            .map_err(|stopped| SubmitError::Stopped {
                reason: stopped.reason,
            })?;
        let commands_tx = Some(shared.commands_tx.clone());
        Ok(RequestStream {
            events: answer_rx,
            abort: AbortOnDrop { id, commands_tx },
        })
    }

    pub fn info(&self) -> &EngineInfo {
        &self.shared.info
    }

    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.shared.tokenizer
    }

    /// Where requests get their grammars from before they are submitted.
    pub fn grammars(&self) -> &Grammars {
        &self.shared.grammars
    }

    /// `None` if the model has none, and so accepts no chat.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.shared.chat_template.as_ref()
    }

    /// As [`Self::stop`], and blocks until the engine has given its memory back. Programs end their engines, for
    /// a GPU's driver may be gone before the scheduler's thread when a process ends. One by turns ends with its scheduler.
    pub fn end(self) {
        self.stop();
        self.shared.state.stopped.wait();
    }

    /// The scheduler's thread has ended, by [`Self::stop`] or by a fault that the log names, or the
    /// KV transfer has failed.
    pub fn health(&self) -> Result<(), EngineStopped> {
        if self.shared.state.stopped.is_set() {
            return Err(stopped());
        }
        let failure = self.shared.transfer_failure.as_ref();
        match failure.and_then(Failure::reason) {
            Some(reason) => Err(EngineStopped {
                reason: reason.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Resolves with the reason when the KV transfer fails, after which no request of a pair can
    /// succeed: the process should end. Stays pending if there is no KV transfer.
    pub fn transfer_failed(&self) -> impl Future<Output = Arc<str>> + Send + 'static {
        let failure = self.shared.transfer_failure.clone();
        async move {
            match failure {
                Some(failure) => failure.failed().await,
                None => std::future::pending().await,
            }
        }
    }

    pub fn metrics(&self) -> &EngineMetrics {
        &self.shared.metrics
    }

    /// Empties the prefix cache. `false`: requests are in flight, and the cache is unchanged.
    ///
    /// # Errors
    /// When the engine has stopped.
    pub async fn flush_cache(&self) -> Result<bool, EngineStopped> {
        let (done_tx, done_rx) = oneshot::channel();
        self.shared
            .commands_tx
            .send(Command::FlushCache(done_tx))
            .map_err(|_| stopped())?;
        done_rx.await.map_err(|_| stopped())
    }

    /// Refuses new requests, retriably; those in flight continue.
    pub fn cordon(&self) {
        self.shared.state.cordoned.store(true, Ordering::Release);
    }

    /// Accepts new requests again, unless draining.
    pub fn uncordon(&self) {
        if !self.shared.state.draining.load(Ordering::Acquire) {
            self.shared.state.cordoned.store(false, Ordering::Release);
        }
    }

    /// Cordons permanently: the process will exit when no request is left in flight.
    pub fn drain(&self) {
        self.shared.state.draining.store(true, Ordering::Release);
        self.cordon();
    }

    pub fn drain_status(&self) -> DrainStatus {
        let in_flight = self.shared.in_flight.count();
        let draining = self.shared.state.draining.load(Ordering::Acquire);
        let cordoned = self.shared.state.cordoned.load(Ordering::Acquire);
        let state = match (draining, cordoned, in_flight) {
            (true, _, 0) => DrainState::Drained,
            (true, ..) => DrainState::Draining,
            (false, true, _) => DrainState::Cordoned,
            (false, false, _) => DrainState::Serving,
        };
        DrainStatus { state, in_flight }
    }

    /// Stages of a recent request, if it is still remembered.
    pub fn timeline(&self, room: BootstrapRoom) -> Option<RequestTimeline> {
        let process = match self.shared.info.role {
            Role::Prefill => "prefill",
            Role::Decode => "decode",
            Role::Unified => "null",
        };
        let events = self.shared.timelines.events(room)?;
        Some(RequestTimeline {
            room,
            process: process.to_owned(),
            events,
        })
    }

    /// Records from now on what the scheduler does and what the device computes.
    ///
    /// # Errors
    /// When it does already.
    pub fn start_profile(&self) -> Result<(), ProfileError> {
        self.shared.profiler.start()
    }

    /// What was recorded, with the stages of the requests that were there meanwhile.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn stop_profile(&self) -> Result<Trace, ProfileError> {
        self.shared.profiler.stop(&self.shared.timelines)
    }

    /// Ends every request in flight, retriably, and stops the scheduler's thread.
    pub fn stop(&self) {
        self.stop_because(STOPPED);
    }

    /// As [`Self::stop`], with the reason that requests in flight get.
    pub fn stop_because(&self, reason: &'static str) {
        self.cordon();
        // If the scheduler has ended, there is nothing left to stop.
        let _ = self.shared.commands_tx.send(Command::Stop(reason));
    }
}
