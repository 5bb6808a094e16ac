//! The attackers' threads. They would be on machines of their own, so here they get what the attacked and the other
//! clients leave of the cores.

use anyhow::{Context, Result};
use pd_e2e::attacks::{Attack, Extent, Outcomes, Target};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

/// Of the kernel's -20 to 19, the one that waits for all others.
const LAST_PRIORITY: i32 = 19;

static THREADS: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("attackers")
        .on_thread_start(step_back)
        .enable_all()
        .build()
        .expect("threads start")
});

/// Runs an attack, on those threads unless the attacker's own promptness is part of it: a stream whose client gets no
/// core is not left, and goes on to take more of them.
pub(crate) async fn attack(attack: Attack, target: Target, extent: Extent) -> Result<Outcomes> {
    if attack == Attack::AbandonedStreams {
        return attack.run(&target, extent).await;
    }
    run(async move { attack.run(&target, extent).await }).await
}

/// Runs what strangers do on those threads.
pub(crate) async fn run(
    attack: impl Future<Output = Result<Outcomes>> + Send + 'static,
) -> Result<Outcomes> {
    let attack = THREADS.spawn(attack);
    attack.await.context("the attack panicked")?
}

fn step_back() {
    let thread: Pid = gettid();
    setpriority_process(Some(thread), LAST_PRIORITY).expect("a thread may lower its own priority");
}
