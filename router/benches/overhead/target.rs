//! What the clients talk to: a router in a process of its own, on core 0, or the workers alone.

use crate::worker::Worker;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A router that is not ready after this long is not measured.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) via: Via,
    /// `None`: the workers alone.
    process: Option<Child>,
}

/// Where requests are sent.
#[derive(Clone)]
pub(crate) enum Via {
    Router(SocketAddr),
    Workers {
        prefill: Vec<SocketAddr>,
        decode: Vec<SocketAddr>,
    },
}

// === impl Target ===

impl Target {
    /// No router: each client asks a prefill and a decode worker itself.
    pub(crate) fn workers(workers: &[Worker]) -> Self {
        let pool = |role: &str| {
            let members = workers.iter().filter(|worker| worker.role == role);
            members.map(|worker| worker.addr).collect()
        };
        Self {
            name: "no router".to_owned(),
            via: Via::Workers {
                prefill: pool("prefill"),
                decode: pool("decode"),
            },
            process: None,
        }
    }

    pub(crate) async fn pd_router(name: &str, binary: &str, workers: &[Worker]) -> Self {
        let admin_port = free_port().await.to_string();
        let mut command = on_core_0(binary);
        command.args(["--admin-port", &admin_port, "--log-level", "error"]);
        for worker in workers {
            let url = format!("http://{}", worker.addr);
            command.args([format!("--{}", worker.role), url]);
        }
        Self::start(name, command)
            .await
            .unwrap_or_else(|reason| panic!("{name}: {reason}"))
    }

    /// Starts a router with the flags that all of them share, and waits until it serves.
    ///
    /// # Errors
    /// What keeps it from serving.
    pub(crate) async fn start(name: &str, mut command: Command) -> Result<Self, String> {
        let port = free_port().await;
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--policy", "round_robin"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let mut target = Self {
            name: name.to_owned(),
            via: Via::Router(addr),
            process: Some(child),
        };
        let started = Instant::now();
        while !serves(addr).await {
            if let Some(Ok(Some(status))) = target.process.as_mut().map(Child::try_wait) {
                return Err(format!("it ended with {status}"));
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(format!("it serves nothing after {START_TIMEOUT:?}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(target)
    }

    /// CPU time of all its threads.
    pub(crate) fn cpu(&self) -> Duration {
        let Some(process) = &self.process else {
            return Duration::ZERO;
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
        let of_task = |task: std::fs::DirEntry| -> Option<u64> {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        Duration::from_nanos(tasks.flatten().filter_map(of_task).sum())
    }

    pub(crate) fn rss_mib(&self) -> u64 {
        let Some(process) = &self.process else {
            return 0;
        };
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or_default() / 1024
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It holds nothing worth a graceful end.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

// === impl Via ===

impl Via {
    /// Who answers client `client_idx`.
    pub(crate) fn asked(&self, client_idx: usize) -> SocketAddr {
        match self {
            Self::Router(addr) => *addr,
            Self::Workers { decode, .. } => decode[client_idx % decode.len()],
        }
    }

    /// Whom the client asks too.
    pub(crate) fn other(&self, client_idx: usize) -> Option<SocketAddr> {
        match self {
            Self::Router(_) => None,
            Self::Workers { prefill, .. } => Some(prefill[client_idx % prefill.len()]),
        }
    }
}

/// `taskset` becomes the program, so its process is the program's.
pub(crate) fn on_core_0(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", program]);
    command
}

pub(crate) async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

async fn serves(addr: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(addr).await else {
        return false;
    };
    let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
