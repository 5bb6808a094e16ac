//! `Site`: the device that is tried, the models, and how an agent is started on it.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use pd_e2e::address;
use pd_e2e::client::Client;
use pd_e2e::fleet::{FleetSpec, Worker, eventually, wait_healthy, words};
use pd_protocol::Role;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

/// The programs whose bytes make a build; gpu-proof is not there where there are no kernels.
const PROGRAMS: [&str; 4] = ["gpu-agents", "gpu-proof", "pd-agent", "pd-router"];
pub(crate) const TINY_LLAMA: &str = "tiny-llama";
pub(crate) const TINY_QWEN3: &str = "tiny-qwen3";
/// Windows.
pub(crate) const TINY_GEMMA3: &str = "tiny-gemma3";
/// Windows, sinks, and experts in MXFP4.
pub(crate) const TINY_GPT_OSS: &str = "tiny-gpt-oss-mxfp4";
/// Recurrent states, experts and a draft layer.
pub(crate) const TINY_QWEN3_5_MOE: &str = "tiny-qwen3-5-moe";
/// Latents, experts and a draft layer.
pub(crate) const TINY_DEEPSEEK_V3: &str = "tiny-deepseek-v3";
/// Tokens of every agent's KV pool: enough for all requests of a part at once, so that several agents
/// fit on one device.
const POOL_TOKENS: u32 = 65_536;
/// What a process wrote before it ended is read within this.
const LOG_LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    Cpu,
    Cuda,
}

pub(crate) struct Site {
    pub(crate) device: Device,
    models: PathBuf,
}

/// How the first agent ended.
pub(crate) enum Start {
    /// In the agent's words.
    Serves { device: String },
    /// In the agent's words.
    NoGpu { why: String },
}

// === impl Device ===

impl Device {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

// === impl Site ===

impl Site {
    /// # Errors
    /// When the models are not there.
    pub(crate) fn new(device: Device, models: Option<PathBuf>) -> Result<Self> {
        let models = match models {
            Some(models) => models,
            None => std::env::current_exe()?.with_file_name("models"),
        };
        let config = models.join(TINY_LLAMA).join("config.json");
        ensure!(
            config.is_file(),
            "no {}; name the folder by --models",
            config.display()
        );
        Ok(Self { device, models })
    }

    /// Another one when a byte of a program beside this one is another.
    ///
    /// # Errors
    /// When this program does not know where it lies.
    pub(crate) fn build() -> Result<String> {
        let me = std::env::current_exe()?;
        let mut hasher = DefaultHasher::new();
        for program in PROGRAMS {
            std::fs::read(me.with_file_name(program))
                .ok()
                .hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Agents of `model` on the site's device.
    pub(crate) fn spec(&self, model: &str, flags: &str) -> FleetSpec {
        self.spec_on(self.device, model, flags)
    }

    pub(crate) fn spec_on(&self, device: Device, model: &str, flags: &str) -> FleetSpec {
        let mut spec = FleetSpec::new(self.models.join(model));
        spec.agent_args = words(&format!(
            "--device {} --max-total-tokens {POOL_TOKENS} {flags}",
            device.flag()
        ));
        spec
    }

    /// One unified agent.
    ///
    /// # Errors
    /// When it does not become healthy.
    pub(crate) async fn alone(&self, model: &str, flags: &str) -> Result<Worker> {
        let spec = self.spec(model, flags);
        spec.start_worker(Role::Unified, address::fresh()).await
    }

    /// Starts an agent and ends it, for what it says of the device.
    ///
    /// # Errors
    /// When it does not start for another reason than the device.
    pub(crate) async fn start(&self) -> Result<Start> {
        let mut agent = self
            .spec(TINY_LLAMA, "")
            .spawn_worker(Role::Unified, address::fresh())?;
        let (url, client) = (agent.url(), Client::new());
        let healthy = wait_healthy(&client, &url, "/health", &mut agent.process).await;
        let mark = match healthy {
            Ok(()) if self.device == Device::Cuda => "device: ",
            Ok(()) => {
                return Ok(Start::Serves {
                    device: "CPUs of this machine".to_owned(),
                });
            }
            Err(_) => "--device cuda: ",
        };
        let said = || {
            let log = agent.process.log();
            let line = log.lines().find_map(|line| line.split_once(mark));
            line.map(|(_, said)| said.to_owned())
        };
        let found = eventually(LOG_LIMIT, async || {
            said()
                .map(drop)
                .context("the agent does not speak of its device")
        });
        match (found.await.ok().and_then(|()| said()), healthy) {
            (Some(device), Ok(())) => Ok(Start::Serves { device }),
            (Some(why), Err(_)) => Ok(Start::NoGpu {
                why: format!("{mark}{why}"),
            }),
            (None, Ok(())) => Ok(Start::Serves {
                device: "a GPU".to_owned(),
            }),
            (None, Err(why)) => Err(why),
        }
    }
}
