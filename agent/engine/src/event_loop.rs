//! The scheduler, on a thread that `engine::start` spawns, or by its turns alone. A [`Turns::turn`] is: `receive` the
//! commands, let the mode `advance` its queues, launch the steps that it can `schedule`, wait for the oldest in flight,
//! let the mode `settle` it, `observe`. The loop only sequences; what a step computes and where requests go next is
//! decided by the [`Mode`].
//!
//! With overlap two steps are in flight: the device goes from one to the other without waiting for the scheduler. For
//! requests that have ended in between, the result of the second is discarded.

use crate::command::{Command, CommandSender};
use crate::latch::SetOnDrop;
use crate::mode::Mode;
use crate::profile::{Phase, PhaseClock};
use crate::req::ReqFactory;
use crate::resources::Resources;
use crate::step::{Step, StepPlan};
use crossbeam_channel::Receiver;
use pd_compute::ComputeError;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Wakes the event loop from other threads; calls before the next wake-up are merged.
#[derive(Clone, Debug)]
pub(crate) struct LoopWaker {
    pending: Arc<AtomicBool>,
    commands_tx: CommandSender,
}

/// What a turn has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has computed a step.
    Worked,
    /// There was nothing to compute.
    Idle,
    /// The engine has ended.
    Last,
}

pub(crate) struct EventLoop {
    commands_rx: Receiver<Command>,
    waker: LoopWaker,
    resources: Resources,
    mode: Box<dyn Mode + Send>,
    req_factory: ReqFactory,
    /// The last turn found nothing to compute.
    is_idle: bool,
    /// Steps in flight at most.
    depth: usize,
    in_flight: VecDeque<Launched>,
    /// When the last step ended.
    last_ended: Instant,
    clock: PhaseClock,
    /// Last: what else is here has been dropped then.
    _stopped: SetOnDrop,
}

/// What an event loop is made of.
pub(crate) struct EventLoopParts {
    pub(crate) commands_rx: Receiver<Command>,
    pub(crate) waker: LoopWaker,
    pub(crate) resources: Resources,
    pub(crate) mode: Box<dyn Mode + Send>,
    pub(crate) req_factory: ReqFactory,
    /// Whether a step is launched while the one before is in flight.
    pub(crate) overlaps: bool,
    pub(crate) clock: PhaseClock,
    pub(crate) stopped: SetOnDrop,
}

/// A step in flight.
struct Launched {
    step: Step,
    at: Instant,
}

/// Transfers wake the loop; this only bounds the delay after a lost wake-up.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

// === impl EventLoop ===

impl EventLoop {
    pub(crate) fn new(parts: EventLoopParts) -> Self {
        let EventLoopParts {
            commands_rx,
            waker,
            resources,
            mode,
            req_factory,
            overlaps,
            clock,
            stopped,
        } = parts;
        Self {
            commands_rx,
            waker,
            resources,
            mode,
            req_factory,
            is_idle: true,
            depth: if overlaps { 2 } else { 1 },
            in_flight: VecDeque::new(),
            last_ended: Instant::now(),
            clock,
            _stopped: stopped,
        }
    }

    /// Does what there is to do and does not wait but for the device.
    pub(crate) fn turn(&mut self) -> Turn {
        self.turn_with(None)
    }

    /// Takes turns until the last, and waits between them while there is nothing to do.
    pub(crate) fn run(mut self) {
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

    /// A turn that begins with the command that was waited for, if any.
    fn turn_with(&mut self, waited: Option<Command>) -> Turn {
        self.clock.begin();
        if let ControlFlow::Break(reason) = self.receive(waited) {
            self.end(reason);
            return Turn::Last;
        }
        self.clock.ended(Phase::Receive);
        self.mode.advance(&mut self.resources);
        self.clock.ended(Phase::Advance);
        if let Err(fault) = self.launch_steps().and_then(|()| self.settle_oldest()) {
            tracing::error!(%fault, "device faulted; stopping the engine");
            self.end(&fault.to_string());
            return Turn::Last;
        }
        self.observe();
        self.clock.ended(Phase::Observe);
        if self.is_idle {
            Turn::Idle
        } else {
            Turn::Worked
        }
    }

    fn end(&mut self, reason: &str) {
        while let Some(Launched { step, .. }) = self.in_flight.pop_front() {
            if let Err(fault) = self.resources.ranks.wait() {
                tracing::debug!(%fault, "last step failed");
            }
            self.resources.step_ended(step.id);
        }
        self.mode.abort_all(&mut self.resources, reason);
    }

    /// Launches steps while the mode has some, up to `depth` in flight.
    fn launch_steps(&mut self) -> Result<(), ComputeError> {
        while self.in_flight.len() < self.depth {
            let Some((step, plan)) = self.mode.schedule(&mut self.resources) else {
                break;
            };
            self.launch(step, &plan)?;
        }
        self.is_idle = self.in_flight.is_empty();
        self.clock.ended(Phase::Launch);
        Ok(())
    }

    fn launch(&mut self, step: Step, plan: &StepPlan) -> Result<(), ComputeError> {
        let at = Instant::now();
        self.resources.ranks.launch(plan)?;
        self.in_flight.push_back(Launched { step, at });
        let in_flight = self.in_flight.len();
        self.resources.recorder.step_launched(in_flight);
        Ok(())
    }

    /// Waits for the oldest step in flight, and lets the mode settle it.
    fn settle_oldest(&mut self) -> Result<(), ComputeError> {
        let Some(Launched { step, at }) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let resources = &mut self.resources;
        let output = resources.ranks.wait()?;
        self.clock.ended(Phase::Wait);
        let began = at.max(self.last_ended);
        self.last_ended = Instant::now();
        self.clock.computed(&step, began, self.last_ended);
        let duration = self.last_ended.duration_since(began);
        resources.step_ended(step.id);
        resources.row_cost.observe_step(&step, duration);
        let in_flight = self.in_flight.len();
        resources.recorder.step_ended(duration, &output, in_flight);
        self.mode.settle(resources, output.settle(step, duration));
        self.clock.ended(Phase::Settle);
        Ok(())
    }

    /// Handles the commands since the last step, up to one that says to stop, and why.
    fn receive(&mut self, mut waited: Option<Command>) -> ControlFlow<&'static str> {
        while let Some(command) = waited.take().or_else(|| self.commands_rx.try_recv().ok()) {
            self.execute(command)?;
        }
        ControlFlow::Continue(())
    }

    fn wait(&self) -> Option<Command> {
        if self.mode.queues().is_empty() {
            self.commands_rx.recv().ok()
        } else {
            self.commands_rx.recv_timeout(POLL_INTERVAL).ok()
        }
    }

    fn execute(&mut self, command: Command) -> ControlFlow<&'static str> {
        match command {
            Command::Generate(submission) => {
                self.resources.recorder.metrics.counters.requests.inc();
                let req = self.req_factory.make(*submission);
                self.resources.observe_admitted(&req);
                self.mode.admit(&mut self.resources, req);
            }
            Command::Abort(id) => self.mode.abort(&mut self.resources, id),
            Command::FlushCache(done_tx) => {
                let idle = self.mode.queues().is_empty() && self.in_flight.is_empty();
                if idle {
                    self.resources.cache.flush();
                }
                // The caller may have stopped waiting.
                let _ = done_tx.send(idle);
            }
            Command::Wake => self.waker.pending.store(false, Ordering::Release),
            Command::Stop(reason) => return ControlFlow::Break(reason),
        }
        ControlFlow::Continue(())
    }

    /// Writes the gauges and, when no request is left, checks that no page or row is lost.
    fn observe(&self) {
        let queues = self.mode.queues();
        self.resources.write_gauges(&queues);
        if queues.is_empty() && self.in_flight.is_empty() {
            let usage = self.resources.cache.usage();
            assert!(
                usage.is_conserved_when_idle(),
                "pages or rows are lost: {usage:?}"
            );
            assert_eq!(queues.metadata_rows_used, 0, "metadata rows are lost");
        }
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

#[cfg(test)]
mod tests;
