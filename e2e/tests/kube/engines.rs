//! The real vLLM in pods: a deployment comes, is rolled, grows and shrinks under streams, and nothing of them is lost. The
//! folder of `make e2e-engines` (PDSERVE_ENGINES) has the engine; pods see it, and the Python of this machine, by hostPath.

use crate::stand::{Site, Stand};
use anyhow::{Context, Result, bail, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Streams that are open at every time, and their length: 20 s and more on two busy cores.
const STREAMS: usize = 4;
const TOKENS: u32 = 500;
/// Two engines start beside two that serve, on two cores.
const SETTLED_WITHIN: Duration = Duration::from_secs(480);
/// A stream that has begun has ended by then.
const STREAM_WITHIN: Duration = Duration::from_secs(180);
/// What of this machine the engine's Python needs.
const HOST_FOLDERS: [(&str, &str); 4] = [
    ("/usr", "/usr"),
    ("/usr/bin", "/bin"),
    ("/usr/lib", "/lib"),
    ("/usr/lib64", "/lib64"),
];

#[tokio::test]
async fn vllm_in_pods_is_rolled_and_scaled_under_streams() -> Result<()> {
    let folder = std::env::var("PDSERVE_ENGINES");
    let Ok(folder) = folder.map(PathBuf::from) else {
        eprintln!("NOT RUN: PDSERVE_ENGINES names no folder of `make e2e-engines`");
        return Ok(());
    };
    let site = Site {
        settings: vec!["overrides.privileged=true".to_owned()],
        ..Site::default()
    };
    let mut stand = Stand::installed(&site).await?;
    let result = lives(&mut stand, &folder).await;
    stand.end(result)
}

async fn lives(stand: &mut Stand, folder: &Path) -> Result<()> {
    let began = Instant::now();
    stand.apply(&deployment(folder)?)?;
    settled(stand, 1).await?;
    stand.find_service()?;
    let at = began.elapsed().as_secs_f64();
    eprintln!(
        "{at:.0} s from apply to Ready\n{}",
        stand.kubectl("get pdd,pods -o wide")?
    );
    let url = format!("{}/v1/chat/completions", stand.url);
    let mut known = Vec::new();
    for nr in 0..STREAMS {
        known.push(stream(&url, nr).await?);
    }
    let load = Load::start(&url, known);
    let steps: [(&str, Value, u32); 3] = [
        ("an argument of the engine is edited", argument("32"), 1),
        ("scaled 1 -> 2", replicas(2), 2),
        ("scaled 2 -> 1", replicas(1), 1),
    ];
    for (what, patch, count) in steps {
        let before = load.ended();
        let step = Instant::now();
        stand.edit(&patch)?;
        settled(stand, count).await?;
        let (took, whole) = (step.elapsed().as_secs_f64(), load.ended() - before);
        eprintln!(
            "{took:.0} s: {what}: {whole} streams ended whole meanwhile, {STREAMS} open\n{}",
            stand.kubectl("get pdd")?
        );
        load.check()?;
    }
    load.stop().await?;
    stand.kubectl("delete pdd smollm2 --wait=true --timeout=120s")?;
    Ok(())
}

fn replicas(count: u32) -> Value {
    let pool = json!({"replicas": count});
    json!({"spec": {"pools": {"prefill": pool, "decode": pool}}})
}

fn argument(sequences: &str) -> Value {
    let mut args = args();
    args.push(json!({"name": "max-num-seqs", "value": sequences}));
    json!({"spec": {"engine": {"args": args}}})
}

fn args() -> Vec<Value> {
    vec![
        json!({"name": "dtype", "value": "float32"}),
        json!({"name": "enforce-eager"}),
        json!({"name": "max-model-len", "value": "2048"}),
    ]
}

fn deployment(folder: &Path) -> Result<Value> {
    let env = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("LD_LIBRARY_PATH", folder.join("lib").display().to_string()),
        ("VLLM_CPU_KVCACHE_SPACE", "1".to_owned()),
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind".to_owned()),
        ("OMP_NUM_THREADS", "1".to_owned()),
        ("UCX_TLS", "tcp,self,sm".to_owned()),
        ("VLLM_NO_USAGE_STATS", "1".to_owned()),
        ("HF_HUB_OFFLINE", "1".to_owned()),
    ];
    let env = env.map(|(name, value)| json!({"name": name, "value": value}));
    let engines = folder.display().to_string();
    let python = python_home(folder)?;
    let mut folders: Vec<(&str, &str)> = HOST_FOLDERS.to_vec();
    folders.push((&engines, &engines));
    if !python.starts_with("/usr") {
        folders.push((&python, &python));
    }
    let named = || {
        (0..)
            .zip(&folders)
            .map(|(nr, of)| (format!("host-{nr}"), of))
    };
    let volumes =
        named().map(|(name, (host, _))| json!({"name": name, "hostPath": {"path": host}}));
    let mounts =
        named().map(|(name, (_, path))| json!({"name": name, "mountPath": path, "readOnly": true}));
    let (volumes, mounts): (Vec<Value>, Vec<Value>) = (volumes.collect(), mounts.collect());
    let template = json!({"spec": {
        "containers": [{"name": "agent", "env": env, "volumeMounts": mounts}],
        "volumes": volumes,
    }});
    let pool = json!({"replicas": 1, "podTemplate": template});
    let python = folder.join("vllm/bin/python").display().to_string();
    Ok(json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "smollm2"},
        "spec": {
            "model": {"servedModelName": "smollm2", "source": {"hostPath": {"path": folder.join("smollm2")}}},
            "engine": {
                "kind": "vllm",
                "image": format!("pdserve:{}", env!("CARGO_PKG_VERSION")),
                "command": [python, "-m", "vllm.entrypoints.openai.api_server"],
                "args": args(),
            },
            "security": {"peers": "Plain"},
            "pools": {"prefill": pool, "decode": pool},
            "router": {"replicas": 1},
            "drain": {"timeoutSeconds": 240},
        },
    }))
}

/// Where the Python is installed that the environment was made with.
fn python_home(folder: &Path) -> Result<String> {
    let file = folder.join("vllm/pyvenv.cfg");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let home = text.lines().find_map(|line| line.strip_prefix("home = "));
    let home = Path::new(home.context("a home in pyvenv.cfg")?).parent();
    Ok(home.context("a folder above bin")?.display().to_string())
}

async fn settled(stand: &Stand, count: u32) -> Result<()> {
    let whole = eventually(SETTLED_WITHIN, || {
        std::future::ready(stand.is_settled(count, count))
    });
    whole.await.with_context(|| stand.story())
}

/// One greedy answer, streamed to its end.
async fn stream(url: &str, nr: usize) -> Result<String> {
    let request = json!({
        "model": "smollm2", "stream": true, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": true,
        "messages": [{"role": "user", "content": format!("Count from {} on.", nr * 100)}],
    });
    let answer = async {
        let mut events = Client::new().stream(url, &request).await?;
        let (mut said, mut has_ended) = (String::new(), false);
        while let Some(event) = events.next().await? {
            if event == "[DONE]" {
                has_ended = true;
                continue;
            }
            let event: Value = serde_json::from_str(&event)?;
            ensure!(event["error"].is_null(), "{event}");
            said.push_str(
                event["choices"][0]["delta"]["content"]
                    .as_str()
                    .unwrap_or_default(),
            );
        }
        ensure!(has_ended, "cut after {} bytes", said.len());
        Ok(said)
    };
    tokio::time::timeout(STREAM_WITHIN, answer)
        .await
        .context("a stream takes too long")?
}

/// Streams that follow each other, so many at a time; each must be whole and say what it said before.
struct Load {
    streams: JoinSet<Result<()>>,
    ends: Arc<AtomicBool>,
    ended: Arc<AtomicUsize>,
    failures: Arc<parking_lot::Mutex<Vec<String>>>,
}

// === impl Load ===

impl Load {
    fn start(url: &str, known: Vec<String>) -> Self {
        let load = Self {
            streams: JoinSet::new(),
            ends: Arc::default(),
            ended: Arc::default(),
            failures: Arc::default(),
        };
        let mut load = load;
        for (nr, wanted) in known.into_iter().enumerate() {
            let (url, ends) = (url.to_owned(), Arc::clone(&load.ends));
            let (ended, failures) = (Arc::clone(&load.ended), Arc::clone(&load.failures));
            load.streams.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    match stream(&url, nr).await {
                        Ok(said) if said == wanted => drop(ended.fetch_add(1, Ordering::Relaxed)),
                        Ok(said) => failures
                            .lock()
                            .push(format!("{said:?} instead of {wanted:?}")),
                        Err(error) => failures.lock().push(format!("{error:#}")),
                    }
                }
                Ok(())
            });
        }
        load
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        let failures = self.failures.lock();
        ensure!(
            failures.is_empty(),
            "{} streams failed: {failures:#?}",
            failures.len()
        );
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = self.streams.join_next().await {
            ended??;
        }
        let (whole, failed) = (self.ended(), self.failures.lock().len());
        eprintln!("{whole} streams of {TOKENS} tokens whole, {failed} failed");
        if whole == 0 {
            bail!("no stream has ended");
        }
        self.check()
    }
}
