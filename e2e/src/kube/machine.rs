//! What a node takes for a machine: namespaces of processes, mounts and network, held by one process.
//! When that ends the kernel ends everything in them, containers too.

use crate::kube::daemon::{Daemon, NamespaceScope, Site, first_child};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Folders of the machine that a node's programs write to, without flags that would keep them away.
/// What is written lands in the node's own folder.
const SHADOWED: &[&str] = &["/var/lib", "/var/log"];
/// Replaced by an empty one, in which sockets and namespaces lie.
const EMPTIED: &str = "/run";
/// Kernel settings that kubelet insists on. It finds them as it wants them, and leaves the machine's be.
const PINNED: &[(&str, &str)] = &[
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];
/// Lets another process find the node.
const PID_FILE: &str = "machine.pid";
const READY_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct Machine {
    holder: Daemon,
    place: NamespaceScope,
}

// === impl Machine ===

impl Machine {
    /// `dir` is the node's own folder.
    ///
    /// # Errors
    /// When the namespaces cannot be made.
    pub async fn start(site: &Site, name: &str, dir: &Path) -> Result<Self> {
        let ready = dir.join("ready");
        let mut command: Vec<String> = [
            "unshare",
            "--net",
            "--mount",
            "--propagation=private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-euc",
        ]
        .map(str::to_owned)
        .to_vec();
        command.push(script(dir, &ready));
        let mut holder = Daemon::spawn(
            site,
            NamespaceScope::Host,
            &format!("{name}/machine"),
            command,
        )?;
        let deadline = Instant::now() + READY_LIMIT;
        while !ready.is_file() {
            holder.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "{name} has no namespaces after {READY_LIMIT:?}"
            );
            sleep(POLL_INTERVAL).await;
        }
        let init = first_child(holder.pid()?).with_context(|| format!("{name} has ended"))?;
        fs::write(dir.join(PID_FILE), init.to_string())?;
        Ok(Self {
            holder,
            place: NamespaceScope::Node(init),
        })
    }

    pub fn place(&self) -> NamespaceScope {
        self.place
    }

    pub fn holder(&mut self) -> &mut Daemon {
        &mut self.holder
    }

    /// Ends every process of the node at once, as a power failure does.
    ///
    /// # Errors
    /// When it is off already.
    pub fn power_off(&mut self) -> Result<()> {
        let NamespaceScope::Node(init) = self.place else {
            anyhow::bail!("a machine has namespaces of its own");
        };
        kill_process(init, Signal::KILL).context("the machine is off already")?;
        self.holder.reap();
        Ok(())
    }
}

/// The place of the node whose folder is `dir`, from any process.
pub fn place_of(dir: &Path) -> Result<NamespaceScope> {
    let file = dir.join(PID_FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let pid = Pid::from_raw(text.parse()?).context("a pid is positive")?;
    Ok(NamespaceScope::Node(pid))
}

/// Whether a cluster's files cannot lie in `dir`, because a node sees something else there.
pub fn hides(dir: &Path) -> Option<&'static str> {
    let hidden = SHADOWED.iter().copied().chain([EMPTIED, "/var/run"]);
    hidden.into_iter().find(|folder| dir.starts_with(folder))
}

/// Run as process 1 of the node: it makes the mounts, then collects ended processes for good.
fn script(dir: &Path, ready: &Path) -> String {
    let mut lines = vec![
        // Within the node, kubelet and containers share mounts.
        "mount --make-rshared /".to_owned(),
        format!("mount -t tmpfs -o mode=755 tmpfs {EMPTIED}"),
        format!("mkdir {EMPTIED}/netns {EMPTIED}/lock"),
    ];
    for folder in SHADOWED {
        let own = dir
            .join("shadow")
            .join(folder.trim_start_matches('/').replace('/', "-"));
        let own = own.display();
        lines.push(format!("mkdir -p '{own}/upper' '{own}/work'"));
        lines.push(format!(
            "mount -t overlay -o 'lowerdir={folder},upperdir={own}/upper,workdir={own}/work' overlay {folder}"
        ));
    }
    for (key, value) in PINNED {
        let file = format!("{EMPTIED}/pinned-{}", key.replace('/', "-"));
        lines.push(format!("echo {value} > {file}"));
        lines.push(format!("mount --bind {file} /proc/sys/{key}"));
    }
    lines.push("ip link set lo up".to_owned());
    lines.push("echo 1 > /proc/sys/net/ipv4/ip_forward".to_owned());
    lines.push(format!("touch '{}'", ready.display()));
    lines.push("sleep infinity & wait".to_owned());
    lines.join("\n")
}
