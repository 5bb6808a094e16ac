//! Why a pod does not start, in the words of the component that knows: the scheduler, the
//! kubelet, or the program itself as it ended.

use crate::pod::{ContainerStatus, Pod};
use kube::ResourceExt;

/// What keeps a pod from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub cause: Cause,
    /// Names the pod, and says what is wrong.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It waits until it may have a node at all, as in a queue for quota.
    Queued,
    /// No node has room for it.
    Unschedulable,
    /// Its image or configuration cannot be had, or its program ends.
    Broken,
}

/// Waiting reasons of a container that is on its way.
const ON_ITS_WAY: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Says what keeps a pod from starting, if something does.
pub fn stuck(pod: &Pod) -> Option<Stuck> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .filter(|is| is.type_ == "PodScheduled" && is.status == "False")
        .find_map(|is| Some((cause(is.reason.as_deref()?)?, is)));
    let (cause, why) = if let Some((cause, condition)) = unscheduled {
        (cause, condition.message.clone().unwrap_or_default())
    } else {
        let first = status.init_container_statuses.iter().flatten();
        let mut containers = first.chain(status.container_statuses.iter().flatten());
        (Cause::Broken, containers.find_map(broken)?)
    };
    let name = pod.name_any();
    Some(Stuck {
        cause,
        message: format!("{name}: {}", why.trim()),
    })
}

/// What a reason for having no node means.
fn cause(reason: &str) -> Option<Cause> {
    match reason {
        "SchedulingGated" => Some(Cause::Queued),
        "Unschedulable" => Some(Cause::Unschedulable),
        _ => None,
    }
}

fn broken(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let waiting = state.waiting.as_ref();
    let waiting = waiting.filter(|waiting| {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        !reason.is_empty() && !ON_ITS_WAY.contains(&reason)
    });
    // Its last words say more than that it is started again.
    let last = container.last_state.as_ref();
    let ended = state.terminated.as_ref();
    let ended = ended.or(last.and_then(|last| last.terminated.as_ref()));
    let ended = ended.filter(|ended| ended.exit_code != 0 && !container.ready);
    let last_words = ended.and_then(|ended| {
        let message = ended.message.as_deref()?.trim();
        let line = message.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(format!("{} ended: {line}", container.name))
    });
    last_words
        .or_else(|| {
            let waiting = waiting?;
            let reason = waiting.reason.as_deref().unwrap_or_default();
            let message = waiting.message.as_deref().unwrap_or_default();
            Some(format!("{reason}: {message}"))
        })
        .or_else(|| ended.map(|ended| format!("{} ended with {}", container.name, ended.exit_code)))
}

#[cfg(test)]
mod tests {
    //! Facts about pods that do not start.

    use super::*;
    use serde_json::{Value, json};

    fn found(status: Value) -> Option<Stuck> {
        let pod = json!({"metadata": {"name": "p"}, "status": status});
        stuck(&serde_json::from_value(pod).expect("a Pod"))
    }

    fn mk_stuck(cause: Cause, message: &str) -> Option<Stuck> {
        Some(Stuck {
            cause,
            message: message.to_owned(),
        })
    }

    fn mk_container(fields: Value) -> Value {
        let mut container = json!({
            "name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        });
        let all = container.as_object_mut().expect("an object");
        all.extend(fields.as_object().expect("an object").clone());
        json!({"containerStatuses": [container]})
    }

    #[test]
    fn a_pod_that_starts_is_not_stuck() {
        assert_eq!(found(json!({})), None);
        let creating = json!({"state": {"waiting": {"reason": "ContainerCreating"}}});
        assert_eq!(found(mk_container(creating)), None);
        let running = json!({"ready": true, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "message": "was broken"}}});
        assert_eq!(found(mk_container(running)), None);
    }

    #[test]
    fn the_scheduler_says_what_lacks() {
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "2 Insufficient nvidia.com/gpu."});
        assert_eq!(
            found(json!({"conditions": [condition]})),
            mk_stuck(Cause::Unschedulable, "p: 2 Insufficient nvidia.com/gpu.")
        );
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "SchedulingGated", "message": "gated"});
        assert_eq!(
            found(json!({"conditions": [condition]})),
            mk_stuck(Cause::Queued, "p: gated")
        );
    }

    #[test]
    fn the_kubelet_says_which_image_cannot_be_had() {
        let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image x"});
        assert_eq!(
            found(mk_container(json!({"state": {"waiting": waiting}}))),
            mk_stuck(
                Cause::Broken,
                "p: ImagePullBackOff: Back-off pulling image x"
            )
        );
    }

    #[test]
    fn a_first_container_that_fails_is_what_keeps_the_others() {
        let ended = json!({"exitCode": 1, "message": "error: the hub does not answer"});
        let waiting = json!({"reason": "PodInitializing"});
        let mut status = mk_container(json!({"state": {"waiting": waiting}}));
        status["initContainerStatuses"] = json!([{
            "name": "fetch", "ready": false, "state": {"terminated": ended},
        }]);
        assert_eq!(
            found(status.clone()),
            mk_stuck(
                Cause::Broken,
                "p: fetch ended: error: the hub does not answer"
            )
        );
        let ended = json!({"exitCode": 0, "message": "{}"});
        status["initContainerStatuses"][0]["state"] = json!({"terminated": ended});
        assert_eq!(found(status), None);
    }

    #[test]
    fn a_program_that_ends_has_the_last_word() {
        let ended = json!({"exitCode": 1, "message": "INFO x\nerror: no model at /m\n"});
        let waiting = json!({"reason": "CrashLoopBackOff", "message": "back-off 10s"});
        let states = json!({"state": {"waiting": waiting}, "lastState": {"terminated": ended}});
        assert_eq!(
            found(mk_container(states)),
            mk_stuck(Cause::Broken, "p: agent ended: error: no model at /m")
        );
    }
}
