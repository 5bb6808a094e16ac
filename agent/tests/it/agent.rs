//! One running agent: started on free ports, its log kept, killed when dropped.

use crate::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

/// A tiny model loads in far less; a busy machine may take its time.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Agent {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    pub(crate) http: String,
    pub(crate) admin: String,
    pub(crate) bootstrap_port: u16,
    pub(crate) client: Client,
    /// The log until the agent was ready.
    pub(crate) start_log: String,
}

/// A committed tiny random checkpoint.
pub(crate) fn tiny_model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("engine/golden/tiny-llama")
}

/// The agent's command line, without a model.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pd-agent"));
    command
        .args(args)
        .env_remove("PDSERVE_ADMIN_TOKEN")
        .env_remove("NVIDIA_VISIBLE_DEVICES")
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Agent {
    /// A unified agent that is ready.
    pub(crate) async fn start(args: &[&str]) -> Self {
        Self::start_with_env(args, &[]).await
    }

    /// As [`Self::start`], with environment variables.
    pub(crate) async fn start_with_env(args: &[&str], env: &[(&str, &str)]) -> Self {
        let model = tiny_model();
        let model = model.to_str().expect("the path is UTF-8");
        let mut all = vec!["--model-path", model, "--served-model-name", "tiny"];
        all.extend(["--port", "0", "--admin-port", "0", "--cpu-threads", "1"]);
        all.extend(["--dtype", "float32", "--max-total-tokens", "8192"]);
        all.extend(args);
        let mut child = command(&all).envs(env.iter().copied()).spawn().unwrap();
        let stderr = child.stderr.take().expect("stderr is piped");
        let mut agent = Self {
            child,
            log: BufReader::new(stderr).lines(),
            http: String::new(),
            admin: String::new(),
            bootstrap_port: 0,
            client: Client::new(),
            start_log: String::new(),
        };
        agent.wait_ready().await;
        agent
    }

    async fn wait_ready(&mut self) {
        let mut seen = Vec::new();
        loop {
            let line = timeout(START_LIMIT, self.log.next_line()).await;
            let line = line.expect("the agent starts in time").unwrap();
            let Some(line) = line else {
                panic!("the agent ended:\n{}", seen.join("\n"));
            };
            if let Some(address) = after(&line, "HTTP API on ") {
                self.http = format!("http://{address}");
            }
            if let Some(address) = after(&line, "admin API on ") {
                self.admin = format!("http://{address}");
            }
            if let Some(address) = after(&line, "bootstrap server on ") {
                let port = address.rsplit(':').next().expect("an address has a port");
                self.bootstrap_port = port.parse().expect("a port is a number");
            }
            let ready = line.contains("ready in ");
            seen.push(line);
            if ready {
                self.start_log = seen.join("\n");
                return;
            }
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.http)
    }

    pub(crate) fn admin_url(&self, path: &str) -> String {
        format!("{}{path}", self.admin)
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().expect("the agent runs");
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).expect("a pid is positive");
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for the exit that something else caused.
    pub(crate) async fn wait_exit(&mut self) -> ExitStatus {
        let exit = timeout(START_LIMIT, self.child.wait()).await;
        exit.expect("the agent ends in time").unwrap()
    }

    /// Peak memory of the process, as the kernel counts it.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let pid = self.child.id().expect("the agent runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kib.parse().expect("a size is a number")
    }

    /// Requests in the engine, as the admin API counts them.
    pub(crate) async fn in_flight(&self) -> u64 {
        let status = self.client.get(&self.admin_url("/drain")).await.json();
        status["in_flight"].as_u64().expect("in_flight is a number")
    }

    /// Waits until nothing is left in flight.
    pub(crate) async fn wait_idle(&self) {
        self.wait_in_flight(0).await;
    }

    /// Waits until `count` requests are in flight.
    pub(crate) async fn wait_in_flight(&self, count: u64) {
        let reached = async {
            while self.in_flight().await != count {
                tokio::task::yield_now().await;
            }
        };
        let reached = timeout(Duration::from_secs(10), reached).await;
        reached.unwrap_or_else(|_| panic!("the agent never had {count} requests in flight"));
    }
}

fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    line.split_once(words)?.1.split_whitespace().next()
}
