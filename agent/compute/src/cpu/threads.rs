//! The fixed pool behind the queue thread, which is worker 0 of it.
//!
//! A job is a closure over task indices; workers join while it is open and take indices from a
//! counter. The runner never waits for a worker that has not joined, so a sleeping or preempted
//! worker costs nothing. Workers spin [`SPIN_MAX`] between jobs, then park: several processes may
//! share the cores.

use crate::error::ComputeError;
use parking_lot::Mutex;
use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// About twice what parking and waking costs, so a gap between two ops of a step is bridged.
const SPIN_MAX: Duration = Duration::from_micros(20);
/// Spins between two looks at the clock, which takes longer than one at the gate.
const SPINS_PER_LOOK: u32 = 32;

/// Workers inside the job; the runner's wish to be woken; open for joining; job number above.
const ACTIVE: u64 = (1 << 30) - 1;
const RUNNER_PARKED: u64 = 1 << 30;
const OPEN: u64 = 1 << 31;
const EPOCH: u64 = 1 << 32;

/// Runs jobs from the thread that made it, hence not `Send`.
#[derive(Debug)]
pub(crate) struct CpuThreads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    not_send: PhantomData<*const ()>,
}

struct Shared {
    gate: AtomicU64,
    job: UnsafeCell<Job>,
    next_task: AtomicUsize,
    stop: AtomicBool,
    runner: Thread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// `f(task, worker)` for every task below `tasks`; the pointer is valid while the gate is open or
/// a worker is inside.
#[derive(Clone, Copy)]
struct Job {
    f: *const (dyn Fn(usize, usize) + Sync),
    tasks: usize,
}

// SAFETY: `job` is written only by the runner while the gate is closed and no thread is inside, and
// read only by workers that joined through the gate, which orders the two.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is to a `Sync` closure and used only as above.
unsafe impl Send for Shared {}

// === impl CpuThreads ===

impl CpuThreads {
    /// Starts `count - 1` workers beside the calling thread.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(count: usize) -> Result<Self, ComputeError> {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(Job {
                f: &|_, _| (),
                tasks: 0,
            }),
            next_task: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            runner: thread::current(),
            panic: Mutex::new(None),
        });
        let mut threads = Self {
            shared,
            workers: Vec::new(),
            not_send: PhantomData,
        };
        for worker in 1..count {
            let name = format!("pd-cpu-{worker}");
            let shared = Arc::clone(&threads.shared);
            let handle = thread::Builder::new()
                .name(name.clone())
                .spawn(move || shared.work(worker))
                .map_err(|e| ComputeError::ThreadStart {
                    name,
                    reason: e.to_string(),
                })?;
            threads.workers.push(handle);
        }
        Ok(threads)
    }

    pub(crate) fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(task, worker)` once for every task, on this thread and the workers, and returns
    /// when all are done. A panic in any of them continues here, after the others have ended.
    pub(crate) fn run<F: Fn(usize, usize) + Sync>(&self, tasks: usize, f: F) {
        if tasks <= 1 || self.workers.is_empty() {
            for task in 0..tasks {
                f(task, 0);
            }
            return;
        }
        let f: &(dyn Fn(usize, usize) + Sync) = &f;
        self.shared.open(f, tasks);
        for worker in self.workers.iter().take(tasks - 1) {
            worker.thread().unpark();
        }
        let mine = catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(f, tasks, 0)));
        self.shared.close();
        let theirs = self.shared.panic.lock().take();
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for CpuThreads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches its panics, so there is nothing to learn from its result.
            drop(worker.join());
        }
    }
}

// === impl Shared ===

impl Shared {
    fn open(&self, f: &(dyn Fn(usize, usize) + Sync), tasks: usize) {
        // SAFETY: erases the closure's lifetime; `close` waits for every worker that joined, and
        // runs before the closure ends.
        let f: *const (dyn Fn(usize, usize) + Sync) = unsafe { std::mem::transmute(f) };
        // SAFETY: the gate is closed and no thread is inside, so no one reads `job` now.
        unsafe { *self.job.get() = Job { f, tasks } };
        self.next_task.store(0, Ordering::Relaxed);
        let epoch = self.gate.load(Ordering::Relaxed) & !(EPOCH - 1);
        self.gate
            .store(epoch.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
    }

    /// Admits no more workers and waits for those inside.
    fn close(&self) {
        let mut gate = self.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spin = Spin::start();
        while gate & ACTIVE != 0 {
            if spin.once() {
                gate = self.gate.load(Ordering::Acquire);
            } else {
                gate = self.gate.fetch_or(RUNNER_PARKED, Ordering::AcqRel);
                if gate & ACTIVE != 0 {
                    thread::park();
                }
            }
        }
        self.gate.fetch_and(!RUNNER_PARKED, Ordering::Relaxed);
    }

    fn take_tasks(&self, f: &(dyn Fn(usize, usize) + Sync), tasks: usize, worker: usize) {
        loop {
            let task = self.next_task.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            f(task, worker);
        }
    }

    fn work(&self, worker: usize) {
        let mut seen = 0;
        while let Some(gate) = self.wait_for_job(seen) {
            seen = gate & !(EPOCH - 1);
            if self.join(seen) {
                // SAFETY: joined, so the job is in place and its closure outlives our stay.
                let Job { f, tasks } = unsafe { *self.job.get() };
                // SAFETY: as above.
                let f = unsafe { &*f };
                let done = catch_unwind(AssertUnwindSafe(|| self.take_tasks(f, tasks, worker)));
                if let Err(panic) = done {
                    self.panic.lock().get_or_insert(panic);
                }
                let before = self.gate.fetch_sub(1, Ordering::AcqRel);
                if before & ACTIVE == 1 && before & RUNNER_PARKED != 0 {
                    self.runner.unpark();
                }
            }
        }
    }

    /// The gate of a job other than `seen`, or `None` to stop.
    fn wait_for_job(&self, seen: u64) -> Option<u64> {
        let mut spin = Spin::start();
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            if gate & !(EPOCH - 1) != seen {
                return Some(gate);
            }
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if !spin.once() {
                thread::park();
            }
        }
    }

    /// Enters job `epoch` if it is still open.
    fn join(&self, epoch: u64) -> bool {
        let enter =
            |gate: u64| (gate & !(EPOCH - 1) == epoch && gate & OPEN != 0).then_some(gate + 1);
        self.gate
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .is_ok()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

/// Busy waiting with an end.
pub(super) struct Spin {
    start: Instant,
    count: u32,
}

// === impl Spin ===

impl Spin {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            count: 0,
        }
    }

    /// Spins once; false once [`SPIN_MAX`] is over.
    pub(super) fn once(&mut self) -> bool {
        std::hint::spin_loop();
        self.count += 1;
        !self.count.is_multiple_of(SPINS_PER_LOOK) || self.start.elapsed() < SPIN_MAX
    }
}

#[cfg(test)]
mod tests;
