//! The mark that every process of a cluster carries in its environment. It outlives the process that started
//! the process, so that a cluster can be ended by its name alone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::OwnedFd;

/// Holds the cluster's id.
pub(super) const VARIABLE: &str = "PDSERVE_KUBE_CLUSTER";

/// Processes that carry the mark of cluster `id`. Zombies have no environment left and do not count.
pub(super) fn processes(id: &str) -> Vec<Pid> {
    let mark = format!("{VARIABLE}={id}").into_bytes();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&b| b == 0).any(|entry| entry == mark)
    })
    .filter_map(Pid::from_raw)
    .collect()
}

/// A process that was signalled to end.
#[derive(Debug)]
pub(super) struct Killed {
    handle: OwnedFd,
}

/// Sends SIGKILL to every process that carries the mark. One that has just ended needs no signal.
pub(super) fn kill(id: &str) -> Vec<Killed> {
    let pids = processes(id).into_iter();
    let killed = pids.filter_map(|pid| {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        pidfd_send_signal(&handle, Signal::KILL).ok()?;
        Some(Killed { handle })
    });
    killed.collect()
}

// === impl Killed ===

impl Killed {
    /// Whether nothing of it is left but what its parent has to collect. It loses its mark before,
    /// with its memory, while its files and namespaces are still being closed.
    pub(super) fn has_ended(&self) -> bool {
        let mut handles = [PollFd::new(&self.handle, PollFlags::IN)];
        let at_once = Timespec::default();
        matches!(poll(&mut handles, Some(&at_once)), Ok(ready) if ready > 0)
    }
}
