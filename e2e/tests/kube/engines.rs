//! The real SGLang and the real vLLM in pods: a model is fetched by its name, a deployment comes, is rolled, grows, shrinks and
//! loses a node under streams, and nothing of them is lost. The folder of `make e2e-engines` (PDSERVE_ENGINES) has the engines;
//! pods see it, and the Python of this machine, by hostPath.

mod load;
mod ranks;

use crate::plugin::Person;
use crate::policies::{self, STRANGER, apply_stranger, ask};
use crate::stand::hub::{CLAIM, ENDPOINT, Hub};
use crate::stand::{Site, Stand};
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use load::{Load, Pair, STREAMS, stream};
use pd_e2e::binaries::workspace;
use pd_e2e::engines::{self, Engine};
use pd_e2e::fleet::eventually;
use pd_protocol::ports;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Two engines start beside two that serve, on two cores.
const SETTLED_WITHIN: Duration = Duration::from_secs(480);
/// A fetch of 269 MB in several files takes some ten seconds.
const BYTES_PER_SECOND: u32 = 25_000_000;
/// The revision that serves.
const CURRENT: &str = "get pdd smollm2 -o jsonpath={.status.revision.current}";
const REPO: &str = "HuggingFaceTB/SmolLM2-135M-Instruct";
/// What of this machine the engine's Python needs.
pub(crate) const HOST_FOLDERS: [(&str, &str); 4] = [
    ("/usr", "/usr"),
    ("/usr/bin", "/bin"),
    ("/usr/lib", "/lib"),
    ("/usr/lib64", "/lib64"),
];

/// What is done to a deployment under streams.
enum Step {
    /// An argument of the engine, or the size of its pages: workers before and after are not to be paired.
    Edit(Value),
    Scale(u32),
    /// Of the node that the hub is not on.
    DrainNode,
    /// Back to what was before the edit.
    Undo,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vllm_in_pods_is_rolled_and_scaled_under_streams() -> Result<()> {
    let edit = json!({"engine": {"args": [
        {"name": "dtype", "value": "float32"},
        {"name": "enforce-eager"},
        {"name": "max-model-len", "value": "2048"},
        {"name": "max-num-seqs", "value": "32"},
    ]}});
    let steps = [Step::Edit(edit), Step::Scale(2), Step::Scale(1)];
    in_pods(Engine::vllm, "vllm", &steps).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sglang_in_pods_is_rolled_and_scaled_and_loses_a_node_under_streams() -> Result<()> {
    let edit = json!({"kv": {"pageSize": 32}});
    let steps = [
        Step::Edit(edit),
        Step::Scale(2),
        Step::Scale(1),
        Step::DrainNode,
        Step::Undo,
    ];
    in_pods(Engine::sglang, "sglang", &steps).await
}

async fn in_pods(engine: fn() -> Result<Engine>, venv: &str, steps: &[Step]) -> Result<()> {
    if std::env::var_os("PDSERVE_ENGINES").is_none() {
        eprintln!("NOT RUN: PDSERVE_ENGINES names no folder of `make e2e-engines`");
        return Ok(());
    }
    let mut hub = Hub::new(BYTES_PER_SECOND)?;
    let model = engines::model()?;
    hub.repos.push(format!("{REPO}={}", model.display()));
    hub.folders.push(model);
    let site = Site {
        settings: vec![
            "overrides.privileged=true".to_owned(),
            policies::MADE.to_owned(),
        ],
        policies: true,
        ..Site::default()
    };
    let deployment = deployment(&engine()?, venv)?;
    let mut stand = Stand::installed(&site).await?;
    let result = lives(&mut stand, &hub, &deployment, steps).await;
    stand.end(result)
}

async fn lives(stand: &mut Stand, hub: &Hub, deployment: &Value, steps: &[Step]) -> Result<()> {
    hub.apply(stand)?;
    let began = Instant::now();
    stand.apply(deployment)?;
    fetched(stand).await?;
    settled(stand, 1).await?;
    stand.find_service()?;
    let at = began.elapsed().as_secs_f64();
    eprintln!(
        "{at:.0} s from apply to Ready\n{}",
        stand.kubectl("get pdd,pods -o wide")?
    );
    refuse_others(stand).await?;
    let url = format!("{}/v1/chat/completions", stand.url);
    let pods: Api<Pod> = Api::default_namespaced(stand.cluster.kube_client().await?);
    let mut known = Vec::new();
    for nr in 0..STREAMS {
        known.push(stream(&url, &pods, nr).await?.text);
    }
    let load = Load::start(&url, &pods, known);
    let first = stand.kubectl(CURRENT)?;
    let mut count = 1;
    for step in steps {
        let (before, began) = (load.ended(), Instant::now());
        let what = take(stand, step, &mut count).await?;
        if matches!(step, Step::Undo) {
            is_back(stand, &first).await?;
        }
        settled(stand, count).await?;
        let (took, whole) = (began.elapsed().as_secs_f64(), load.ended() - before);
        eprintln!(
            "{took:.0} s: {what}: {whole} streams ended whole meanwhile, {STREAMS} open\n{}",
            stand.kubectl("get pdd")?
        );
        are_unmixed(&load.pairs())?;
        load.check()?;
    }
    let pairs = load.stop().await?;
    are_unmixed(&pairs)?;
    ensure!(pairs.len() > 1, "one revision alone has answered");
    let name = &deployment["metadata"]["name"];
    ensure!(name == "smollm2", "{name}");
    stand.kubectl("delete pdd smollm2 --wait=true --timeout=120s")?;
    Ok(())
}

/// Workers answer routers, and no one who does not know their key; the operator, which does, saw their KV move.
async fn refuse_others(stand: &mut Stand) -> Result<()> {
    let ips = "get pods -l pdserve.io/replica -o jsonpath={.items[*].status.podIP}";
    let ips = stand.kubectl(ips)?;
    ensure!(ips.split_whitespace().count() == 2, "{ips}");
    apply_stranger(stand)?;
    let peer = stand.workers("decode")?;
    let peer = peer.first().context("a pod of decode")?;
    for ip in ips.split_whitespace() {
        let ip = ip.parse()?;
        let answer = ask(stand, peer, ip, ports::HTTP)?;
        let answer = answer.with_context(|| format!("{peer} does not reach {ip}"))?;
        ensure!(answer.contains(" 401 "), "{ip} answers anyone: {answer}");
        let reached = ask(stand, STRANGER, ip, ports::HTTP)?;
        ensure!(reached.is_none(), "a stranger gets of {ip} {reached:?}");
        eprintln!("a peer without the key gets of {ip}: {answer}; a stranger does not reach it");
    }
    // A drain would stop at a pod without a controller.
    stand.kubectl(&format!("delete pod {STRANGER}"))?;
    let guarded = "wait pdd/smollm2 --for=condition=WorkersGuarded --timeout=10s";
    eprintln!("{}", stand.kubectl(guarded)?);
    eprintln!("{}", stand.kubectl("get networkpolicies")?);
    Ok(())
}

/// Says how far the fetch is, until workers are made.
async fn fetched(stand: &Stand) -> Result<()> {
    eventually(SETTLED_WITHIN, || async {
        if stand.workers("prefill")?.is_empty() {
            eprintln!("Status: {}", stand.said()?);
            tokio::time::sleep(Duration::from_secs(2)).await;
            bail!("no worker is made yet");
        }
        Ok(())
    })
    .await
}

async fn take(stand: &Stand, step: &Step, count: &mut u32) -> Result<String> {
    Ok(match step {
        Step::Edit(spec) => {
            stand.edit(&json!({"spec": spec}))?;
            format!("an edit of {spec}")
        }
        Step::Scale(replicas) => {
            let pool = json!({"replicas": replicas});
            stand.edit(&json!({"spec": {"pools": {"prefill": pool, "decode": pool}}}))?;
            let before = std::mem::replace(count, *replicas);
            format!("scaled {before} -> {replicas}")
        }
        Step::DrainNode => {
            // The streams go on in threads of their own.
            stand.kubectl(
                "drain node-1 --ignore-daemonsets --delete-emptydir-data --timeout=420s",
            )?;
            stand.kubectl("uncordon node-1")?;
            "node-1 was drained".to_owned()
        }
        Step::Undo => {
            Person::new(stand).await?.pd("rollout undo smollm2")?;
            "the edit was undone".to_owned()
        }
    })
}

/// Waits until a revision serves again; its model is looked for on its volume first.
async fn is_back(stand: &Stand, revision: &str) -> Result<()> {
    let back = eventually(SETTLED_WITHIN, || async {
        let current = stand.kubectl(CURRENT)?;
        ensure!(current == revision, "{current} serves, not {revision}");
        Ok(())
    });
    back.await.with_context(|| stand.story())
}

/// No prefill of one revision answered with a decode of another. Roles have revisions of their own, so those that were
/// paired most belong together.
fn are_unmixed(pairs: &BTreeMap<Pair, usize>) -> Result<()> {
    eprintln!("answers by (revision of prefill, revision of decode): {pairs:?}");
    let once = |of: fn(&Pair) -> &String| {
        let seen: BTreeSet<&String> = pairs.keys().map(of).collect();
        seen.len() == pairs.len()
    };
    ensure!(
        once(|(prefill, _)| prefill) && once(|(_, decode)| decode),
        "revisions were mixed"
    );
    Ok(())
}

/// An engine of this machine in pods, its model by name.
fn deployment(engine: &Engine, venv: &str) -> Result<Value> {
    let mut object = engine.deployment()?;
    object["metadata"]["name"] = json!("smollm2");
    let spec = &mut object["spec"];
    spec["model"]["source"] = json!({"huggingFace": {
        "repo": REPO, "endpoint": ENDPOINT, "cache": {"pvc": {"claimName": CLAIM}},
    }});
    // In bfloat16 four answers at once round otherwise than each alone, and other words may win.
    let args = spec["engine"]["args"].as_array_mut();
    let args = args.context("arguments of the engine")?;
    if !args.iter().any(|arg| arg["name"] == "dtype") {
        args.push(json!({"name": "dtype", "value": "float32"}));
    }
    spec["engine"]["image"] = json!(format!("pdserve:{}", env!("CARGO_PKG_VERSION")));
    spec["router"] = json!({"replicas": 1});
    spec["drain"] = json!({"timeoutSeconds": 240});
    for (role, core) in [("prefill", "0"), ("decode", "1")] {
        spec["pools"][role]["podTemplate"] = template(engine, venv, core)?;
    }
    Ok(object)
}

/// The folders of this machine that its Python reads, and its environment.
fn template(engine: &Engine, venv: &str, core: &str) -> Result<Value> {
    let folder = engines::folder()?;
    let path = ("PATH", "/usr/local/bin:/usr/bin:/bin");
    // Threads of one pod that wait for each other, and get half of a core each beside those of another, wait for most of
    // the time: SGLang computes with one.
    let bind = ("SGLANG_CPU_OMP_THREADS_BIND", core);
    let env = engine.env().chain([path, bind]);
    let env: Vec<Value> = env
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let display = |path: PathBuf| path.display().to_string();
    let engines = display(folder.clone());
    let python = python_home(&folder.join(venv))?;
    let ours = display(workspace().join("e2e/engines"));
    let mut folders: Vec<(&str, &str)> = HOST_FOLDERS.to_vec();
    folders.extend([(engines.as_str(), engines.as_str()), (&ours, &ours)]);
    if !python.starts_with("/usr") {
        folders.push((&python, &python));
    }
    let (volumes, mounts) = mounted(&folders);
    Ok(json!({"spec": {
        "containers": [{"name": "agent", "env": env, "volumeMounts": mounts}],
        "volumes": volumes,
    }}))
}

/// Volumes of folders of this machine, and where a container has them.
pub(crate) fn mounted(folders: &[(&str, &str)]) -> (Vec<Value>, Vec<Value>) {
    let of_one = |(nr, (host, path)): (usize, &(&str, &str))| {
        let name = format!("host-{nr}");
        let volume = json!({"name": name, "hostPath": {"path": host}});
        let mount = json!({"name": name, "mountPath": path, "readOnly": true});
        (volume, mount)
    };
    folders.iter().enumerate().map(of_one).unzip()
}

/// Where the Python is installed that an environment was made with.
fn python_home(venv: &Path) -> Result<String> {
    let file = venv.join("pyvenv.cfg");
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
