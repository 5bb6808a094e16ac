//! The mark that every process of a cluster carries in its environment. It outlives whoever started
//! the process, so that a cluster can be ended by its name alone.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;

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

/// Sends SIGKILL to every process that carries the mark, and says how many there were.
pub(super) fn kill(id: &str) -> usize {
    let pids = processes(id);
    for &pid in &pids {
        // One that has just ended needs no signal.
        let _ = kill_process(pid, Signal::KILL);
    }
    pids.len()
}
