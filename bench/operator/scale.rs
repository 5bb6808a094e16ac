//! A thousand `PDDeployment`s created at once on a control plane without nodes: how long until their
//! three thousand pods exist and every status is written, and what the operator takes for it; then at
//! rest; then one edit among a thousand; then with all pods up and every agent and router scraped.
//! `operator-scale 1000 bare` measures what the control plane alone takes for the same objects, and
//! `operator-scale 1000 create` ends once all is written and at rest.

#![allow(clippy::print_stdout, reason = "it prints its result")]

mod bare;

use anyhow::{Context, Result, bail, ensure};
use bare::Which;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pd_crds::PdDeployment;
use pd_e2e::binaries::{binary, workspace};
use pd_e2e::client::Client as HttpClient;
use pd_e2e::fleet::eventually;
use pd_e2e::kube::cluster::{Cluster, Spec};
use pd_e2e::kube::hollow::{HollowNodes, Load};
use pd_e2e::metrics::Metrics;
use pd_e2e::process::Process;
use serde_json::json;
use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const LISTEN: &str = "127.0.0.1:18980";
const CREATES_AT_ONCE: usize = 32;
const LIMIT: Duration = Duration::from_secs(600);
/// Without a reconcile for so long it is at rest.
const QUIET: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_secs(30);
const EDITS: usize = 100;
const SCRAPED: Duration = Duration::from_secs(60);
/// What a deployment of one worker each bears.
const LOAD: Load = Load {
    rate: 2.0,
    input: 1000.0,
    output: 200.0,
};
/// Clock ticks per second in /proc/PID/stat. Source: USER_HZ of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

fn mk_deployment(nr: usize) -> PdDeployment {
    mk_named(&format!("m{nr}"))
}

fn mk_named(name: &str) -> PdDeployment {
    let object = json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": {"source": {"hostPath": {"path": "/models/m.gguf"}}},
            // Hollow workers have no keys.
            "security": {"peers": "Plain"},
            "pools": {"prefill": {"replicas": 1}, "decode": {"replicas": 1}},
        },
    });
    serde_json::from_value(object).expect("a PDDeployment")
}

/// Objects of a kind, without reading them.
async fn count<K>(api: &Api<K>) -> Result<usize>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let rest = list.metadata.remaining_item_count.unwrap_or(0);
    Ok(list.items.len() + usize::try_from(rest)?)
}

/// CPU seconds that a process has taken.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(") ").context("no process name")?.1;
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks = ticks.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// Resident memory of a process, in MB: `VmRSS` now, `VmHWM` at most.
fn resident_mb(pid: u32, which: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(which));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.context("no such line")?.parse::<f64>()? * 1024.0 / 1e6)
}

async fn until(what: &str, check: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !check().await? {
        ensure!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// From an edit's answer until the pod that it asks for exists.
async fn edit(client: &Client, nr: usize) -> Result<Duration> {
    let deployments: Api<PdDeployment> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let name = format!("m{nr}");
    let patch = Patch::Merge(json!({"spec": {"pools": {"prefill": {"replicas": 2}}}}));
    let began = Instant::now();
    deployments
        .patch(&name, &PatchParams::default(), &patch)
        .await?;
    let pod = format!("{name}-prefill-1-1");
    while pods.get_metadata_opt(&pod).await?.is_none() {
        ensure!(began.elapsed() < LIMIT, "{pod} does not come");
        sleep(Duration::from_millis(2)).await;
    }
    Ok(began.elapsed())
}

fn main() -> Result<()> {
    let deployments = std::env::args()
        .nth(1)
        .map_or(Ok(1000), |text| text.parse())?;
    let part = std::env::args().nth(2);
    tokio::runtime::Runtime::new()?.block_on(async {
        match part.as_deref() {
            Some("bare") => measure_bare(deployments).await,
            Some("create") => measure(deployments, false).await,
            None => measure(deployments, true).await,
            Some(part) => bail!("there is no part {part}: say bare, create, or nothing"),
        }
    })
}

/// A control plane, an operator beside it, and what is asked of both.
struct Bench {
    cluster: Cluster,
    operator: Process,
    pid: u32,
    http: HttpClient,
    base: String,
    client: Client,
}

impl Bench {
    async fn start() -> Result<Self> {
        let cluster = Cluster::start(Spec::control_plane()).await?;
        for manifest in ["manifests/crds.yaml", "manifests/operator.yaml"] {
            let file = workspace().join(manifest).display().to_string();
            cluster.kubectl(&["apply", "--server-side", "-f", &file])?;
        }
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"])?;
        let kubeconfig = cluster
            .service_account_kubeconfig("pdserve-system", "pdserve-operator")
            .await?;
        let kubeconfig = kubeconfig.display().to_string();
        let args = "run --log-level warn --allow-host-path / --listen";
        let args: Vec<String> = args.split(' ').chain([LISTEN]).map(str::to_owned).collect();
        // The second as the chart has it.
        let env = [
            ("KUBECONFIG", kubeconfig.as_str()),
            ("MALLOC_ARENA_MAX", "1"),
        ];
        let operator = Process::spawn("operator", &binary("pd-operator"), &args, &env)?;
        let http = HttpClient::new();
        let base = format!("http://{LISTEN}");
        eventually(Duration::from_secs(20), || async {
            let ready = http.get(&format!("{base}/readyz")).await?;
            ensure!(ready.status == 200, "not ready");
            Ok(())
        })
        .await?;
        Ok(Self {
            client: cluster.kube_client().await?,
            pid: operator.id().context("the operator runs")?,
            cluster,
            operator,
            http,
            base,
        })
    }

    async fn create(&self, deployments: usize) -> Result<()> {
        let api: Api<PdDeployment> = Api::namespaced(self.client.clone(), "default");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let began = Instant::now();
        stream::iter(0..deployments)
            .map(async |nr| api.create(&PostParams::default(), &mk_deployment(nr)).await)
            .buffer_unordered(CREATES_AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        let created = began.elapsed().as_secs_f64();
        println!("created after                    {created:.1} s");
        let pods_there = async || Ok(count(&pods).await? >= 3 * deployments);
        until("pods", pods_there).await?;
        let there = began.elapsed().as_secs_f64();
        println!("pods there after                 {there:.1} s");
        until("statuses", async || {
            let list = api.list(&ListParams::default()).await?;
            let written = list.items.iter().filter(|object| {
                let status = object.status.as_ref();
                status.is_some_and(|status| status.pools.decode.current == 1)
            });
            Ok(written.count() == deployments)
        })
        .await?;
        let written = began.elapsed().as_secs_f64();
        println!("statuses written after           {written:.1} s");
        Ok(())
    }

    async fn costs(&self, deployments: usize) -> Result<()> {
        println!(
            "operator CPU                     {:.1} s",
            cpu_seconds(self.pid)?
        );
        println!(
            "operator peak RSS                {:.0} MB",
            resident_mb(self.pid, "VmHWM:")?
        );
        for method in ["GET", "POST", "PATCH", "DELETE"] {
            let sum = self.requests(method).await?;
            println!(
                "{method:6} per deployment            {:.2}",
                (sum / deployments as f64).max(0.0)
            );
        }
        for (name, pid) in self.cluster.control_plane().programs()? {
            let pid = u32::try_from(pid.as_raw_nonzero().get())?;
            println!("CPU of {name:25} {:.1} s", cpu_seconds(pid)?);
        }
        Ok(())
    }

    /// Waits until nothing is left to do: the scheduler keeps reporting pods without a node for a
    /// while.
    async fn comes_to_rest(&self) -> Result<()> {
        let began = Instant::now();
        let last = Cell::new(-1.0);
        until("rest", async || {
            sleep(QUIET).await;
            let reconciles = self.reconciles().await?;
            Ok(last.replace(reconciles) == reconciles)
        })
        .await?;
        let took = began.elapsed().saturating_sub(2 * QUIET).as_secs_f64();
        println!("at rest, after further           {took:.1} s");
        Ok(())
    }

    async fn rest(&self) -> Result<()> {
        let (before, reconciles) = (cpu_seconds(self.pid)?, self.reconciles().await?);
        sleep(REST).await;
        let share = (cpu_seconds(self.pid)? - before) / REST.as_secs_f64();
        let reconciles = self.reconciles().await? - reconciles;
        println!(
            "CPU at rest                      {:.2} % of a core, {:.1} reconciles a second",
            100.0 * share,
            reconciles / REST.as_secs_f64()
        );
        Ok(())
    }

    async fn reconciles(&self) -> Result<f64> {
        let metrics = Metrics::scrape(&self.http, &self.base).await?;
        Ok(metrics.sum("pd_operator_reconcile_seconds_count", &[]))
    }

    async fn edits(&self, deployments: usize) -> Result<()> {
        let mut edits = Vec::new();
        for nr in 0..EDITS.min(deployments) {
            edits.push(edit(&self.client, nr).await?.as_secs_f64() * 1000.0);
        }
        edits.sort_by(f64::total_cmp);
        let (median, p99) = (edits[edits.len() / 2], edits[edits.len() * 99 / 100]);
        println!("edit to pod, median and p99      {median:.0} ms, {p99:.0} ms");
        Ok(())
    }

    /// Every pod is up, every pool follows its load, nothing has to change.
    async fn scraped(&self, deployments: usize) -> Result<()> {
        let hollow = HollowNodes::start(self.client.clone(), &[0]).await?;
        let api: Api<PdDeployment> = Api::namespaced(self.client.clone(), "default");
        let began = Instant::now();
        until("all ready", async || {
            let list = api.list(&ListParams::default()).await?;
            Ok(list.items.iter().all(is_ready))
        })
        .await?;
        let took = began.elapsed().as_secs_f64();
        println!("all ready after                  {took:.1} s");
        hollow.set_load(LOAD);
        let pool = json!({"replicas": null, "minReplicas": 1, "maxReplicas": 4});
        let follows = Patch::Merge(json!({"spec": {
            "autoscaling": {"mode": "Auto"}, "pools": {"prefill": pool, "decode": pool},
        }}));
        stream::iter(0..deployments)
            .map(async |nr| {
                let name = format!("m{nr}");
                api.patch(&name, &PatchParams::default(), &follows).await
            })
            .buffer_unordered(CREATES_AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        sleep(SCRAPED).await;
        let (cpu, scrapes) = (cpu_seconds(self.pid)?, hollow.scrapes());
        let writes = self.requests("PATCH").await?;
        sleep(SCRAPED).await;
        let over = SCRAPED.as_secs_f64();
        let share = (cpu_seconds(self.pid)? - cpu) / over;
        #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
        let scrapes = (hollow.scrapes() - scrapes) as f64 / over;
        println!(
            "scraped                          {scrapes:.0} a second, CPU {:.1} % of a core, RSS {:.0} MB, {:.1} writes a second",
            100.0 * share,
            resident_mb(self.pid, "VmRSS:")?,
            (self.requests("PATCH").await? - writes) / over,
        );
        Ok(())
    }

    /// Of the operator, so far.
    async fn writes(&self) -> Result<f64> {
        Ok(self.requests("POST").await? + self.requests("PATCH").await?)
    }

    async fn requests(&self, method: &str) -> Result<f64> {
        let metrics = Metrics::scrape(&self.http, &self.base).await?;
        let label = format!("method=\"{method}\"");
        Ok(metrics.sum("pd_operator_apiserver_requests_total", &[&label]))
    }
}

fn is_ready(object: &PdDeployment) -> bool {
    let status = object.status.as_ref();
    let mut conditions = status.iter().flat_map(|status| status.conditions.iter());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn measure_bare(deployments: usize) -> Result<()> {
    for which in [Which::All, Which::OwnAndPods] {
        let bench = Bench::start().await?;
        bare::measure(&bench, deployments, which).await?;
        for (name, pid) in bench.cluster.control_plane().programs()? {
            let pid = u32::try_from(pid.as_raw_nonzero().get())?;
            println!("CPU of {name:25} {:.1} s", cpu_seconds(pid)?);
        }
        let Bench {
            cluster, operator, ..
        } = bench;
        drop(operator);
        cluster.stop()?;
    }
    Ok(())
}

async fn measure(deployments: usize, is_whole: bool) -> Result<()> {
    let bench = Bench::start().await?;
    println!("deployments                      {deployments}");
    bench.create(deployments).await?;
    bench.comes_to_rest().await?;
    bench.costs(deployments).await?;
    if is_whole {
        bench.rest().await?;
        bench.edits(deployments).await?;
        bench.scraped(deployments).await?;
    }
    let Bench {
        cluster, operator, ..
    } = bench;
    drop(operator);
    cluster.stop()
}
