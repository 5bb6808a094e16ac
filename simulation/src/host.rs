//! A host: a tokio runtime of its own, on one thread with all others, whose clock stands still unless the world lets it
//! run. Its software is the product's, started as often as the host boots.
//!
//! A runtime per host, because a process that dies takes all its tasks with it, wherever they were spawned.

use crate::libc;
use crate::network::{HostId, HostNetwork, Network, State};
use futures_util::future::BoxFuture;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};
use tokio_util::sync::CancellationToken;

/// Starts a host's software, which ends when it is asked to, if it heeds that. With it ends its process.
pub(crate) type Software = Box<dyn Fn(CancellationToken) -> BoxFuture<'static, ()>>;

pub(crate) struct Host {
    id: HostId,
    network: Arc<Network>,
    software: Software,
    running: Option<Running>,
    /// Until then it does not run.
    frozen_until: Option<Duration>,
    /// By how many milliseconds its wall clock is off.
    pub(crate) skew_ms: i64,
    /// It boots again as soon as its process has ended.
    restarts: bool,
}

struct Running {
    runtime: Runtime,
    software: JoinHandle<()>,
    ends: CancellationToken,
    clock: Clock,
    /// It has run so far.
    until: Duration,
}

/// How a runtime's clock relates to the world's.
#[derive(Clone, Copy)]
struct Clock {
    booted_at: Duration,
    base: Instant,
}

thread_local! {
    /// The clock of the host that runs.
    static CLOCK: Cell<Option<Clock>> = const { Cell::new(None) };
}

/// The time of the host that runs, or of the last delivery.
pub(crate) fn now(state: &State) -> Duration {
    CLOCK.get().map_or(state.now, |clock| {
        clock.booted_at + Instant::now().duration_since(clock.base)
    })
}

// === impl Host ===

impl Host {
    pub(crate) fn new(network: &Arc<Network>, software: Software) -> Self {
        Self {
            id: network.add(),
            network: Arc::clone(network),
            software,
            running: None,
            frozen_until: None,
            skew_ms: 0,
            restarts: false,
        }
    }

    pub(crate) fn id(&self) -> HostId {
        self.id
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen_until.is_some()
    }

    /// Starts the software, unless it runs.
    pub(crate) fn boot(&mut self, now: Duration) {
        if self.is_running() {
            return;
        }
        {
            let state = &mut *self.network.state.lock();
            let nic = &mut state.hosts[self.id.0];
            nic.boots += 1;
            nic.off_since = None;
        }
        self.frozen_until = None;
        self.restarts = false;
        libc::set_now(now, self.skew_ms);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O starts");
        let base = runtime.block_on(async { Instant::now() });
        let ends = CancellationToken::new();
        let software = runtime.spawn((self.software)(ends.clone()));
        let clock = Clock {
            booted_at: now,
            base,
        };
        self.running = Some(Running {
            runtime,
            software,
            ends,
            clock,
            until: now,
        });
    }

    /// Kills the process: its connections close.
    pub(crate) fn kill(&mut self) {
        // What is dropped may open or close sockets.
        let _entered = self.enter();
        self.running = None;
    }

    /// Takes the power away: its peers hear nothing.
    pub(crate) fn power_off(&mut self, now: Duration) {
        {
            let off = &mut self.network.state.lock().hosts[self.id.0].off_since;
            off.get_or_insert(now);
        }
        self.kill();
    }

    /// Asks the process to end, as SIGTERM does.
    pub(crate) fn terminate(&mut self) {
        // Tasks that are woken may be dropped.
        let _entered = self.enter();
        if let Some(running) = &self.running {
            running.ends.cancel();
        }
    }

    /// Starts what has ended, or will have.
    pub(crate) fn restart(&mut self, now: Duration) {
        match &self.running {
            Some(running) => self.restarts = running.ends.is_cancelled(),
            None => self.boot(now),
        }
    }

    /// The process runs on at `until`, and finds that time has passed.
    pub(crate) fn freeze(&mut self, until: Duration) {
        self.frozen_until = Some(until);
    }

    fn enter(&self) -> pd_net::simulation::Entered {
        pd_net::simulation::enter(Arc::new(HostNetwork {
            network: Arc::clone(&self.network),
            host: self.id,
        }))
    }

    /// Does something at once in its process, if that runs.
    pub(crate) fn act(&mut self, now: Duration, act: impl FnOnce()) {
        let _entered = self.enter();
        if let Some(running) = &self.running {
            libc::set_now(now, self.skew_ms);
            let _guard = running.runtime.enter();
            act();
        }
    }

    /// Runs its tasks until `to`.
    pub(crate) fn run(&mut self, to: Duration) {
        if self.frozen_until.is_some_and(|thaw| to < thaw) {
            return;
        }
        let _entered = self.enter();
        let Some(running) = &mut self.running else {
            return;
        };
        if to <= running.until {
            return;
        }
        libc::set_now(to, self.skew_ms);
        let clock = running.clock;
        CLOCK.set(Some(clock));
        let slept = running.until;
        let thawed = self.frozen_until.take();
        running.runtime.block_on(async {
            if let Some(thaw) = thawed.filter(|thaw| *thaw > slept) {
                advance(thaw - slept).await;
            }
            sleep_until(clock.base + (to - clock.booted_at)).await;
        });
        CLOCK.set(None);
        running.until = to;
        if running.software.is_finished() {
            self.running = None;
            if self.restarts {
                self.boot(to);
            }
        }
    }
}
