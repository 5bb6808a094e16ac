//! One program of the cluster: started in its place with its log in a file, killed, started again.

use crate::kube::mark;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of a log that a failure shows.
const LOG_LINES_SHOWN: usize = 30;

/// Whose namespaces a program runs in. Processes hold them, so they end with those.
#[derive(Clone, Copy, Debug)]
pub enum NamespaceScope {
    /// This machine's own.
    Host,
    /// The network of this process.
    Network(Pid),
    /// Network, mounts and processes of this one.
    Node(Pid),
}

/// What all programs of a cluster have in common.
#[derive(Clone, Debug)]
pub struct Site {
    pub id: String,
    pub dir: PathBuf,
    pub tools: PathBuf,
}

/// A running program.
pub struct Daemon {
    name: String,
    site: Site,
    place: NamespaceScope,
    command: Vec<String>,
    child: Child,
}

// === impl NamespaceScope ===

impl NamespaceScope {
    /// What stands before a command so that it runs there. Not `ip netns exec`: that mounts a new /sys,
    /// in which kubelet finds no cgroups.
    fn prefix(self) -> Vec<String> {
        let entering = |pid: Pid, namespaces: &[&str]| {
            let mut words = vec![
                "nsenter".to_owned(),
                format!("--target={}", pid.as_raw_nonzero()),
            ];
            words.extend(namespaces.iter().map(|&n| n.to_owned()));
            words
        };
        match self {
            Self::Host => Vec::new(),
            Self::Network(pid) => entering(pid, &["--net"]),
            Self::Node(pid) => entering(pid, &["--net", "--mount", "--pid"]),
        }
    }
}

// === impl Site ===

impl Site {
    /// A command that runs in `place` and carries the cluster's mark.
    pub fn command(&self, place: NamespaceScope, words: &[String]) -> Command {
        let mut line = place.prefix();
        line.extend_from_slice(words);
        let mut command = Command::new(&line[0]);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(&line[1..])
            .env_clear()
            .env(
                "PATH",
                format!("{}:{path}:/usr/sbin:/sbin", self.tools.display()),
            )
            .env(mark::VARIABLE, &self.id)
            .current_dir("/")
            .stdin(Stdio::null())
            // Ctrl-C ends the owner, and the guard then ends the rest.
            .process_group(0);
        command
    }

    /// Runs `words` in `place` to the end.
    ///
    /// # Errors
    /// When it fails; the error carries what it said.
    pub fn run(&self, place: NamespaceScope, words: &[&str]) -> Result<String> {
        self.run_with_stdin(place, words, Stdio::null())
    }

    /// As [`Site::run`], with a file as standard input.
    ///
    /// # Errors
    /// When it fails; the error carries what it said.
    pub fn run_with_stdin(
        &self,
        place: NamespaceScope,
        words: &[&str],
        stdin: Stdio,
    ) -> Result<String> {
        let words: Vec<String> = words.iter().map(|&w| w.to_owned()).collect();
        let output = self.command(place, &words).stdin(stdin).output();
        let output = output.with_context(|| format!("start {}", words[0]))?;
        ensure!(
            output.status.success(),
            "`{}` ended with {}: {}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A built program of the cluster.
    pub fn tool(&self, name: &str) -> String {
        self.tools.join(name).display().to_string()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }
}

// === impl Daemon ===

impl Daemon {
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        site: &Site,
        place: NamespaceScope,
        name: &str,
        command: Vec<String>,
    ) -> Result<Self> {
        Self::spawn_with_stdin(site, place, name, command, Stdio::null())
    }

    /// As [`Daemon::spawn`], with a file or socket as standard input.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_with_stdin(
        site: &Site,
        place: NamespaceScope,
        name: &str,
        command: Vec<String>,
        stdin: Stdio,
    ) -> Result<Self> {
        let child = start(site, place, name, &command, stdin)?;
        Ok(Self {
            name: name.to_owned(),
            site: site.clone(),
            place,
            command,
            child,
        })
    }

    /// The program itself. `nsenter` stands between when it entered a process namespace.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pid(&self) -> Result<Pid> {
        let child = Pid::from_child(&self.child);
        match self.place {
            NamespaceScope::Host | NamespaceScope::Network(_) => Ok(child),
            NamespaceScope::Node(_) => {
                first_child(child).with_context(|| format!("{} has ended", self.name))
            }
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn kill(&mut self) -> Result<()> {
        kill_process(self.pid()?, Signal::KILL).with_context(|| format!("kill {}", self.name))?;
        self.child
            .wait()
            .with_context(|| format!("wait for {}", self.name))?;
        Ok(())
    }

    /// Starts it again after it ended, as it was started the first time.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_some(), "{} still runs", self.name);
        self.child = start(
            &self.site,
            self.place,
            &self.name,
            &self.command,
            Stdio::null(),
        )?;
        Ok(())
    }

    /// Fails with the end of its log when it has ended.
    ///
    /// # Errors
    /// When it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended ({status}); its log ends:\n{}",
                self.name,
                self.log_end()
            ),
        }
    }

    /// Collects the ended program; nothing but its status is left of it.
    pub(super) fn reap(&mut self) {
        // It was killed by its mark; an error says that it was collected before.
        let _ = self.child.wait();
    }

    pub fn log_end(&self) -> String {
        let text = fs::read(self.site.log(&self.name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

fn start(
    site: &Site,
    place: NamespaceScope,
    name: &str,
    command: &[String],
    stdin: Stdio,
) -> Result<Child> {
    let path = site.log(name);
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).context("make the folder of logs")?;
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.with_context(|| format!("open {}", path.display()))?;
    site.command(place, command)
        .stdin(stdin)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {name}"))
}

/// A process whose parent is `parent`.
pub fn first_child(parent: Pid) -> Option<Pid> {
    let entries = fs::read_dir("/proc").ok()?;
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Field 4, the second behind the command's closing bracket.
        let found = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1));
        found.and_then(|ppid| ppid.parse().ok()) == Some(parent.as_raw_nonzero().get())
    };
    pids.find(is_child).and_then(Pid::from_raw)
}
