//! The operator's network policies, kept by kube-router, as clusters keep them: what a deployment needs passes, and nothing else
//! reaches a worker.

use crate::engines::{HOST_FOLDERS, mounted};
use crate::stand::{Site, Stand, deployment};
use anyhow::{Result, ensure};
use pd_e2e::fleet::eventually;
use pd_protocol::{labels, ports};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The chart's value that has policies made for workers and routers.
pub(crate) const MADE: &str = "networkPolicy.workloads=true";
/// kube-router learns of a pod or a label in about a second.
const SOON: Duration = Duration::from_secs(60);
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Workers listen for each other from here on, and routers ask here.
const WORKER_PORTS: [u16; 3] = [ports::HTTP, ports::ADMIN, ports::BOOTSTRAP];
/// Where routers listen.
const ROUTER_PORT: u16 = 8000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_are_reached_by_their_own_alone() -> Result<()> {
    let site = Site {
        settings: vec![MADE.to_owned()],
        policies: true,
        ..Site::default()
    };
    // Each worker waits until KV was seen to move, so peers, routers and the operator reach whom they must.
    let stand = Stand::on(&site, &deployment(1, 1)).await?;
    let result = stranger_stays_out(&stand).await;
    stand.end(result)
}

async fn stranger_stays_out(stand: &Stand) -> Result<()> {
    let traffic = stand.traffic();
    apply_stranger(stand)?;
    let prefill = ip(stand, "prefill")?;
    let router = ip(stand, "router")?;
    eventually(SOON, || async {
        let answer = ask(stand, STRANGER, router, ROUTER_PORT)?;
        ensure!(answer.is_some(), "a client does not reach the router");
        Ok(())
    })
    .await?;
    for port in WORKER_PORTS {
        let answer = ask(stand, STRANGER, prefill, port)?;
        ensure!(
            answer.is_none(),
            "a stranger gets of port {port} {answer:?}"
        );
    }
    // What kept it out is the policy: a pod in a router's clothes is let in.
    let role = labels::ROLE;
    stand.kubectl(&format!("label pod {STRANGER} {role}=router"))?;
    eventually(SOON, || async {
        for port in WORKER_PORTS {
            let answer = ask(stand, STRANGER, prefill, port)?;
            ensure!(answer.is_some(), "a router does not reach port {port}");
        }
        Ok(())
    })
    .await?;
    eprintln!("{}", stand.kubectl("get networkpolicies,pods -o wide")?);
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    let failures = tally.failures;
    ensure!(failures.is_empty(), "{failures:#?}");
    eprintln!("{} answered meanwhile, none failed", tally.answered);
    Ok(())
}

/// A pod of no deployment, with this machine's shell.
pub(crate) const STRANGER: &str = "stranger";

pub(crate) fn apply_stranger(stand: &Stand) -> Result<()> {
    let (volumes, mounts) = mounted(&HOST_FOLDERS);
    stand.apply(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": STRANGER},
        "spec": {
            "containers": [{
                "name": STRANGER,
                "image": format!("pdserve:{}", env!("CARGO_PKG_VERSION")),
                "command": ["/usr/bin/sleep", "3600"],
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
            "terminationGracePeriodSeconds": 0,
        },
    }))?;
    let ready = format!("wait pod/{STRANGER} --for=condition=Ready --timeout=60s");
    stand.kubectl(&ready)?;
    Ok(())
}

/// The first line that `pod` gets from an address over HTTP, empty where it is not HTTP; nothing where it does not get there.
pub(crate) fn ask(stand: &Stand, pod: &str, ip: Ipv4Addr, port: u16) -> Result<Option<String>> {
    let script = format!(
        "PATH=/usr/bin; if {{ exec 3<>/dev/tcp/{ip}/{port}; }} 2>/dev/null; then echo reached; \
         printf 'GET /v1/models HTTP/1.0\\r\\n\\r\\n' >&3; timeout 2 head -n 1 <&3; fi; true"
    );
    let words = [
        "exec",
        pod,
        "--",
        "/usr/bin/timeout",
        "5",
        "/usr/bin/bash",
        "-c",
        &script,
    ];
    match stand.cluster.kubectl(&words) {
        Ok(said) => {
            let mut lines = said.lines();
            let reached = lines.next().is_some();
            Ok(reached.then(|| lines.next().unwrap_or_default().to_owned()))
        }
        // Its packets were dropped.
        Err(e) if e.to_string().contains("exit code 124") => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) fn ip(stand: &Stand, role: &str) -> Result<Ipv4Addr> {
    let path = "jsonpath={.items[0].status.podIP}";
    let said = stand.kubectl(&format!("get pods -l {}={role} -o {path}", labels::ROLE))?;
    Ok(said.parse()?)
}
