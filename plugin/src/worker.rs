//! Where a worker stands in its life, as its pod's own object says.

use crate::text::age;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pd_crds::pod::Pod;
use pd_crds::stuck::{Stuck, stuck};
use pd_protocol::labels;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Every router sends to it.
    Serving,
    /// On its way to serve, and what it waits for.
    Starting(String),
    /// It has served, and what is wrong now.
    Failing(String),
    /// It was asked to leave.
    Leaving(Timestamp),
}

// === impl State ===

impl State {
    pub(crate) fn of(worker: &Pod) -> Self {
        if let Some(since) = leaving_since(worker) {
            return Self::Leaving(since);
        }
        if let Some(stuck) = stuck(worker) {
            return Self::Starting(why(worker, &stuck));
        }
        let was_routable = holds(worker, labels::ROUTABLE_GATE);
        let is_up = holds(worker, "ContainersReady");
        let phase = worker.status.as_ref().and_then(|s| s.phase.as_deref());
        match (was_routable, is_up) {
            (true, true) => Self::Serving,
            (true, false) => Self::Failing("its container does not pass its probe".to_owned()),
            (false, true) => Self::Starting("waits until every router sends to it".to_owned()),
            (false, false) => Self::Starting(match phase {
                Some("Running") => "loads its model".to_owned(),
                Some("Failed" | "Succeeded") => "its program has ended".to_owned(),
                Some(_) | None if node(worker).is_some() => "waits for its container".to_owned(),
                Some(_) | None => "waits for a node".to_owned(),
            }),
        }
    }

    pub(crate) fn describe(&self, now: Timestamp) -> String {
        match self {
            Self::Serving => "serving".to_owned(),
            Self::Starting(why) => format!("starting: {why}"),
            Self::Failing(why) => format!("failing: {why}"),
            Self::Leaving(since) => format!("leaving for {}", age(*since, now)),
        }
    }
}

/// What keeps a pod from starting, without its name.
pub(crate) fn why(pod: &Pod, stuck: &Stuck) -> String {
    let named = format!("{}: ", pod.name_any());
    let message = stuck.message.strip_prefix(&named);
    message.unwrap_or(&stuck.message).to_owned()
}

/// When a pod was asked to leave, by the operator or by a deletion.
pub(crate) fn leaving_since(pod: &Pod) -> Option<Timestamp> {
    let marked = pod.annotations().get(labels::LEAVING_SINCE);
    let marked = marked.map(|since| since.parse().unwrap_or(Timestamp::UNIX_EPOCH));
    marked.or_else(|| {
        // A deletion is dated by the end of its grace.
        let deletion = pod.metadata.deletion_timestamp.as_ref()?.0;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        deletion.checked_sub(SignedDuration::from_secs(grace)).ok()
    })
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    holds(pod, "Ready")
}

pub(crate) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn holds(pod: &Pod, condition: &str) -> bool {
    let is_true = |it: &PodCondition| it.type_ == condition && it.status == "True";
    let status = pod.status.as_ref();
    let mut conditions = status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.any(is_true)
}

#[cfg(test)]
mod tests {
    //! Facts about states.

    use super::*;
    use crate::fixture::{at, leaving, loading, serving, unschedulable};
    use serde_json::json;

    fn described(pod: &Pod) -> String {
        State::of(pod).describe(at("12:00:00"))
    }

    #[test]
    fn a_worker_is_somewhere_between_its_node_and_its_leave() {
        assert_eq!(described(&serving("p", "prefill")), "serving");
        assert_eq!(
            described(&loading("p", "prefill")),
            "starting: loads its model"
        );
        assert_eq!(
            described(&unschedulable("p", "prefill")),
            "starting: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        );
        assert_eq!(
            described(&leaving("p", "prefill", "11:59:18")),
            "leaving for 42s"
        );
    }

    #[test]
    fn who_deletes_a_pod_makes_it_leave_from_that_moment() {
        let mut pod = serving("p", "decode");
        let deletion =
            json!({"deletionTimestamp": "2026-01-02T12:05:00Z", "deletionGracePeriodSeconds": 330});
        let deletion: Pod = serde_json::from_value(json!({"metadata": deletion})).unwrap();
        pod.metadata.deletion_timestamp = deletion.metadata.deletion_timestamp;
        pod.metadata.deletion_grace_period_seconds =
            deletion.metadata.deletion_grace_period_seconds;
        assert_eq!(described(&pod), "leaving for 30s");
    }

    #[test]
    fn a_worker_that_served_and_fails_its_probe_is_no_starter() {
        let mut pod = serving("p", "decode");
        let status = pod.status.as_mut().unwrap();
        let conditions = status.conditions.as_mut().unwrap();
        conditions.retain(|condition| condition.type_ == labels::ROUTABLE_GATE);
        assert_eq!(
            described(&pod),
            "failing: its container does not pass its probe"
        );
    }
}
