//! The scheduler, on a thread that `engine::start` spawns, or by its turns alone. A [`Turns::turn`] is: `receive` the
//! commands, let the mode `advance` its queues, `step` (the mode's `schedule`, or `resume` where the
//! step was launched ahead, then `compute`, then the mode's `settle`), `observe`. The loop only
//! sequences; what a step computes and where requests go next is decided by the [`Mode`]:
//! `schedule::unified::Unified`, `disaggregation::prefill::Prefill` or
//! `disaggregation::decode::Decode`.

use crate::batch::{Batch, RowOutput};
use crate::engine::{Command, CommandSender, RequestId, Turn};
use crate::model_runner::Launched;
use crate::req::{Req, ReqFactory};
use crate::resources::Resources;
use crossbeam_channel::Receiver;
use pd_compute::{Backend, ComputeError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A mode of serving: queues, and the rules by which requests move through them.
pub(crate) trait Mode<B: Backend> {
    /// A new request.
    fn admit(&mut self, resources: &mut Resources<B>, req: Req);

    /// The reader of a request is gone; a request that has ended is unknown.
    fn abort(&mut self, resources: &mut Resources<B>, id: RequestId);

    /// The engine is ending.
    fn abort_all(&mut self, resources: &mut Resources<B>, reason: &str);

    /// Moves requests from queue to queue as far as transfers and memory allow.
    fn advance(&mut self, resources: &mut Resources<B>);

    /// The next step; empty if there is nothing to compute.
    fn schedule(&mut self, resources: &mut Resources<B>) -> Batch;

    /// Whether nothing waits that could join the next step: it would have the same requests as this
    /// one.
    fn is_steady(&self) -> bool {
        false
    }

    /// Those of `ids` that still run, in this order: their step was launched early. A mode that is
    /// never steady has no such steps.
    fn resume(&mut self, _ids: &mut dyn Iterator<Item = RequestId>) -> Batch {
        Batch::default()
    }

    /// Advances each request of a step.
    fn settle(&mut self, resources: &mut Resources<B>, batch: Batch, outputs: Vec<RowOutput>);

    fn queues(&self) -> QueueSizes;
}

/// The number of requests in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct QueueSizes {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Of those that wait for a step; on decode, of all that have no memory yet, those among them that look for prefill.
    pub(crate) waiting_tokens: usize,
    pub(crate) oldest: Option<Instant>,
    pub(crate) retracted: usize,
    pub(crate) bootstrap: usize,
    pub(crate) inflight: usize,
    pub(crate) prealloc: usize,
    pub(crate) transfer: usize,
    pub(crate) prealloc_tokens: usize,
    /// Ended requests whose pages a peer may still touch.
    pub(crate) fenced: usize,
    pub(crate) metadata_rows_used: usize,
    pub(crate) metadata_rows_total: usize,
    pub(crate) new_token_ratio: f64,
}

/// Wakes the event loop from other threads; calls before the next wake-up are merged.
#[derive(Clone, Debug)]
pub(crate) struct LoopWaker {
    pending: Arc<AtomicBool>,
    commands_tx: CommandSender,
}

/// An event loop on any device.
pub(crate) trait Turns: Send {
    /// Does what there is to do and does not wait.
    fn turn(&mut self) -> Turn;

    /// Takes turns until the last, and waits between them while there is nothing to do.
    fn run(self: Box<Self>);
}

pub(crate) struct EventLoop<B: Backend> {
    pub(crate) commands_rx: Receiver<Command>,
    pub(crate) waker: LoopWaker,
    pub(crate) resources: Resources<B>,
    pub(crate) mode: Box<dyn Mode<B> + Send>,
    pub(crate) req_factory: ReqFactory,
    /// The last step found nothing to compute.
    pub(crate) is_idle: bool,
    /// Whether steps are launched early.
    pub(crate) overlaps: bool,
    /// The next step, launched before the results of the last one were known: the device goes from
    /// one to the other without waiting for the scheduler. For requests that have ended in between,
    /// its result is discarded.
    pub(crate) ahead: Option<Launched<B>>,
    pub(crate) _stopped: SetOnDrop,
}

/// Reports that the loop has ended, even by a panic.
pub(crate) struct SetOnDrop(pub(crate) Arc<AtomicBool>);

/// Transfers wake the loop; this only bounds the delay after a lost wake-up.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

// === impl EventLoop ===

impl<B: Backend> EventLoop<B> {
    /// A turn that begins with the command that was waited for, if any.
    fn turn_with(&mut self, waited: Option<Command>) -> Turn {
        if !self.receive(waited) {
            self.end("the engine was stopped");
            return Turn::Last;
        }
        self.mode.advance(&mut self.resources);
        if let Err(fault) = self.step() {
            tracing::error!(%fault, "device faulted; stopping the engine");
            self.end(&fault.to_string());
            return Turn::Last;
        }
        self.observe();
        if self.is_idle {
            Turn::Idle
        } else {
            Turn::Worked
        }
    }

    fn end(&mut self, reason: &str) {
        if let Some(ahead) = self.ahead.take()
            && let Err(fault) = ahead.wait()
        {
            tracing::debug!(%fault, "last step failed");
        }
        self.resources.step_ended(false);
        self.mode.abort_all(&mut self.resources, reason);
    }

    /// Computes a step, the one launched ahead or the next that the mode schedules, and settles it.
    fn step(&mut self) -> Result<(), ComputeError> {
        let started = Instant::now();
        let batch = match &self.ahead {
            Some(launched) => self.mode.resume(&mut launched.ids()),
            None => self.mode.schedule(&mut self.resources),
        };
        self.is_idle = self.ahead.is_none() && batch.rows.is_empty();
        if self.is_idle {
            return Ok(());
        }
        let computed = self.compute(&batch);
        let resources = &mut self.resources;
        match computed {
            Ok(outputs) => {
                resources.metrics.counters.steps.inc();
                resources.record_step(&batch, started.elapsed());
                self.mode.settle(resources, batch, outputs);
                Ok(())
            }
            Err(fault) => {
                for mut row in batch.rows {
                    resources.fail(&row.req, &fault.to_string(), true);
                    resources.release_kv(&mut row.req);
                }
                Err(fault)
            }
        }
    }

    /// Launches the step unless it was launched ahead, launches the next one early if possible, and
    /// waits for one output per row.
    fn compute(&mut self, batch: &Batch) -> Result<Vec<RowOutput>, ComputeError> {
        let resources = &mut self.resources;
        let launched = match self.ahead.take() {
            Some(launched) => launched,
            None => {
                let req_to_token = resources.cache.req_to_token();
                resources.runner.launch(batch, req_to_token)?
            }
        };
        if self.overlaps && self.mode.is_steady() {
            self.ahead = resources.launch_ahead(batch, &launched)?;
        }
        let is_graph = u64::from(launched.is_graph());
        resources.metrics.counters.graph_replays.inc_by(is_graph);
        let ids: Vec<_> = launched.ids().collect();
        let outputs = launched.wait()?;
        resources.step_ended(self.ahead.is_some());
        // Some may have ended since the step was launched.
        let mut alive = batch.rows.iter().map(|row| row.req.id).peekable();
        let outputs = ids.iter().zip(outputs);
        let outputs = outputs.filter_map(|(id, output)| alive.next_if_eq(id).map(|_| output));
        Ok(outputs.collect())
    }

    /// Handles the commands since the last step. Returns `false` to stop.
    fn receive(&mut self, mut waited: Option<Command>) -> bool {
        while let Some(command) = waited.take().or_else(|| self.commands_rx.try_recv().ok()) {
            if !self.execute(command) {
                return false;
            }
        }
        true
    }

    fn wait(&self) -> Option<Command> {
        if self.mode.queues().is_empty() {
            self.commands_rx.recv().ok()
        } else {
            self.commands_rx.recv_timeout(POLL_INTERVAL).ok()
        }
    }

    fn execute(&mut self, command: Command) -> bool {
        match command {
            Command::Generate(submission) => {
                self.resources.metrics.counters.requests.inc();
                let req = self.req_factory.make(*submission);
                self.mode.admit(&mut self.resources, req);
            }
            Command::Abort(id) => self.mode.abort(&mut self.resources, id),
            Command::FlushCache(done_tx) => {
                let idle = self.mode.queues().is_empty() && self.ahead.is_none();
                if idle {
                    self.resources.cache.flush();
                }
                // The caller may have stopped waiting.
                let _ = done_tx.send(idle);
            }
            Command::Wake => self.waker.pending.store(false, Ordering::Release),
            Command::Stop => return false,
        }
        true
    }

    /// Writes the gauges and, when no request is left, checks that no page or row is lost.
    fn observe(&self) {
        let queues = self.mode.queues();
        self.resources.observe(&queues);
        if queues.is_empty() && self.ahead.is_none() {
            let usage = self.resources.cache.usage();
            assert!(
                usage.is_conserved_when_idle(),
                "pages or rows are lost: {usage:?}"
            );
            assert_eq!(queues.metadata_rows_used, 0, "metadata rows are lost");
        }
    }
}

impl<B: Backend> Turns for EventLoop<B> {
    fn turn(&mut self) -> Turn {
        self.turn_with(None)
    }

    fn run(mut self: Box<Self>) {
        loop {
            let mut waited = None;
            if self.is_idle {
                pd_allocator::collect_if_due();
                waited = self.wait();
            }
            if self.turn_with(waited) == Turn::Last {
                return;
            }
        }
    }
}

// === impl QueueSizes ===

impl QueueSizes {
    /// Whether no request is left, and no peer can touch a page.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            running,
            waiting,
            retracted,
            bootstrap,
            inflight,
            prealloc,
            transfer,
            ..
        } = self;
        let all = [
            running, waiting, retracted, bootstrap, inflight, prealloc, transfer,
        ];
        all.iter().all(|&&len| len == 0) && self.fenced == 0
    }
}

// === impl SetOnDrop ===

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

// === impl LoopWaker ===

impl LoopWaker {
    pub(crate) fn new(commands_tx: CommandSender) -> Self {
        Self {
            pending: Arc::default(),
            commands_tx,
        }
    }

    pub(crate) fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // A loop that has ended needs no waking.
            let _ = self.commands_tx.send(Command::Wake);
        }
    }
}
