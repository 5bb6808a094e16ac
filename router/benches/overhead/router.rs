//! The router as a process of its own, on core 0: the binary that `PD_ROUTER` names, or the one
//! built with this benchmark, in which tokio has the features of tests.

use crate::worker::Worker;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct RouterProcess {
    pub(crate) addr: SocketAddr,
    child: Child,
}

impl RouterProcess {
    /// Starts it and waits until it is ready.
    pub(crate) async fn start(workers: &[Worker]) -> Self {
        let addr = free_addr().await;
        let admin = free_addr().await;
        let mut command = Command::new("taskset");
        let binary = std::env::var("PD_ROUTER");
        let binary = binary.unwrap_or_else(|_| env!("CARGO_BIN_EXE_pd-router").to_owned());
        command.args(["-c", "0", &binary]);
        command.args(["--host", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.args(["--admin-port", &admin.port().to_string()]);
        command.args(["--log-level", "error", "--policy", "round_robin"]);
        for worker in workers {
            command.args([
                format!("--{}", worker.role),
                format!("http://{}", worker.addr),
            ]);
        }
        let child = command.spawn().expect("taskset (util-linux) starts");
        let router = Self { addr, child };
        while !router.is_ready().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        router
    }

    async fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.addr).await else {
            return false;
        };
        let request = b"GET /ready HTTP/1.1\r\nhost: router\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.starts_with("HTTP/1.1 200")
    }

    /// CPU time of all its threads.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of_task = |task: std::fs::DirEntry| -> Option<u64> {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        Duration::from_nanos(tasks.flatten().filter_map(of_task).sum())
    }

    pub(crate) fn rss_mib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or_default() / 1024
    }
}

impl Drop for RouterProcess {
    fn drop(&mut self) {
        // It holds nothing worth a graceful end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn free_addr() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
