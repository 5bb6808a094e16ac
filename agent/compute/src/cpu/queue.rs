//! The queue: commands in order, on one thread, with faults that end it.
//!
//! 1. `push` appends a command and wakes the thread if it sleeps; it never waits for compute.
//! 2. The thread takes all that is there and executes it in order.
//! 3. A command that panics faults the queue: later ones are dropped unexecuted, tickets say why.
//! 4. When the last backend handle goes, what is queued still runs, then the thread ends.

use super::isa::Isa;
use super::memory::CpuBuffer;
use super::threads::{CpuThreads, Spin};
use super::ticket::{CpuTicket, TicketState};
use crate::buffer::Ticket as _;
use crate::error::ComputeError;
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, JoinHandle};

/// Commands that may wait. A step is some hundreds, so this is a hundred steps without a wait.
const COMMANDS_MAX: usize = 65_536;

/// Handle to the queue thread; the thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What a command runs with.
pub(super) struct Exec<'a> {
    pub(super) threads: &'a CpuThreads,
    pub(super) isa: Isa,
}

/// About a microsecond of simple work: below it, handing out costs more than it saves.
const WORK_PER_TASK: usize = 16_384;
/// Tasks per thread of evenly divided rows, so that a late thread leaves some to the others.
const TASKS_PER_THREAD: usize = 4;

enum Command {
    Op {
        name: &'static str,
        run: Box<dyn FnOnce(&Exec<'_>) + Send>,
    },
    /// Answered even after a fault.
    Read {
        src: Option<CpuBuffer>,
        ticket: Arc<TicketState>,
    },
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// Set by `push`, looked at while spinning.
    has_more: AtomicBool,
    fault: OnceLock<ComputeError>,
}

#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    asleep: bool,
    closed: bool,
}

// === impl Queue ===

impl Queue {
    /// Starts the queue thread and its pool of `threads` (the queue thread among them).
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(threads: usize, isa: Isa) -> Result<Self, ComputeError> {
        let shared = Arc::new(Shared::default());
        let (started_tx, started_rx) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let name = "pd-queue";
        let not_started = |reason: String| ComputeError::ThreadStart {
            name: name.into(),
            reason,
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || match CpuThreads::start(threads) {
                Ok(threads) => {
                    // The starter waits for this message before it does anything else.
                    drop(started_tx.send(Ok(())));
                    theirs.work(&Exec {
                        threads: &threads,
                        isa,
                    });
                }
                Err(e) => drop(started_tx.send(Err(e))),
            })
            .map_err(|e| not_started(e.to_string()))?;
        started_rx
            .recv()
            .map_err(|e| not_started(e.to_string()))??;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(super) fn push(&self, name: &'static str, run: impl FnOnce(&Exec<'_>) + Send + 'static) {
        self.shared.push(Command::Op {
            name,
            run: Box::new(run),
        });
    }

    /// Runs `f` on the queue thread and waits for its result.
    ///
    /// # Errors
    /// The fault that kept `f` from running or that it caused.
    pub(super) fn run_scoped<R: Send>(
        &self,
        name: &'static str,
        f: impl FnOnce(&Exec<'_>) -> R + Send,
    ) -> Result<R, ComputeError> {
        let mut result = None;
        {
            let place = &mut result;
            let run: Box<dyn FnOnce(&Exec<'_>) + Send + '_> =
                Box::new(move |exec| *place = Some(f(exec)));
            // SAFETY: erases the lifetime of what `f` borrows. The command is executed or dropped
            // before the ticket behind it is complete, and this function returns only then.
            let run: Box<dyn FnOnce(&Exec<'_>) + Send + 'static> =
                unsafe { std::mem::transmute(run) };
            self.shared.push(Command::Op { name, run });
            self.read(None).wait()?;
        }
        Ok(result.expect("a command that ran without a fault has left its result"))
    }

    /// A ticket for the bytes of `src` as they are when the queue gets there.
    pub(super) fn read(&self, src: Option<CpuBuffer>) -> CpuTicket {
        let ticket = Arc::new(TicketState::default());
        self.shared.push(Command::Read {
            src,
            ticket: Arc::clone(&ticket),
        });
        CpuTicket::new(ticket)
    }

    pub(super) fn health(&self) -> Result<(), ComputeError> {
        self.shared
            .fault
            .get()
            .map_or(Ok(()), |fault| Err(fault.clone()))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.waiting.lock().closed = true;
        self.shared.has_more.store(true, Ordering::Release);
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // Commands are caught, so the thread has no panic to report.
            drop(thread.join());
        }
    }
}

// === impl Exec ===

impl Exec<'_> {
    /// Divides `rows` of about `row_work` simple element operations each among the pool.
    pub(super) fn run_rows(&self, rows: usize, row_work: usize, f: impl Fn(Range<usize>) + Sync) {
        let worthwhile = rows.saturating_mul(row_work) / WORK_PER_TASK;
        let tasks = worthwhile
            .clamp(1, self.threads.count() * TASKS_PER_THREAD)
            .min(rows);
        self.threads
            .run(tasks, |i, _| f(rows * i / tasks..rows * (i + 1) / tasks));
    }
}

// === impl Shared ===

impl Shared {
    fn push(&self, command: Command) {
        let mut waiting = self.waiting.lock();
        if waiting.commands.len() >= COMMANDS_MAX {
            self.fault(ComputeError::QueueFull {
                limit: COMMANDS_MAX,
            });
            if let Command::Read { ticket, .. } = command {
                ticket.complete(Err(ComputeError::QueueFull {
                    limit: COMMANDS_MAX,
                }));
            }
            return;
        }
        waiting.commands.push_back(command);
        let asleep = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        self.has_more.store(true, Ordering::Release);
        if asleep {
            self.wake.notify_one();
        }
    }

    fn work(&self, exec: &Exec<'_>) {
        let mut batch = VecDeque::new();
        while self.take_all(&mut batch) {
            for command in batch.drain(..) {
                self.execute(command, exec);
            }
        }
    }

    /// Swaps the waiting commands into the empty `batch`; false when there will be no more.
    fn take_all(&self, batch: &mut VecDeque<Command>) -> bool {
        let mut spin = Spin::start();
        while !self.has_more.load(Ordering::Acquire) {
            if !spin.once() {
                break;
            }
        }
        let mut waiting = self.waiting.lock();
        while waiting.commands.is_empty() {
            if waiting.closed {
                return false;
            }
            waiting.asleep = true;
            self.wake.wait(&mut waiting);
        }
        waiting.asleep = false;
        self.has_more.store(false, Ordering::Relaxed);
        std::mem::swap(&mut waiting.commands, batch);
        true
    }

    fn execute(&self, command: Command, exec: &Exec<'_>) {
        match command {
            Command::Op { name, run } => {
                if self.fault.get().is_none()
                    && let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(exec)))
                {
                    let message = panic_message(panic.as_ref());
                    tracing::error!(op = name, message, "compute queue faulted");
                    self.fault(ComputeError::DeviceFault { op: name, message });
                }
            }
            Command::Read { src, ticket } => {
                let result = match self.fault.get() {
                    Some(fault) => Err(fault.clone()),
                    None => Ok(src.map(|src| src.to_host()).unwrap_or_default()),
                };
                ticket.complete(result);
            }
        }
    }

    /// Keeps the first fault.
    fn fault(&self, fault: ComputeError) {
        self.fault.get_or_init(|| fault);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(message) = panic.downcast_ref::<String>() {
        message.clone()
    } else if let Some(message) = panic.downcast_ref::<&str>() {
        (*message).to_owned()
    } else {
        "panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests;
