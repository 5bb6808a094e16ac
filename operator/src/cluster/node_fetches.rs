//! How far the nodes are that keep a model themselves: each worker's first container fetches what its node lacks, and
//! answers how far it is.

use super::facts::PodFacts;
use super::models::ANSWER_LIMIT;
use super::snapshot::Snapshot;
use crate::controller::build::fetch::CONTAINER;
use crate::http_client::HttpClient;
use futures::future::join_all;
use http::Method;
use k8s_openapi::api::core::v1::ContainerState;
use kube::ResourceExt;
use pd_crds::pod::Pod;
use pd_crds::status::ModelStatus;
use pd_hub::{Bytes, Report};
use pd_protocol::ports::WorkerPorts;
use std::net::SocketAddr;

/// What the workers of a deployment say of its model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeFetches {
    /// Those that fetch, by pod; nothing of one that does not answer.
    under_way: Vec<(String, Option<Report>)>,
    /// Workers whose nodes have all of it.
    ended: usize,
}

/// Asks those that fetch, where nodes keep the model.
pub(super) async fn observe(snapshot: &Snapshot<'_>, client: &HttpClient) -> NodeFetches {
    let model = snapshot.effective.model.as_ref();
    if model.is_none_or(|model| model.host_path.is_empty() || !model.is_resolved()) {
        return NodeFetches::default();
    }
    let workers = snapshot.pods.iter().filter(|facts| facts.is_worker());
    let pods: Vec<&Pod> = workers
        .filter(|facts| !facts.leaves())
        .flat_map(PodFacts::members)
        .map(AsRef::as_ref)
        .collect();
    let fetching = pods.iter().filter(|pod| is_under_way(pod));
    let under_way = join_all(fetching.map(|pod| async {
        let report = ask(client, pod).await;
        (pod.name_any(), report)
    }));
    NodeFetches {
        under_way: under_way.await,
        ended: pods.iter().filter(|pod| has_ended(pod)).count(),
    }
}

fn state(pod: &Pod) -> Option<&ContainerState> {
    let mut containers = pod
        .status
        .as_ref()?
        .init_container_statuses
        .iter()
        .flatten();
    let fetch = containers.find(|container| container.name == CONTAINER)?;
    fetch.state.as_ref()
}

fn is_under_way(pod: &Pod) -> bool {
    state(pod).is_some_and(|state| state.running.is_some())
}

fn has_ended(pod: &Pod) -> bool {
    let ended = state(pod).and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

async fn ask(client: &HttpClient, pod: &Pod) -> Option<Report> {
    let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let address = SocketAddr::new(ip, WorkerPorts::of(pod.annotations()).http);
    let url = format!("http://{address}/progress");
    let answer = client.call(Method::GET, &url, None, ANSWER_LIMIT).await;
    answer.ok()
}

// === impl NodeFetches ===

impl NodeFetches {
    /// Whether one goes on: it ends by itself where it cannot.
    pub(super) fn go_on(&self) -> bool {
        self.under_way.iter().any(|(_, report)| report.is_some())
    }

    /// Writes into a model's status how far the one is that lacks most.
    pub(super) fn write_to(&self, model: &mut ModelStatus) {
        let known = self.under_way.iter();
        let known = known.filter_map(|(pod, report)| Some((pod, report.as_ref()?)));
        let known = known.filter(|(_, report)| report.total_bytes > 0);
        let last = known.min_by_key(|(_, report)| report.bytes);
        let others = self.under_way.len().saturating_sub(1);
        if let Some((pod, report)) = last {
            model.bytes = bytes(report.bytes);
            model.total_bytes = bytes(report.total_bytes);
            model.message = match others {
                0 => format!("{pod} fetches the model to its node: {report}"),
                _ => format!("{pod} and {others} more fetch the model to their nodes: {report}"),
            };
        } else if self.under_way.is_empty() && self.ended > 0 {
            model.bytes = model.total_bytes;
            let total = Bytes(u64::try_from(model.total_bytes).unwrap_or(0));
            model.message = format!("{total}, on the node of each worker");
        }
    }
}

fn bytes(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    //! Facts about fetches of several nodes.

    use super::*;
    use pd_hub::Phase;
    use serde_json::{Value, json};

    fn mk_report(bytes: u64) -> Option<Report> {
        Some(Report {
            phase: Phase::Fetching,
            bytes,
            total_bytes: 16_000_000_000,
            ..Report::default()
        })
    }

    fn mk_resolved() -> ModelStatus {
        ModelStatus {
            commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
            host_path: "/mnt/nvme".to_owned(),
            total_bytes: 16_000_000_000,
            message: "asked".to_owned(),
            ..ModelStatus::default()
        }
    }

    /// What the status says after these fetches, and whether all is there.
    fn said(under_way: &[(&str, Option<Report>)], ended: usize) -> (String, bool) {
        let under_way = under_way.iter();
        let fetches = NodeFetches {
            under_way: under_way
                .map(|(pod, it)| ((*pod).to_owned(), it.clone()))
                .collect(),
            ended,
        };
        let mut model = mk_resolved();
        fetches.write_to(&mut model);
        (model.message.clone(), model.is_fetched())
    }

    #[test]
    fn the_status_says_how_far_the_slowest_node_is() {
        let both = [
            ("p", mk_report(9_000_000_000)),
            ("d", mk_report(4_000_000_000)),
        ];
        assert_eq!(
            said(&both, 1),
            (
                "d and 1 more fetch the model to their nodes: 25 % of 16 GB".to_owned(),
                false
            )
        );
        let one = [("p", mk_report(8_000_000_000))];
        assert_eq!(
            said(&one, 1),
            (
                "p fetches the model to its node: 50 % of 16 GB".to_owned(),
                false
            )
        );
    }

    #[test]
    fn what_is_not_known_yet_is_not_said() {
        let asked = ("asked".to_owned(), false);
        assert_eq!(said(&[], 0), asked);
        assert_eq!(said(&[("p", None)], 1), asked);
        assert_eq!(said(&[("p", Some(Report::default()))], 0), asked);
    }

    #[test]
    fn a_pod_fetches_while_its_first_container_runs() {
        let of = |state: Value| {
            let first = json!([{"name": "fetch", "state": state}]);
            let pod = json!({"status": {"initContainerStatuses": first}});
            let pod: Pod = serde_json::from_value(pod).expect("a Pod");
            (is_under_way(&pod), has_ended(&pod))
        };
        assert_eq!(of(json!({"running": {}})), (true, false));
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(of(waiting), (false, false));
        assert_eq!(of(json!({"terminated": {"exitCode": 1}})), (false, false));
        assert_eq!(of(json!({"terminated": {"exitCode": 0}})), (false, true));
        assert!(!is_under_way(&Pod::default()) && !has_ended(&Pod::default()));
    }

    #[test]
    fn it_is_there_once_no_worker_fetches() {
        let there = ("16 GB, on the node of each worker".to_owned(), true);
        assert_eq!(said(&[], 2), there);
    }
}
