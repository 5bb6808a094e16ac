//! The chart's dashboards and alert rules over a Prometheus that scrapes as the chart's PodMonitor says,
//! while a deployment works and changes. Debian's Prometheus cannot find pods by itself, so the proof
//! gives it every port of every pod, and its relabelling chooses.

use crate::scaling::{asks, autoscaled};
use crate::stand::{NAMESPACE, Stand};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pd_e2e::binaries::workspace;
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::sleep;

const PORT: u16 = 9090;
const SCRAPE_EVERY: &str = "5s";
/// What Grafana would take for `$__rate_interval`.
const RATE_INTERVAL: &str = "20s";
const TRAFFIC: Duration = Duration::from_secs(60);
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
const STEP_S: u64 = 5;
const DISCOVER_EVERY: Duration = Duration::from_secs(2);

/// Panels that are empty where all goes well, or where there is no GPU or NIC, or a model without recurrent state; all others
/// must show something.
const EMPTY: [&str; 10] = [
    "overview: State slots",
    "prefill: State",
    "decode-transfer: State",
    "autoscaling: State slots",
    "overview: Retries and failed legs",
    "operator: Errors",
    "autoscaling: Decisions",
    "gpus: ",
    "decode-transfer: RDMA",
    // `make e2e-engines` holds these against the engines' own figures.
    "engines: ",
];

/// A Prometheus in the cluster's network, and what it scrapes.
struct Watched {
    stand: Stand,
    http: Client,
    url: String,
    _discovery: JoinSet<()>,
}

/// What a panel's expression shows over the time looked at.
#[derive(Debug)]
struct Shown {
    series: usize,
    least: f64,
    most: f64,
}

// === impl Watched ===

impl Watched {
    async fn start() -> Result<Self> {
        let mut stand = Stand::with(&autoscaled()).await?;
        let folder = stand.cluster.dir().join("prometheus");
        fs::create_dir_all(&folder)?;
        let config = config(&stand)?;
        let config_file = folder.join("prometheus.yml");
        fs::write(&config_file, config.to_string())?;
        let rules = rendered(&stand, "prometheusrule")?["spec"].clone();
        fs::write(folder.join("rules.yml"), rules.to_string())?;
        let mut discovery = JoinSet::new();
        let pods = Api::all(stand.cluster.kube_client().await?);
        discovery.spawn(discover(pods, folder.join("pods.json")));
        let command = vec![
            prometheus()?.display().to_string(),
            format!("--config.file={}", config_file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={}:{PORT}", Ipv4Addr::LOCALHOST),
        ];
        let port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT);
        stand.cluster.run("prometheus", command)?;
        let url = format!("http://{}", stand.cluster.forward(port)?);
        let new = Self {
            stand,
            http: Client::new(),
            url,
            _discovery: discovery,
        };
        let scraped = eventually(Duration::from_secs(60), || new.targets()).await;
        scraped.with_context(|| {
            let log = new.stand.cluster.dir().join("logs/prometheus.log");
            fs::read_to_string(log).unwrap_or_default()
        })?;
        Ok(new)
    }

    /// Every pod of ours is scraped, and answers.
    async fn targets(&self) -> Result<()> {
        let output = self
            .query("count by (component) (up{job=\"pdserve\"} == 1)")
            .await?;
        let components: BTreeMap<String, String> = output
            .iter()
            .map(|series| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (
                    text(&series["metric"]["component"]),
                    text(&series["value"][1]),
                )
            })
            .collect();
        for component in ["operator", "router", "prefill", "decode"] {
            ensure!(components.contains_key(component), "{components:?}");
        }
        let down = self.query("up == 0").await?;
        ensure!(down.is_empty(), "{down:?}");
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.http.get(&format!("{}{path}", self.url)).await?;
        let answer: Value = serde_json::from_str(&answer.text())?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/query?query={}", encoded(expression));
        let data = self.get(&path).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// What a panel shows from `start` on, in seconds since 1970.
    async fn shown(&self, expression: &str, start: u64) -> Result<Shown> {
        let expression = expression
            .replace("$__rate_interval", RATE_INTERVAL)
            .replace("$namespace", ".*")
            .replace("$pddeployment", ".*");
        let (query, end) = (encoded(&expression), now()?);
        let path =
            format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={STEP_S}");
        let data = self.get(&path).await.with_context(|| expression.clone())?;
        let series = data["result"].as_array().context("a matrix")?;
        let points = series.iter().flat_map(|series| series["values"].as_array());
        let values = points
            .flatten()
            .filter_map(|point| point[1].as_str()?.parse().ok());
        let known: Vec<f64> = values.filter(|value: &f64| !value.is_nan()).collect();
        Ok(Shown {
            series: if known.is_empty() { 0 } else { series.len() },
            least: known.iter().copied().fold(f64::INFINITY, f64::min),
            most: known.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Gives Prometheus what its own discovery would.
async fn discover(pods: Api<Pod>, file: PathBuf) {
    let (fresh, meta) = (file.with_extension("fresh"), "__meta_kubernetes");
    loop {
        let list = pods.list(&ListParams::default()).await;
        let pods = list.iter().flat_map(|list| &list.items);
        let targets = pods.flat_map(|pod| {
            let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
            let labels = pod.labels().iter();
            let labels = labels.map(|(name, value)| (label(name), json!(value)));
            let notes = pod.annotations().iter();
            let notes = notes.map(|(name, value)| (annotation(name), json!(value)));
            let mut common: Map<String, Value> = labels.chain(notes).collect();
            common.insert(format!("{meta}_namespace"), json!(pod.namespace()));
            common.insert(format!("{meta}_pod_name"), json!(pod.name_any()));
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let ports = containers.flat_map(|container| {
                let ports = container.ports.iter().flatten();
                ports.map(|port| (container.name.clone(), port.clone()))
            });
            let target = move |(container, port): (String, ContainerPort)| {
                let mut labels = common.clone();
                labels.insert(format!("{meta}_pod_container_name"), json!(container));
                labels.insert(format!("{meta}_pod_container_port_name"), json!(port.name));
                let address = format!("{}:{}", address.as_ref()?, port.container_port);
                Some(json!({"targets": [address], "labels": labels}))
            };
            ports.filter_map(target).collect::<Vec<_>>()
        });
        let targets = Value::Array(targets.collect()).to_string();
        // Prometheus must not read half a file. One round without news costs nothing.
        if fs::write(&fresh, targets).is_ok() {
            let _renamed = fs::rename(&fresh, &file);
        }
        sleep(DISCOVER_EVERY).await;
    }
}

/// How discovery names a label of a pod.
fn label(name: &str) -> String {
    format!("__meta_kubernetes_pod_label_{}", plain(name))
}

fn annotation(name: &str) -> String {
    format!("__meta_kubernetes_pod_annotation_{}", plain(name))
}

fn plain(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// For a URL's query.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn prometheus() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = workspace().join(".cache/prometheus/usr/bin");
    let mut folders = std::env::split_paths(&path).chain([own]);
    folders
        .find_map(|folder| Some(folder.join("prometheus")).filter(|program| program.is_file()))
        .context("no Prometheus; `scripts/fetch-prometheus.sh .cache` fetches Debian's")
}

/// One object of the chart, with everything for Prometheus on.
fn rendered(stand: &Stand, template: &str) -> Result<Value> {
    let chart = workspace().join("charts/pdserve").display().to_string();
    let only = format!("templates/{template}.yaml");
    let text = stand.cluster.helm(&[
        "template",
        "pdserve",
        &chart,
        "--namespace",
        NAMESPACE,
        "--api-versions=monitoring.coreos.com/v1/PodMonitor,monitoring.coreos.com/v1/PrometheusRule",
        "--show-only",
        &only,
    ])?;
    serde_saphyr::from_str(&text).with_context(|| text.clone())
}

/// What the Prometheus operator makes of the chart's PodMonitor.
fn config(stand: &Stand) -> Result<Value> {
    let monitor = rendered(stand, "podmonitor")?["spec"].clone();
    let mut common = Vec::new();
    for (name, value) in monitor["selector"]["matchLabels"]
        .as_object()
        .context("a selector")?
    {
        common.push(json!({"action": "keep", "source_labels": [label(name)], "regex": value}));
    }
    let job = label(monitor["jobLabel"].as_str().context("a jobLabel")?);
    let targets = [
        ("__meta_kubernetes_namespace", "namespace"),
        ("__meta_kubernetes_pod_name", "pod"),
        ("__meta_kubernetes_pod_container_name", "container"),
        (job.as_str(), "job"),
    ];
    for (from, to) in targets {
        common.push(json!({"source_labels": [from], "target_label": to}));
    }
    let endpoints = monitor["podMetricsEndpoints"]
        .as_array()
        .context("endpoints")?;
    let jobs = endpoints.iter().map(|endpoint| {
        let port = &endpoint["port"];
        let mut relabel = common.clone();
        relabel.push(json!({
            "action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"],
            "regex": port,
        }));
        for rule in endpoint["relabelings"].as_array().into_iter().flatten() {
            relabel.push(as_prometheus_has_it(rule));
        }
        json!({
            "job_name": port, "metrics_path": endpoint["path"], "relabel_configs": relabel,
            "file_sd_configs": [{"files": ["pods.json"]}],
            "tls_config": {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]},
        })
    });
    Ok(json!({
        "global": {"scrape_interval": SCRAPE_EVERY, "evaluation_interval": SCRAPE_EVERY},
        "rule_files": ["rules.yml"],
        "scrape_configs": jobs.collect::<Vec<_>>(),
    }))
}

/// A rule of a `PodMonitor` under the names that Prometheus itself has for its fields.
fn as_prometheus_has_it(rule: &Value) -> Value {
    let name = |field: &str| match field {
        "sourceLabels" => "source_labels".to_owned(),
        "targetLabel" => "target_label".to_owned(),
        same => same.to_owned(),
    };
    let fields = rule.as_object().into_iter().flatten();
    fields
        .map(|(field, value)| (name(field), value.clone()))
        .collect()
}

/// Something for every panel: prompts, answers, a pool that grows, and one that drains.
async fn lives(stand: &Stand) -> Result<()> {
    let traffic = asks(stand, 256, 48, 6).await?;
    sleep(TRAFFIC).await;
    let args = json!([{"name": "chunked-prefill-size", "value": "64"}]);
    let patch = json!({"spec": {"engine": {"args": args}}});
    stand.edit(&patch)?;
    sleep(TRAFFIC).await;
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    let (answered, failures) = (tally.answered, tally.failures);
    eprintln!("{answered} answered, {} failed", failures.len());
    ensure!(failures.is_empty(), "{failures:#?}");
    Ok(())
}

async fn panels(watched: &Watched) -> Result<()> {
    let start = now()?;
    lives(&watched.stand).await?;
    watched.targets().await?;
    let mut files: Vec<PathBuf> = fs::read_dir(workspace().join("charts/pdserve/dashboards"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let (mut empty, mut moved, mut all) = (Vec::new(), 0, 0);
    for file in files {
        let name = file.file_stem().unwrap_or_default().display().to_string();
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        for panel in dashboard["panels"].as_array().context("panels")? {
            let panel_name = format!("{name}: {}", panel["title"].as_str().unwrap_or_default());
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().context("an expression")?;
                let shown = watched.shown(expression, start).await?;
                let Shown {
                    series,
                    least,
                    most,
                } = shown;
                all += 1;
                moved += usize::from(most > least);
                if series > 0 {
                    eprintln!("{panel_name:48} {series:2} series  {least:12.4} to {most:12.4}");
                } else if !EMPTY.iter().any(|known| panel_name.starts_with(known)) {
                    empty.push(format!("{panel_name}: {expression}"));
                }
            }
        }
    }
    eprintln!("{moved} of {all} expressions moved");
    ensure!(empty.is_empty(), "{empty:#?}");
    Ok(())
}

/// No rule is broken; none fires but the one that says what is so: a pool whose processors are this
/// limited misses the goal for the first token.
async fn rules(watched: &Watched) -> Result<()> {
    let groups = watched.get("/api/v1/rules").await?["groups"].clone();
    let groups = groups.as_array().context("groups")?.iter();
    let rules: Vec<&Value> = groups
        .flat_map(|group| group["rules"].as_array())
        .flatten()
        .collect();
    ensure!(!rules.is_empty(), "no rule was read");
    for rule in &rules {
        ensure!(rule["health"] == "ok", "{rule}");
        let expected = rule["name"] == "PDSLOBurn" || rule["state"] != "firing";
        ensure!(expected, "{rule}");
    }
    let firing = rules.iter().filter(|rule| rule["state"] == "firing");
    let firing: Vec<&Value> = firing.map(|rule| &rule["name"]).collect();
    eprintln!("{} rules are evaluated, firing: {firing:?}", rules.len());
    Ok(())
}

#[tokio::test]
async fn dashboards_move_and_alerts_say_what_is_so() -> Result<()> {
    let watched = Watched::start().await?;
    let result = async {
        panels(&watched).await?;
        rules(&watched).await
    };
    let result = result.await;
    watched.stand.end(result)
}
