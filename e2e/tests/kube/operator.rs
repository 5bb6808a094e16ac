//! The operator beside a real apiserver, without nodes: what it makes, restores and takes away.

use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::{binary, workspace};
use pd_e2e::fleet::eventually;
use pd_e2e::kube::audit::{Mark, Write};
use pd_e2e::kube::cluster::{Cluster, Spec};
use pd_e2e::process::Process;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

const OPERATOR: &str = "system:serviceaccount:pdserve-system:pdserve-operator";
/// A reconcile takes milliseconds; the rest is for two busy cores.
const SOON: Duration = Duration::from_secs(20);
/// The garbage collector looks for new kinds every 30 s, and begins after that.
pub(crate) const COLLECTED: Duration = Duration::from_secs(120);
/// Long enough for a loop that writes to write again.
const AT_REST: Duration = Duration::from_secs(4);

/// A control plane, our kinds and accounts, and an operator that runs.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    operator: Process,
}

// === impl Bench ===

impl Bench {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// With an environment for the operator.
    pub(crate) async fn start_with(env: &[(&str, &str)]) -> Result<Self> {
        Self::start_on(Spec::control_plane(), env).await
    }

    /// On a cluster of some kind.
    pub(crate) async fn start_on(spec: Spec, env: &[(&str, &str)]) -> Result<Self> {
        let cluster = Cluster::start(spec).await?;
        let file = |path: &str| workspace().join(path).display().to_string();
        for manifest in ["manifests/crds.yaml", "manifests/operator.yaml"] {
            cluster.kubectl(&["apply", "--server-side", "-f", &file(manifest)])?;
        }
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"])?;
        let operator = start_operator(&cluster, env).await?;
        Ok(Self { cluster, operator })
    }

    pub(crate) async fn restart_operator(&mut self) -> Result<()> {
        self.operator.signal(Signal::TERM)?;
        let status = self.operator.wait_exit(SOON).await?;
        ensure!(
            status.success(),
            "ended with {status}: {}",
            self.operator.log()
        );
        self.operator = start_operator(&self.cluster, &[]).await?;
        Ok(())
    }

    pub(crate) fn kubectl(&self, words: &str) -> Result<String> {
        self.cluster.kubectl(&words.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn json(&self, words: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.kubectl(&format!("{words} -o json"))?,
        )?)
    }

    /// The objects of a list.
    pub(crate) fn items(&self, words: &str) -> Result<Vec<Value>> {
        let list = self.json(words)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Names of the pods of a role, sorted.
    fn pods(&self, role: &str) -> Result<Vec<String>> {
        let listed = self.kubectl(&format!("get pods -l pdserve.io/role={role} -o name"))?;
        let mut names: Vec<String> = listed.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// The two numbers at the end of the only decode pod's name. Its ordinal is 0, or 1 if it was
    /// made while a pod of ordinal 0 was still on its way out.
    fn only_decode_slot(&self) -> Result<String> {
        let pods = self.pods("decode")?;
        ensure!(pods.len() == 1, "{pods:?}");
        let slot = pods[0].strip_prefix("pod/smollm2-decode-");
        Ok(slot.context("not its name")?.to_owned())
    }

    /// Waits until the pods of both roles are those expected, by their last two numbers.
    pub(crate) async fn has_pods(&self, prefill: &[&str], decode: &[&str]) -> Result<()> {
        self.becomes(|| {
            for (role, slots) in [("prefill", prefill), ("decode", decode)] {
                let expected: Vec<String> = slots
                    .iter()
                    .map(|slot| format!("pod/smollm2-{role}-{slot}"))
                    .collect();
                let seen = self.pods(role)?;
                ensure!(seen == expected, "{role}: {seen:?} instead of {expected:?}");
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn becomes(&self, holds: impl Fn() -> Result<()>) -> Result<()> {
        self.becomes_within(SOON, holds).await
    }

    pub(crate) async fn becomes_within(
        &self,
        limit: Duration,
        holds: impl Fn() -> Result<()>,
    ) -> Result<()> {
        eventually(limit, || std::future::ready(holds()))
            .await
            .with_context(|| self.operator.log())
    }

    /// The example with a path that nodes could have.
    pub(crate) fn apply_example(&self) -> Result<()> {
        let text = std::fs::read_to_string(workspace().join("examples/smollm2.yaml"))?;
        let text = text.replace("path: ../.cache/models/", "path: /models/");
        let file = self.cluster.dir().join("smollm2.yaml");
        std::fs::write(&file, text)?;
        self.cluster
            .kubectl(&["apply", "-f", &file.display().to_string()])?;
        Ok(())
    }

    pub(crate) fn apply(&self, object: &Value) -> Result<()> {
        let file = self.cluster.dir().join("object.json");
        std::fs::write(&file, object.to_string())?;
        self.cluster
            .kubectl(&["apply", "-f", &file.display().to_string()])?;
        Ok(())
    }

    pub(crate) fn operator_log(&self) -> String {
        self.operator.log()
    }

    pub(crate) fn edit(&self, patch: &str) -> Result<()> {
        let words = ["patch", "pdd", "smollm2", "--type=merge", "-p", patch];
        self.cluster.kubectl(&words)?;
        Ok(())
    }

    pub(crate) fn operator_writes(&self, since: Mark) -> Result<Vec<Write>> {
        let writes = self.cluster.audit_log().writes_since(since)?;
        Ok(writes
            .into_iter()
            .filter(|write| write.user == OPERATOR)
            .collect())
    }

    pub(crate) fn stop(self) -> Result<()> {
        drop(self.operator);
        self.cluster.stop()
    }
}

async fn start_operator(cluster: &Cluster, env: &[(&str, &str)]) -> Result<Process> {
    let kubeconfig = cluster
        .service_account_kubeconfig("pdserve-system", "pdserve-operator")
        .await?;
    let kubeconfig = kubeconfig.display().to_string();
    let own = [("KUBECONFIG", kubeconfig.as_str()), ("RUST_LOG", "info")];
    let env = [&own, env].concat();
    let args = ["run", "--listen", "127.0.0.1:0", "--allow-host-path", "/"];
    let args = args.map(str::to_owned);
    let operator = Process::spawn("operator", &binary("pd-operator"), &args, &env)?;
    eventually(SOON, || {
        let has_started = operator.log().contains("starting controller");
        std::future::ready(
            has_started
                .then_some(())
                .context("it does not reconcile yet"),
        )
    })
    .await
    .with_context(|| operator.log())?;
    Ok(operator)
}

/// At rest nothing is written, and a new process finds nothing to change.
async fn rests(bench: &mut Bench) -> Result<()> {
    let mark = bench.cluster.audit_log().mark();
    tokio::time::sleep(AT_REST).await;
    assert_eq!(bench.operator_writes(mark)?, vec![]);
    let pods = bench.json("get pods")?;
    bench.restart_operator().await?;
    tokio::time::sleep(AT_REST).await;
    let writes = bench.operator_writes(mark)?;
    let applied = writes
        .iter()
        .all(|write| write.verb == "patch" && write.code == 200);
    ensure!(applied && writes.len() <= 7, "{writes:#?}");
    assert_eq!(
        bench.json("get pods")?["items"],
        pods["items"],
        "no pod was touched"
    );
    Ok(())
}

/// What others change comes back; a pool's size follows the spec, and the routers' where it has one.
async fn restores(bench: &Bench) -> Result<()> {
    let routers = || {
        let size = "get deployment smollm2-router -o jsonpath={.spec.replicas}";
        bench.kubectl(size)
    };
    bench.kubectl("scale deployment smollm2-router --replicas=2")?;
    bench.kubectl("delete service smollm2")?;
    bench
        .becomes(|| bench.kubectl("get service smollm2").map(drop))
        .await?;
    ensure!(routers()? == "2", "{} routers of 2", routers()?);
    bench.edit(r#"{"spec": {"router": {"replicas": 1}}}"#)?;
    bench
        .becomes(|| {
            ensure!(routers()? == "1", "{} routers of 1", routers()?);
            Ok(())
        })
        .await?;
    bench.kubectl("delete service smollm2")?;
    bench.kubectl("scale deployment smollm2-router --replicas=5")?;
    bench.kubectl("scale pdpool smollm2-prefill --replicas=3")?;
    bench
        .becomes(|| {
            bench.kubectl("get service smollm2")?;
            ensure!(routers()? == "1", "{} routers of 1", routers()?);
            let pool = bench.json("get pdpool smollm2-prefill")?;
            ensure!(pool["spec"]["replicas"] == 1, "{pool}");
            Ok(())
        })
        .await?;
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    let lost = uid(&bench.json("get pod smollm2-decode-0-1")?);
    bench.kubectl("delete pod smollm2-decode-0-1")?;
    bench
        .becomes(|| {
            let pods = bench.json("get pods -l pdserve.io/role=decode")?;
            let pods = pods["items"].as_array().context("no list")?;
            ensure!(pods.len() == 1 && uid(&pods[0]) != lost, "{pods:#?}");
            Ok(())
        })
        .await
}

/// Workers go first, then the deployment, then what it owned.
async fn takes_away(bench: &Bench) -> Result<()> {
    bench.kubectl("delete pdd smollm2 --wait=false")?;
    bench.has_pods(&[], &[]).await?;
    bench
        .becomes(|| {
            let deployments = bench.kubectl("get pdd -o name")?;
            ensure!(deployments.is_empty(), "{deployments}");
            Ok(())
        })
        .await?;
    bench
        .becomes_within(COLLECTED, || {
            let kinds = "pdp,pods,deploy,svc,secrets,serviceaccounts,rolebindings";
            for label in ["pdserve.io/deployment", "pdserve.io/shared"] {
                let left = bench.kubectl(&format!("get {kinds} -l {label} -o name"))?;
                ensure!(left.is_empty(), "{left}");
            }
            Ok(())
        })
        .await
}

#[tokio::test]
async fn a_deployment_becomes_objects_that_are_kept_restored_and_taken_away() -> Result<()> {
    let mut bench = Bench::start().await?;
    bench.apply_example()?;
    bench.has_pods(&["0-1"], &["0-1"]).await?;
    bench
        .becomes(|| {
            for object in [
                "deployment/smollm2-router",
                "service/smollm2",
                "serviceaccount/pdserve-routers",
                "rolebinding/pdserve-routers",
                "secret/smollm2-admin",
                "pdpool/smollm2-prefill",
                "pdpool/smollm2-decode",
            ] {
                bench.kubectl(&format!("get {object}"))?;
            }
            let status = bench.json("get pdd smollm2")?["status"].clone();
            ensure!(status["observedGeneration"] == 1, "{status}");
            ensure!(status["pools"]["decode"]["summary"] == "0/1", "{status}");
            Ok(())
        })
        .await?;
    eprintln!("{}", bench.kubectl("get pdd,pdp,pods,deploy,svc")?);

    rests(&mut bench).await?;
    restores(&bench).await?;
    let decode = bench.only_decode_slot()?;
    bench.edit(r#"{"spec": {"pools": {"prefill": {"replicas": 3}}}}"#)?;
    bench
        .has_pods(&["0-1", "1-1", "2-1"], &[decode.as_str()])
        .await?;
    bench.edit(r#"{"spec": {"pools": {"prefill": {"replicas": 1}}}}"#)?;
    bench.has_pods(&["0-1"], &[decode.as_str()]).await?;

    takes_away(&bench).await?;
    bench.stop()
}

#[tokio::test]
async fn what_belongs_to_others_is_left_alone_and_said() -> Result<()> {
    let bench = Bench::start().await?;
    bench.kubectl("create secret generic smollm2-admin --from-literal=token=theirs")?;
    bench.kubectl("create service clusterip smollm2 --tcp=80:80")?;
    bench.apply_example()?;
    let says = |text: &str| {
        let status = bench.json("get pdd smollm2")?["status"].clone();
        let conditions = status["conditions"].to_string();
        ensure!(conditions.contains(text), "no {text:?} in {conditions}");
        Ok(())
    };
    bench
        .becomes(|| says("Secret smollm2-admin exists and belongs to no one"))
        .await?;
    assert_eq!(bench.pods("prefill")?, Vec::<String>::new());
    bench.kubectl("delete secret smollm2-admin")?;
    bench
        .becomes(|| says("Service smollm2 exists and belongs to no one"))
        .await?;
    let service = bench.json("get service smollm2")?;
    assert_eq!(service["spec"]["ports"][0]["port"], 80);
    bench.stop()
}

/// Without an election two operators may run: a mistake that must cost nothing but their effort.
#[tokio::test]
async fn two_operators_without_an_election_make_one_deployment() -> Result<()> {
    let bench = Bench::start().await?;
    let second = start_operator(&bench.cluster, &[]).await?;
    bench.apply_example()?;
    bench.has_pods(&["0-1"], &["0-1"]).await?;
    bench.edit(r#"{"spec": {"pools": {"prefill": {"replicas": 3}}}}"#)?;
    bench.has_pods(&["0-1", "1-1", "2-1"], &["0-1"]).await?;
    bench.edit(r#"{"spec": {"pools": {"prefill": {"replicas": 1}}}}"#)?;
    bench.has_pods(&["0-1"], &["0-1"]).await?;
    // What each had under way comes to its end.
    tokio::time::sleep(AT_REST).await;
    let mark = bench.cluster.audit_log().mark();
    tokio::time::sleep(AT_REST).await;
    assert_eq!(bench.operator_writes(mark)?, vec![], "they undo each other");
    takes_away(&bench).await?;
    drop(second);
    bench.stop()
}
