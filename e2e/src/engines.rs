//! The engines that a `PDDeployment` can name: what of it is theirs, and how each is started alone.

use crate::binaries;
use crate::process::Process;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the model for clients.
pub const MODEL: &str = "smollm2";

/// An engine on CPUs.
pub struct Engine {
    pub name: &'static str,
    /// The deployment of `examples/` that it computes for.
    example: Value,
    /// The program and the words before its flags, and the flag that names the model.
    command: Vec<String>,
    model_flag: &'static str,
    /// Environment of its processes.
    env: Vec<(&'static str, String)>,
    /// Which role counts the KV that moves, in which series, and the bytes of one of its units.
    pub kv_bytes: (&'static str, &'static str, f64),
    /// Bytes of a number of KV.
    pub kv_number_bytes: f64,
    /// From its processes' start until they serve.
    pub starts_within: Duration,
}

/// Where `scripts/engines.sh` put the engines and the model.
///
/// # Errors
/// Nothing names it.
pub fn folder() -> Result<PathBuf> {
    let folder = std::env::var("PDSERVE_ENGINES");
    let folder =
        folder.context("PDSERVE_ENGINES names the folder that `make e2e-engines` fills")?;
    Ok(folder.into())
}

/// The environment variable in front of which a folder is put.
fn before(name: &'static str, folder: &Path) -> (&'static str, String) {
    let rest = std::env::var(name).unwrap_or_default();
    (name, format!("{}:{rest}", folder.display()))
}

/// What a file of `examples/` says.
fn example(name: &str) -> Result<Value> {
    let path = binaries::workspace().join(format!("examples/{name}.yaml"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

// === impl Engine ===

impl Engine {
    /// Ours.
    ///
    /// # Errors
    /// The example cannot be read.
    pub fn pdserve() -> Result<Self> {
        Ok(Self {
            name: "pdserve",
            example: example("smollm2")?,
            command: vec![binaries::binary("pd-agent").display().to_string()],
            model_flag: "--model-path",
            kv_bytes: ("decode", "pdserve_kv_transfer_bytes_total", 1.0),
            kv_number_bytes: 4.0,
            env: Vec::new(),
            starts_within: Duration::from_secs(60),
        })
    }

    /// SGLang on CPUs, with KV over Mooncake's TCP.
    ///
    /// # Errors
    /// Nothing says where it is.
    pub fn sglang() -> Result<Self> {
        let folder = folder()?;
        let python = folder.join("sglang/bin/python").display().to_string();
        let command = vec![python, "-m".to_owned(), "sglang.launch_server".to_owned()];
        Ok(Self {
            name: "sglang",
            example: example("smollm2-sglang")?,
            command,
            model_flag: "--model-path",
            kv_bytes: ("prefill", "sglang:kv_transfer_total_mb_sum", 1_048_576.0),
            kv_number_bytes: 2.0,
            env: vec![
                before("LD_LIBRARY_PATH", &folder.join("lib")),
                before(
                    "PYTHONPATH",
                    &binaries::workspace().join("e2e/engines/sglang"),
                ),
                ("SGLANG_USE_CPU_ENGINE", "1".to_owned()),
                ("HF_HUB_OFFLINE", "1".to_owned()),
                ("CUDA_VISIBLE_DEVICES", String::new()),
                ("MOONCAKE_PROTOCOL", "tcp".to_owned()),
                ("MC_FORCE_TCP", "1".to_owned()),
            ],
            starts_within: Duration::from_secs(240),
        })
    }

    /// vLLM on CPUs, with KV over NIXL by UCX's TCP.
    ///
    /// # Errors
    /// Nothing says where it is.
    pub fn vllm() -> Result<Self> {
        let folder = folder()?;
        let python = folder.join("vllm/bin/python").display().to_string();
        let server = "vllm.entrypoints.openai.api_server";
        let command = vec![python, "-m".to_owned(), server.to_owned()];
        Ok(Self {
            name: "vllm",
            example: example("smollm2-vllm")?,
            command,
            model_flag: "--model",
            kv_bytes: ("decode", "vllm:nixl_bytes_transferred_sum", 1.0),
            kv_number_bytes: 4.0,
            env: vec![
                before("LD_LIBRARY_PATH", &folder.join("lib")),
                ("VLLM_CPU_KVCACHE_SPACE", "1".to_owned()),
                ("VLLM_CPU_OMP_THREADS_BIND", "nobind".to_owned()),
                ("OMP_NUM_THREADS", "1".to_owned()),
                ("UCX_TLS", "tcp,self,sm".to_owned()),
                ("VLLM_NO_USAGE_STATS", "1".to_owned()),
                ("HF_HUB_OFFLINE", "1".to_owned()),
            ],
            starts_within: Duration::from_secs(300),
        })
    }

    /// Whether its workers know their peers, and so need no key.
    pub fn is_ours(&self) -> bool {
        self.name == "pdserve"
    }

    /// Its example, with this machine's model and Python.
    ///
    /// # Errors
    /// Nothing says where the model is.
    pub fn deployment(&self) -> Result<Value> {
        let mut object = self.example.clone();
        object["metadata"]["name"] = json!(self.name);
        let spec = &mut object["spec"];
        spec["model"]["source"] = json!({"hostPath": {"path": model()?}});
        if !self.is_ours() {
            spec["engine"]["command"] = json!(self.command);
        }
        Ok(object)
    }

    /// The engine by itself, which computes prompts and answers in one process.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_alone(&self, address: Ipv4Addr, port: u16) -> Result<Process> {
        let (program, words) = self.command.split_first().context("a program")?;
        let mut args = words.to_vec();
        let model = model()?.display().to_string();
        let flags = [self.model_flag, &model, "--served-model-name", MODEL];
        args.extend(flags.map(str::to_owned));
        let (address, port) = (address.to_string(), port.to_string());
        let flags = ["--host", &address, "--port", &port];
        args.extend(flags.map(str::to_owned));
        let given = &self.example["spec"]["engine"]["args"];
        for arg in given.as_array().into_iter().flatten() {
            let text = |key: &str| arg[key].as_str().map(str::to_owned);
            args.extend(text("name").map(|name| format!("--{name}")));
            args.extend(text("value"));
        }
        let env: Vec<(&str, &str)> = self.env().collect();
        Process::spawn(
            &format!("{} alone", self.name),
            Path::new(program),
            &args,
            &env,
        )
    }

    /// Environment of its processes.
    pub fn env(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// SmolLM2 as a Hugging Face folder, of which all engines compute the same.
///
/// # Errors
/// Nothing says where the engines are.
pub fn model() -> Result<PathBuf> {
    Ok(folder()?.join("smollm2"))
}
