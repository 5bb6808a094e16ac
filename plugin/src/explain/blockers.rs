//! What holds a deployment back, from its own object, its pods, their nodes and figures: each in a sentence
//! that says what can be done, the most important first.

mod replacements;

use super::Dispositions;
use crate::metrics::Figures;
use crate::text::age;
use crate::view::View;
use crate::worker::{State, is_ready, leaving_since, node, why};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::drain::OnCordon;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_crds::scaling::ScalingMode;
use pd_crds::status::RevisionStatus;
use pd_crds::stuck::{Cause, stuck};
use pd_protocol::labels;
use replacements::{rotation, weights};
use std::collections::BTreeMap;

const FIND_OPERATOR: &str = "see whether one runs: \
    `kubectl get pods -A -l app.kubernetes.io/name=pdserve,app.kubernetes.io/component=operator`";

pub(super) fn blockers(view: &View, dispositions: &Dispositions, now: Timestamp) -> Vec<String> {
    let fetching = fetching(view);
    let is_made = view.pods.iter().any(has_role);
    if !fetching.is_empty() && !is_made {
        // There is nothing yet that could hold anything back.
        let before = [unseen(view), deleted(view, now), refused(view), fetching];
        return before.into_iter().flatten().collect();
    }
    let by_weight = [
        unseen(view),
        deleted(view, now),
        suspended(view),
        refused(view),
        fetching,
        stuck_pods(view),
        unpaired(view),
        overdue(view),
        routers(view),
        rollout(view),
        starting(view, now),
        leaving(view, now),
        nodes(view, dispositions),
        rotation(view),
        weights(view),
        scaling(view, now),
    ];
    let sentences: Vec<String> = by_weight.into_iter().flatten().collect();
    if sentences.is_empty() {
        return unexplained(view);
    }
    sentences
}

/// The sentence where nothing holds it back.
pub(super) fn nothing(view: &View) -> String {
    let pools = view.pools().into_iter().flatten();
    let serve: Vec<String> = pools
        .map(|(name, pool)| format!("{} of {} {name}", pool.routable, pool.desired))
        .collect();
    format!(
        "Nothing holds it back: {} workers serve.",
        serve.join(" and ")
    )
}

fn unseen(view: &View) -> Vec<String> {
    let generation = view.deployment.metadata.generation.unwrap_or_default();
    let seen = view.status().and_then(|status| status.observed_generation);
    match seen {
        None => vec![format!("No operator has taken it up yet; {FIND_OPERATOR}")],
        Some(seen) if seen < generation => vec![format!(
            "The operator has not taken up its last change (generation {generation}, seen {seen}); {FIND_OPERATOR}"
        )],
        Some(_) => Vec::new(),
    }
}

fn deleted(view: &View, now: Timestamp) -> Vec<String> {
    let deletion = view.deployment.metadata.deletion_timestamp.as_ref();
    let sentence = deletion.map(|since| {
        let workers = view.workers().count();
        let limit = view.deployment.spec.drain.timeout_seconds;
        format!(
            "It was deleted {} ago: {workers} workers finish their requests first, each within {limit} s.",
            age(since.0, now)
        )
    });
    sentence.into_iter().collect()
}

fn suspended(view: &View) -> Vec<String> {
    let name = view.deployment.name_any();
    let sentence = view.deployment.spec.suspend.then(|| {
        format!(
            "It is suspended (spec.suspend): its workers leave and none starts. To have them back: \
             `kubectl patch pdd {name} --type=merge -p '{{\"spec\": {{\"suspend\": false}}}}'`"
        )
    });
    sentence.into_iter().collect()
}

/// What the operator cannot carry out: `Ready` says so while nothing serves, else `Progressing`.
fn refused(view: &View) -> Vec<String> {
    let conditions = ["SpecValid", "Ready", "Progressing"].map(|name| view.condition(name));
    let found = conditions.into_iter().flatten().find_map(|condition| {
        let message = &condition.message;
        match condition.reason.as_str() {
            "InvalidSpec" => Some(format!(
                "The spec is refused, and what ran before goes on: {message}. Correct it: `kubectl edit pdd {}`",
                view.deployment.name_any()
            )),
            "CannotApply" => Some(format!("The operator cannot write what is needed: {message}")),
            _ => None,
        }
    });
    found.into_iter().collect()
}

/// Whether a pod is a worker or a router: of one that fetches a model, the model is spoken of.
fn has_role(pod: &Pod) -> bool {
    pod.labels().contains_key(labels::ROLE)
}

/// A model that is not there yet.
fn fetching(view: &View) -> Vec<String> {
    let model = view.status().and_then(|status| status.model.as_ref());
    let model = model.filter(|model| !model.is_fetched());
    let sentence = model.map(|model| {
        if model.is_resolved() {
            return format!(
                "The model {} at {} is on its way to its workers' nodes, and their engines start when it is there: {}.",
                model.repo, model.commit, model.message
            );
        }
        let meanwhile = match view.workers().count() {
            0 => "workers are made when it is",
            _ => "what runs stays until it is",
        };
        format!(
            "The model {} at {} is not on its volume yet, and {meanwhile}: {}.",
            model.repo, model.revision, model.message
        )
    });
    sentence.into_iter().collect()
}

/// Pods that cannot start, those with one cause together; no node before no image.
fn stuck_pods(view: &View) -> Vec<String> {
    let mut by_cause: BTreeMap<(Cause, String), Vec<&Pod>> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| has_role(pod) && stays(pod)) {
        if let Some(stuck) = stuck(pod) {
            let cause = (stuck.cause, why(pod, &stuck));
            by_cause.entry(cause).or_default().push(pod);
        }
    }
    let old_serves = view
        .condition("Progressing")
        .is_some_and(|it| it.reason == "NoSurgeCapacity");
    let sentences = by_cause.into_iter().map(|((cause, why), pods)| {
        let names = names(&pods);
        match cause {
            Cause::Unschedulable if old_serves => format!(
                "No node has room for {names}: {why} The old revision serves until there is; with \
                 spec.rollout.maxSurge 0 and maxUnavailable 1 its workers make room."
            ),
            Cause::Unschedulable => format!(
                "No node has room for {names}: {why} Add nodes, free some, or ask for fewer replicas."
            ),
            Cause::Queued => format!(
                "{names} may have no node yet: {why} With spec.scheduling.queue the condition Progressing says what Kueue \
                 waits for."
            ),
            Cause::Broken => {
                let first = pods.first().map(|pod| pod.name_any()).unwrap_or_default();
                format!("{names} cannot start: {why}; `kubectl describe pod {first}` says more.")
            }
        }
    });
    sentences.collect()
}

/// Workers that run and yet are not used.
fn unpaired(view: &View) -> Vec<String> {
    let progressing = view.condition("Progressing");
    let found = progressing.filter(|it| it.reason == "KvDoesNotArrive");
    let sentence = found.map(|condition| {
        format!(
            "A worker runs, but its KV cache reaches no peer, so it is not counted: {}. See to the \
             network between them (spec.kv.transport, firewalls, NICs), or go back.",
            condition.message
        )
    });
    sentence.into_iter().collect()
}

fn overdue(view: &View) -> Vec<String> {
    let progressing = view.condition("Progressing");
    if progressing.is_none_or(|it| it.reason != "ProgressDeadlineExceeded") {
        return Vec::new();
    }
    let deadline = view.deployment.spec.rollout.progress_deadline_seconds;
    let back = match between_revisions(view) {
        Some(_) => format!(
            " `kubectl pd rollout undo {}` goes back.",
            view.deployment.name_any()
        ),
        None => String::new(),
    };
    vec![format!(
        "Nothing went forward for {deadline} s (spec.rollout.progressDeadlineSeconds).{back}"
    )]
}

fn routers(view: &View) -> Vec<String> {
    let ready = view.routers().filter(|pod| is_ready(pod)).count();
    // Where the number is left to others, those that there are.
    let wanted = view.deployment.spec.router.replicas;
    let wanted = wanted.map_or_else(
        || view.routers().count().max(1),
        |wanted| usize::try_from(wanted).unwrap_or(0),
    );
    if view.status().is_none() || ready >= wanted {
        return Vec::new();
    }
    vec![format!(
        "{ready} of {wanted} routers are ready; `kubectl describe deployment {}-router` says more.",
        view.deployment.name_any()
    )]
}

fn rollout(view: &View) -> Vec<String> {
    let Some(RevisionStatus { current, update }) = between_revisions(view) else {
        return Vec::new();
    };
    let pools = view.pools().into_iter().flatten();
    let replaced: Vec<String> = pools
        .map(|(name, pool)| format!("{name} {} of {}", pool.updated, pool.desired))
        .collect();
    let replaced = replaced.join(", ");
    let sentence = if view.deployment.spec.rollout.paused {
        format!(
            "The rollout from {current} to {update} is paused with {replaced} replaced; `kubectl pd rollout resume {}` lets it go on.",
            view.deployment.name_any()
        )
    } else {
        format!("A rollout from {current} to {update} is under way: {replaced} are replaced.")
    };
    vec![sentence]
}

fn starting(view: &View, now: Timestamp) -> Vec<String> {
    let workers = view.workers().filter(|(_, pod)| stuck(pod).is_none());
    let sentences = workers.filter_map(|(_, pod)| {
        let name = pod.name_any();
        match State::of(pod) {
            State::Starting(why) => {
                let created = pod.creation_timestamp();
                let since = created.map_or_else(String::new, |time| age(time.0, now));
                Some(format!("{name} has been starting for {since}: {why}."))
            }
            State::Failing(why) => Some(format!(
                "{name} no longer serves: {why}; `kubectl logs {name}` says more."
            )),
            State::Serving | State::Leaving(_) => None,
        }
    });
    sentences.collect()
}

fn leaving(view: &View, now: Timestamp) -> Vec<String> {
    let limit = view.deployment.spec.drain.timeout_seconds;
    let sentences = view.workers().filter_map(|(_, pod)| {
        let since = leaving_since(pod)?;
        let (name, age) = (pod.name_any(), age(since, now));
        let is_late = now.duration_since(since).as_secs() > i64::from(limit);
        Some(if is_late {
            format!(
                "{name} has been leaving for {age}, longer than the {limit} s of spec.drain.timeoutSeconds; `kubectl describe pod {name}` says more."
            )
        } else {
            format!("{name} has been leaving for {age}: its requests have {limit} s to finish.")
        })
    });
    sentences.collect()
}

fn nodes(view: &View, dispositions: &Dispositions) -> Vec<String> {
    let mut on_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    let staying = view.workers().filter(|(_, pod)| stays(pod));
    for (_, pod) in staying {
        if let Some(node) = node(pod) {
            on_node.entry(node).or_default().push(pod);
        }
    }
    let on_cordon = view.deployment.spec.drain.on_cordon;
    let sentences = on_node.into_iter().filter_map(|(node, pods)| {
        let names = names(&pods);
        match (dispositions.get(node)?, on_cordon) {
            (NodeDisposition::Keep, _) => None,
            (NodeDisposition::Lost, _) => Some(format!(
                "Node {node} is silent: its workers count as lost and are replaced: {names}."
            )),
            (NodeDisposition::Evacuate, OnCordon::Move) => Some(format!(
                "Node {node} is to be emptied: its workers leave once others serve elsewhere: {names}."
            )),
            (NodeDisposition::Evacuate, OnCordon::Ignore) => Some(format!(
                "Node {node} is to be emptied, but spec.drain.onCordon is Ignore: its workers stay until they are evicted: {names}."
            )),
        }
    });
    sentences.collect()
}

/// What keeps the autoscaler from doing more.
fn scaling(view: &View, now: Timestamp) -> Vec<String> {
    let mode = view.deployment.spec.autoscaling.mode;
    let decision = view.status().and_then(|status| status.decisions.first());
    let (Some(decision), ScalingMode::Auto | ScalingMode::Advise) = (decision, mode) else {
        return Vec::new();
    };
    let (ago, message) = (age(decision.time.0, now), &decision.message);
    let sentence = if mode == ScalingMode::Advise && decision.from != decision.to {
        Some(format!(
            "The autoscaler advised {ago} ago: {message}; spec.autoscaling.mode Advise leaves it to you."
        ))
    } else if decision.limited_by == "None" {
        None
    } else {
        let limit = &decision.limited_by;
        Some(format!(
            "The autoscaler went no further {ago} ago ({limit}): {message}."
        ))
    };
    sentence.into_iter().collect()
}

/// Workers of a model with recurrent state that have none left for the requests that wait.
pub(super) fn slots(figures: &Figures) -> Option<String> {
    let lacking = figures.workers.iter().filter_map(|(name, worker)| {
        let (used, total) = worker.lacks_slots()?;
        Some(format!("{name} ({used} of {total} in use)"))
    });
    let lacking: Vec<String> = lacking.collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "Requests wait for slots of recurrent state while pages of KV are free on {}. Raise max-mamba-cache-size or \
             mamba-full-memory-ratio in the workers' args, or add replicas.",
            lacking.join(", ")
        )
    })
}

/// What the conditions say, where nothing else explains them.
fn unexplained(view: &View) -> Vec<String> {
    let wanted = [("Ready", "True"), ("Progressing", "False")];
    let unmet = wanted.into_iter().find_map(|(name, status)| {
        let condition = view.condition(name)?;
        let message = &condition.message;
        (condition.status != status).then(|| format!("{}: {message}.", condition.reason))
    });
    unmet.into_iter().collect()
}

fn between_revisions(view: &View) -> Option<&RevisionStatus> {
    let revision = &view.status()?.revision;
    (revision.current != revision.update).then_some(revision)
}

fn stays(pod: &Pod) -> bool {
    leaving_since(pod).is_none()
}

fn names(pods: &[&Pod]) -> String {
    let names: Vec<String> = pods.iter().map(|pod| pod.name_any()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
