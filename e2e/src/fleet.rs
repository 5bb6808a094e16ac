//! A router with its workers, started by flags, as SGLang's start scripts would.

use crate::address;
use crate::binaries::binary;
use crate::client::Client;
use crate::metrics::Metrics;
use crate::process::{LogTo, Process};
use anyhow::{Context, Result, bail, ensure};
use pd_protocol::Role;
use pd_protocol::ports;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// Admin token of every process of a test.
pub const ADMIN_TOKEN: &str = "test-admin-token";
/// Longest wait for a process to become healthy; a release agent on a tiny model needs 50 ms.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A router sends to workers that answer within this.
const SERVING_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two looks at a health endpoint.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What to start.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    pub model: PathBuf,
    pub prefill: usize,
    pub decode: usize,
    pub agent_args: Vec<String>,
    pub prefill_args: Vec<String>,
    pub decode_args: Vec<String>,
    pub router_args: Vec<String>,
    /// Where the router is to be; anywhere if absent.
    pub router_address: Option<Ipv4Addr>,
    /// Authority of the certificate that the router's flags name; plain HTTP if absent.
    pub router_authority: Option<PathBuf>,
    /// Of all processes, so that workers serve only each other and the router; none if absent.
    pub peer_keys: Option<PathBuf>,
    /// Program and flags that the agents run under, such as a sanitizer's; none if empty.
    pub agents_under: Vec<String>,
    /// Where all of them log.
    pub log_to: LogTo,
    /// Environment of the agents.
    pub env: Vec<(&'static str, String)>,
}

pub struct Worker {
    pub role: Role,
    pub address: Ipv4Addr,
    pub process: Process,
    /// Of its HTTP.
    pub scheme: &'static str,
}

pub struct Fleet {
    pub spec: FleetSpec,
    pub workers: Vec<Worker>,
    pub router: Process,
    pub router_address: Ipv4Addr,
    pub client: Client,
}

// === impl FleetSpec ===

impl FleetSpec {
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            prefill: 1,
            decode: 1,
            agent_args: Vec::new(),
            prefill_args: Vec::new(),
            decode_args: Vec::new(),
            router_args: Vec::new(),
            router_address: None,
            router_authority: None,
            peer_keys: None,
            agents_under: Vec::new(),
            log_to: LogTo::Memory,
            env: Vec::new(),
        }
    }

    /// Starts one agent and waits until it is healthy.
    ///
    /// # Errors
    /// When it exits or does not become healthy; the error carries its log.
    pub async fn start_worker(&self, role: Role, address: Ipv4Addr) -> Result<Worker> {
        let mut worker = self.spawn_worker(role, address)?;
        wait_healthy(
            &Client::new(),
            &worker.url(),
            "/health",
            &mut worker.process,
        )
        .await?;
        Ok(worker)
    }

    /// Starts one agent without waiting.
    ///
    /// # Errors
    /// When the binary cannot be started.
    pub fn spawn_worker(&self, role: Role, address: Ipv4Addr) -> Result<Worker> {
        let (mode, extra) = match role {
            Role::Prefill => ("prefill", &self.prefill_args),
            Role::Decode => ("decode", &self.decode_args),
            Role::Unified => ("null", &Vec::new()),
        };
        let mut args = strings(&[
            "--disaggregation-mode",
            mode,
            "--host",
            &address.to_string(),
        ]);
        args.extend(strings(&["--port", &ports::HTTP.to_string()]));
        args.extend(strings(&["--admin-port", &ports::ADMIN.to_string()]));
        args.extend(["--model-path".to_owned(), self.model.display().to_string()]);
        args.extend(self.agent_args.iter().chain(extra).cloned());
        args.extend(self.key_args());
        let mut env = vec![(pd_protocol::labels::ENV_ADMIN_TOKEN, ADMIN_TOKEN)];
        env.extend(self.env.iter().map(|(name, value)| (*name, value.as_str())));
        let mut program = binary("pd-agent");
        if let Some((under, flags)) = self.agents_under.split_first() {
            args.insert(0, program.display().to_string());
            args.splice(0..0, flags.iter().cloned());
            program = under.into();
        }
        let process = Process::spawn_logging(
            &format!("{mode}@{address}"),
            &program,
            &args,
            &env,
            self.log_to,
        )?;
        Ok(Worker {
            role,
            address,
            process,
            scheme: match self.peer_keys {
                Some(_) => "https",
                None => "http",
            },
        })
    }

    /// Starts the workers, then a router over them, and waits until it sends to all of them.
    ///
    /// # Errors
    /// When a process exits or does not become ready; the error carries its log.
    pub async fn start(self) -> Result<Fleet> {
        let roles = std::iter::repeat_n(Role::Prefill, self.prefill)
            .chain(std::iter::repeat_n(Role::Decode, self.decode));
        let spawned: Result<Vec<Worker>> = roles
            .map(|role| self.spawn_worker(role, address::fresh()))
            .collect();
        let mut workers = spawned?;
        let client = self.client()?;
        // With keys only the router can ask them.
        for worker in workers.iter_mut().filter(|_| self.peer_keys.is_none()) {
            let url = worker.url();
            wait_healthy(&client, &url, "/health", &mut worker.process).await?;
        }
        let router_address = self.router_address.unwrap_or_else(address::fresh);
        let router = self.start_router(&workers, router_address).await?;
        Ok(Fleet {
            spec: self,
            workers,
            router,
            router_address,
            client,
        })
    }

    /// # Errors
    /// When the router exits or does not send to all workers in time.
    pub async fn start_router(&self, workers: &[Worker], address: Ipv4Addr) -> Result<Process> {
        let mut args = strings(&["--pd-disaggregation", "--host", &address.to_string()]);
        args.extend(strings(&["--port", &ports::HTTP.to_string()]));
        args.extend(strings(&["--admin-port", &ports::ADMIN.to_string()]));
        for worker in workers {
            match worker.role {
                Role::Prefill => args.extend(strings(&[
                    "--prefill",
                    &worker.url(),
                    &ports::BOOTSTRAP.to_string(),
                ])),
                Role::Decode => args.extend(strings(&["--decode", &worker.url()])),
                Role::Unified => bail!("a unified worker has no place behind a PD router"),
            }
        }
        args.extend(self.router_args.iter().cloned());
        args.extend(self.key_args());
        let env = [(pd_protocol::labels::ENV_ADMIN_TOKEN, ADMIN_TOKEN)];
        let binary = binary("pd-router");
        let mut router = Process::spawn_logging("router", &binary, &args, &env, self.log_to)?;
        let url = self.router_url(address);
        let client = self.client()?;
        wait_healthy(&client, &url, "/ready", &mut router).await?;
        // Ready with one pair; a load that comes at once would miss the others.
        eventually(SERVING_WITHIN, || async {
            let serving = Metrics::scrape(&client, &url).await?;
            let serving = serving.sum("pd_router_worker_serving", &[]);
            ensure!(serving >= workers.len() as f64, "{serving} workers serve");
            Ok(())
        })
        .await
        .with_context(|| router.log())?;
        Ok(router)
    }

    fn key_args(&self) -> Vec<String> {
        let flag = |keys: &PathBuf| ["--peer-key-file".to_owned(), keys.display().to_string()];
        self.peer_keys.iter().flat_map(flag).collect()
    }

    fn router_url(&self, address: Ipv4Addr) -> String {
        let scheme = match self.router_authority {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{address}:{}", ports::HTTP)
    }

    fn client(&self) -> Result<Client> {
        match &self.router_authority {
            Some(authority) => Client::trusting(authority),
            None => Ok(Client::new()),
        }
    }
}

// === impl Worker ===

impl Worker {
    pub fn url(&self) -> String {
        format!("{}://{}:{}", self.scheme, self.address, ports::HTTP)
    }

    pub fn admin_url(&self) -> String {
        format!("http://{}:{}", self.address, ports::ADMIN)
    }
}

// === impl Fleet ===

impl Fleet {
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.spec.router_url(self.router_address))
    }

    pub fn worker(&self, role: Role) -> &Worker {
        self.workers
            .iter()
            .find(|w| w.role == role)
            .expect("a fleet has both roles")
    }

    pub fn worker_mut(&mut self, role: Role) -> &mut Worker {
        self.workers
            .iter_mut()
            .find(|w| w.role == role)
            .expect("a fleet has both roles")
    }

    /// The logs of all processes, for the message of a failing test.
    pub fn logs(&self) -> String {
        let workers = self.workers.iter().map(|w| &w.process);
        let all = workers.chain([&self.router]);
        all.map(|p| format!("--- {}\n{}\n", p.name, p.log()))
            .collect()
    }
}

/// Waits until `path` answers 200.
///
/// # Errors
/// When the process exits first, or the limit passes.
pub async fn wait_healthy(client: &Client, base: &str, path: &str, of: &mut Process) -> Result<()> {
    let url = format!("{base}{path}");
    let started = Instant::now();
    loop {
        of.check_alive()?;
        if client
            .get(&url)
            .await
            .is_ok_and(|answer| answer.status == 200)
        {
            return Ok(());
        }
        if started.elapsed() > START_LIMIT {
            bail!(
                "{url} is not 200 after {START_LIMIT:?}; log of {}:\n{}",
                of.name,
                of.log()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Polls `check` until it holds.
///
/// # Errors
/// When it does not hold within `limit`; carries the last refusal.
pub async fn eventually<F, Fut>(limit: Duration, mut check: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let started = Instant::now();
    loop {
        match check().await {
            Ok(()) => return Ok(()),
            Err(why) if started.elapsed() > limit => {
                return Err(why).with_context(|| format!("not true within {limit:?}"));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// The flags of a command line without quotes.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn strings(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}
