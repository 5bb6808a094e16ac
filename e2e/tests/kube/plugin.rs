//! `kubectl pd` as a person with no more than the cluster's `edit` role has it.

use crate::stand::Stand;
use anyhow::{Result, ensure};
use pd_e2e::binaries::binary;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

/// The longest request of the traffic, on two busy cores.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Who asks: an account that may edit what is in its namespace.
pub(crate) struct Person {
    kubeconfig: PathBuf,
}

// === impl Person ===

impl Person {
    pub(crate) async fn new(stand: &Stand) -> Result<Self> {
        stand.kubectl("create serviceaccount person")?;
        stand.kubectl(
            "create rolebinding person --clusterrole=edit --serviceaccount=default:person",
        )?;
        let cluster = &stand.cluster;
        let kubeconfig = cluster.service_account_kubeconfig("default", "person");
        Ok(Self {
            kubeconfig: kubeconfig.await?,
        })
    }

    /// Who may do everything.
    pub(crate) fn admin(stand: &Stand) -> Self {
        Self {
            kubeconfig: stand.cluster.kubeconfig(),
        }
    }

    pub(crate) fn run(&self, words: &str) -> Result<Output> {
        let output = Command::new(binary("kubectl-pd"))
            .args(words.split(' '))
            .args(["--namespace", "default"])
            .env("KUBECONFIG", &self.kubeconfig)
            .output()?;
        Ok(output)
    }

    /// What `kubectl pd` prints.
    pub(crate) fn pd(&self, words: &str) -> Result<String> {
        let output = self.run(words)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl pd {words}: {error}");
        let text = String::from_utf8(output.stdout)?;
        eprintln!("$ kubectl pd {words}\n{text}");
        Ok(text)
    }

    /// What it says where it refuses.
    fn refused(&self, words: &str) -> Result<String> {
        let output = self.run(words)?;
        ensure!(!output.status.success(), "kubectl pd {words} went through");
        let text = String::from_utf8(output.stderr)?;
        eprintln!("$ kubectl pd {words}\n{text}");
        Ok(text)
    }
}

#[tokio::test]
async fn a_person_sees_understands_and_moves_a_deployment() -> Result<()> {
    let stand = Stand::start(1, 1).await?;
    let result = session(&stand).await;
    stand.end(result)
}

async fn session(stand: &Stand) -> Result<()> {
    let person = Person::new(stand).await?;
    let traffic = stand.traffic();

    // Once something was answered there are latencies to show.
    stand
        .becomes(|| {
            let shown = person.pd("status smollm2")?;
            let parts = ["smollm2-prefill-0-1", "smollm2-decode-0-1", "TTFT", "TPOT"];
            ensure!(parts.iter().all(|part| shown.contains(part)), "{shown}");
            Ok(())
        })
        .await?;
    let shown = person.pd("explain smollm2")?;
    ensure!(shown.contains("Nothing holds it back"), "{shown}");
    let refused = person.refused("explain none")?;
    ensure!(refused.contains("none"), "{refused}");

    // A worker leaves on request, its requests end well, and new ones go to the other.
    stand.edit(&json!({"spec": {"pools": {"decode": {"replicas": 2}}}}))?;
    stand.settled(1, 2).await?;
    person.pd("drain smollm2-decode-0-1 --wait")?;
    stand.settled(1, 2).await?;
    let workers = stand.workers("decode")?;
    ensure!(
        !workers.contains(&"smollm2-decode-0-1".to_owned()),
        "{workers:?}"
    );
    let router = stand.kubectl("get pods -l pdserve.io/role=router -o name")?;
    let router = router.trim().trim_start_matches("pod/");
    let refused = person.refused(&format!("drain {router}"))?;
    ensure!(refused.contains("is a router"), "{refused}");

    revisions(stand, &person).await?;
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    eprintln!(
        "{} answered, {} failed",
        tally.answered,
        tally.failures.len()
    );
    ensure!(tally.failures.is_empty(), "{:?}", tally.failures);
    suspends(stand, &person).await
}

/// Another revision, and back; one that is held says so.
async fn revisions(stand: &Stand, person: &Person) -> Result<()> {
    let first = stand.kubectl("get pdd smollm2 -o jsonpath={.status.revision.current}")?;
    let args = json!([
        {"name": "disable-radix-cache"}, {"name": "max-total-tokens", "value": "3072"},
    ]);
    stand.edit(&json!({"spec": {"pools": {"decode": {"args": args}}}}))?;
    stand.settled(1, 2).await?;
    let history = person.pd("rollout history smollm2")?;
    ensure!(
        history.contains(&first) && history.contains("3072"),
        "{history}"
    );
    person.pd("rollout undo smollm2")?;
    stand.settled(1, 2).await?;
    let now = stand.kubectl("get pdd smollm2 -o jsonpath={.status.revision.current}")?;
    ensure!(now == first, "{now} instead of {first}");

    person.pd("rollout pause smollm2")?;
    stand.edit(&json!({"spec": {"pools": {"decode": {"args": args}}}}))?;
    stand
        .becomes(|| {
            let shown = person.pd("explain smollm2")?;
            ensure!(shown.contains("paused"), "{shown}");
            Ok(())
        })
        .await?;
    person.pd("rollout resume smollm2")?;
    stand.settled(1, 2).await
}

/// Workers leave, and come back with what it keeps.
async fn suspends(stand: &Stand, person: &Person) -> Result<()> {
    stand.edit(&json!({"spec": {"suspend": true}}))?;
    stand
        .becomes(|| {
            let left = stand.workers("prefill")?.len() + stand.workers("decode")?.len();
            ensure!(left == 0, "{left} workers are left");
            let shown = person.pd("explain smollm2")?;
            ensure!(shown.contains("suspend"), "{shown}");
            Ok(())
        })
        .await?;
    stand.edit(&json!({"spec": {"suspend": null}}))?;
    stand.settled(1, 2).await
}
