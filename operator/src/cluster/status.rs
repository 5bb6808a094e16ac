//! The status of a deployment and of its pools, as functions of what was observed.

use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, Observed, ObservedPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pd_crds::status::{Decision, PdDeploymentStatus, PoolStatus, PoolsStatus, RevisionStatus};
use pd_crds::stuck::{Cause, Stuck};
use pd_crds::{PdDeployment, PdPoolStatus};

/// Reasons of a deployment that cannot be carried out.
pub(crate) const CANNOT_APPLY: &str = "CannotApply";
pub(crate) const INVALID_SPEC: &str = "InvalidSpec";
/// Reasons of `Progressing` that decide what `Reconciling` and `Stalled` say.
const AS_WANTED: &str = "AsWanted";
const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

/// What the status says beside the pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusInputs {
    /// Routers that are ready, of those wanted.
    pub(crate) routers: (i32, i32),
    pub(crate) endpoint: String,
    /// Revision of both pools together that the spec asks for.
    pub(crate) revision: String,
    pub(crate) suspended: bool,
    /// Why the spec's last edit is not carried out, and the one before is.
    pub(crate) refused: Option<String>,
    /// Which workers run another image than new ones would.
    pub(crate) drifted: Option<String>,
    /// Whether a router runs that is not as the spec wants it.
    pub(crate) replaces_routers: bool,
    /// What the last writes ran into; nothing if all went well.
    pub(crate) trouble: Option<String>,
    /// What keeps the first pod that does not start from starting.
    pub(crate) stuck: Option<Stuck>,
    /// Why a worker that runs is not admitted: its KV reaches no peer.
    pub(crate) unpaired: Option<String>,
    /// The last decisions of the autoscaler.
    pub(crate) decisions: Vec<Decision>,
    /// When something last went forward.
    pub(crate) progressed: Option<Timestamp>,
}

// === impl StatusInputs ===

impl StatusInputs {
    /// What keeps a worker from serving, in the words of the component that knows.
    fn obstacle(&self) -> Option<&str> {
        let stuck = self.stuck.as_ref().map(|stuck| stuck.message.as_str());
        stuck.or(self.unpaired.as_deref())
    }
}

/// How far the routers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Routers {
    AsWanted,
    /// Some start or are replaced.
    Move,
    /// They have done so for longer than a rollout may take.
    Overdue,
}

/// One condition before it is dated.
struct Claim {
    name: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// The status of a deployment that could be built.
pub(crate) fn status(
    deployment: &PdDeployment,
    desired: &[Desired],
    observed: &Observed,
    inputs: &StatusInputs,
    now: Timestamp,
) -> PdDeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let pool = |component| pool_status(component, desired, &observed.pods);
    let pools = PoolsStatus {
        prefill: pool(Component::Prefill),
        decode: pool(Component::Decode),
    };
    let replaced = |pool: &PoolStatus| pool.updated == pool.current;
    let revision = RevisionStatus {
        current: if before.revision.current.is_empty()
            || (replaced(&pools.prefill) && replaced(&pools.decode))
        {
            inputs.revision.clone()
        } else {
            before.revision.current.clone()
        },
        update: inputs.revision.clone(),
    };
    // While a revision is replaced, the newer one is reported.
    let is_wanted = |name: &str| {
        let mut pods = observed.pods.iter().filter(|pod| pod.name == name);
        pods.any(|pod| {
            let mut pools = desired.iter();
            pools.any(|pool| pool.component == pod.component && pool.revision == pod.revision)
        })
    };
    let kv_compat = observed
        .routers
        .iter()
        .flat_map(|router| router.workers.iter().flatten())
        .filter(|worker| is_wanted(&worker.spec.id))
        .find_map(|worker| worker.kv_compat.clone());
    PdDeploymentStatus {
        observed_generation: deployment.metadata.generation,
        conditions: date(
            claims(deployment, &pools, inputs, now),
            deployment,
            &before.conditions,
            now,
        ),
        endpoint: Some(inputs.endpoint.clone()),
        kv_compat: kv_compat.or(before.kv_compat),
        revision,
        decisions: inputs.decisions.clone(),
        pools,
    }
}

/// The status of a deployment that cannot be carried out for a reason: what runs goes on running.
pub(crate) fn refused(
    deployment: &PdDeployment,
    reason: &'static str,
    message: &str,
    now: Timestamp,
) -> PdDeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let claim = |name, holds| Claim {
        name,
        holds,
        reason,
        message: message.to_owned(),
    };
    let mut claims = vec![claim("Ready", false), claim("Progressing", false)];
    let is_invalid = reason == INVALID_SPEC;
    let invalid = is_invalid.then(|| claim("SpecValid", false));
    claims.push(invalid.unwrap_or_else(|| spec_claim(None)));
    claims.push(claim("Reconciling", !is_invalid));
    claims.push(claim("Stalled", is_invalid));
    PdDeploymentStatus {
        observed_generation: deployment.metadata.generation,
        conditions: date(claims, deployment, &before.conditions, now),
        ..before
    }
}

/// Whether a reason of `Ready` says that something is wrong, and not only on its way.
pub(crate) fn is_trouble(reason: &str) -> bool {
    matches!(reason, CANNOT_APPLY | INVALID_SPEC)
}

/// Whether something is to go forward.
pub(crate) fn is_progressing(status: &PdDeploymentStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|is| {
        ["Progressing", "Reconciling"].contains(&is.type_.as_str()) && is.status == "True"
    })
}

/// The status of one pool's own object.
pub(crate) fn of_pool(
    status: &PoolStatus,
    selector: String,
    generation: Option<i64>,
) -> PdPoolStatus {
    PdPoolStatus {
        observed_generation: generation,
        replicas: status.current,
        ready: status.ready,
        routable: status.routable,
        draining: status.draining,
        selector,
    }
}

fn pool_status(component: Component, desired: &[Desired], pods: &[ObservedPod]) -> PoolStatus {
    let wanted = desired.iter().find(|pool| pool.component == component);
    let count = |holds: &dyn Fn(&ObservedPod) -> bool| {
        let pods = pods.iter().filter(|pod| pod.component == component);
        i32::try_from(pods.filter(|pod| holds(pod)).count()).unwrap_or(i32::MAX)
    };
    let stays = |pod: &ObservedPod| pod.leaving.is_none();
    let replicas = wanted.map_or(0, |pool| i32::try_from(pool.replicas).unwrap_or(i32::MAX));
    let routable = count(&ObservedPod::serves);
    PoolStatus {
        desired: replicas,
        current: count(&stays),
        ready: count(&|pod| stays(pod) && pod.ready),
        routable,
        draining: count(&|pod| pod.leaving.is_some()),
        updated: count(&|pod| {
            stays(pod) && wanted.is_some_and(|pool| pool.revision == pod.revision)
        }),
        summary: format!("{routable}/{replicas}"),
    }
}

fn claims(
    deployment: &PdDeployment,
    pools: &PoolsStatus,
    inputs: &StatusInputs,
    now: Timestamp,
) -> Vec<Claim> {
    let (routers_ready, routers_wanted) = inputs.routers;
    let all_ready = routers_ready >= routers_wanted;
    let is_overdue = is_overdue(deployment, inputs, now);
    let progressing = progressing_claim(pools, inputs, is_overdue);
    let moves = inputs.replaces_routers || !all_ready && !inputs.suspended;
    let routers = match (moves, is_overdue) {
        (false, _) => Routers::AsWanted,
        (true, false) => Routers::Move,
        (true, true) => Routers::Overdue,
    };
    let [reconciling, stalled] = kstatus_claims(deployment, inputs, &progressing, routers);
    vec![
        ready_claim(pools, inputs),
        spec_claim(inputs.refused.as_deref()),
        reconciling,
        stalled,
        progressing,
        pool_claim("PrefillReady", &pools.prefill),
        pool_claim("DecodeReady", &pools.decode),
        Claim {
            name: "RouterReady",
            holds: all_ready,
            reason: if all_ready { "AllReady" } else { "NotAllReady" },
            message: format!("{routers_ready} of {routers_wanted} routers are ready"),
        },
        images_claim(deployment, inputs.drifted.as_deref()),
    ]
}

/// Whether the spec is carried out as it is.
fn spec_claim(refused: Option<&str>) -> Claim {
    Claim {
        name: "SpecValid",
        holds: refused.is_none(),
        reason: refused.map_or("Valid", |_| INVALID_SPEC),
        message: refused.map_or_else(
            || "the spec is carried out".to_owned(),
            |why| format!("the last valid spec is kept up; {why}"),
        ),
    }
}

/// Whether replicas of one revision run one image. A newer operator brings a newer one, and replaces
/// no running pod for it.
fn images_claim(deployment: &PdDeployment, drifted: Option<&str>) -> Claim {
    let name = deployment.name_any();
    Claim {
        name: "ImagesAlike",
        holds: drifted.is_none(),
        reason: drifted.map_or("Alike", |_| "ImageDrift"),
        message: drifted.map_or_else(
            || "workers and routers of the wanted revision run one image".to_owned(),
            |drifted| format!("{drifted}; `kubectl pd restart {name}` replaces them step by step"),
        ),
    }
}

/// The two conditions by which Flux, Argo CD and `helm --wait` see the end of a rollout. At most
/// one of them holds. Source: kstatus, of sigs.k8s.io/cli-utils.
fn kstatus_claims(
    deployment: &PdDeployment,
    inputs: &StatusInputs,
    progressing: &Claim,
    routers: Routers,
) -> [Claim; 2] {
    let claim = |name, holds, reason, message: &str| Claim {
        name,
        holds,
        reason,
        message: message.to_owned(),
    };
    let is_paused = deployment.spec.rollout.paused;
    let stalls = match &inputs.refused {
        Some(why) => Some((INVALID_SPEC, why.as_str())),
        None if progressing.reason == DEADLINE_EXCEEDED && !is_paused => {
            Some((DEADLINE_EXCEEDED, progressing.message.as_str()))
        }
        None if routers == Routers::Overdue => Some((
            DEADLINE_EXCEEDED,
            "routers do not start within spec.rollout.progressDeadlineSeconds",
        )),
        None => None,
    };
    let moves = if progressing.reason != AS_WANTED {
        Some((progressing.reason, progressing.message.as_str()))
    } else if routers != Routers::AsWanted {
        Some(("RoutersMove", "routers start or are replaced"))
    } else {
        None
    };
    let moves = moves.filter(|_| stalls.is_none());
    let (reason, message) = moves.unwrap_or((AS_WANTED, "nothing is under way"));
    let reconciling = claim("Reconciling", moves.is_some(), reason, message);
    let (reason, message) = stalls.unwrap_or(("NotStalled", "nothing holds it up"));
    [
        reconciling,
        claim("Stalled", stalls.is_some(), reason, message),
    ]
}

fn ready_claim(pools: &PoolsStatus, inputs: &StatusInputs) -> Claim {
    let PoolsStatus { prefill, decode } = pools;
    let routers_ready = inputs.routers.0;
    let holds = prefill.routable > 0 && decode.routable > 0 && routers_ready > 0;
    let (reason, message) = if holds {
        (
            "Serving",
            "a prefill and a decode worker serve behind a ready router",
        )
    } else if let Some(trouble) = &inputs.trouble {
        (CANNOT_APPLY, trouble.as_str())
    } else if inputs.suspended {
        ("Suspended", "spec.suspend lets no worker run")
    } else if prefill.desired == 0 && decode.desired == 0 {
        ("ScaledToZero", "both pools have no replicas")
    } else if routers_ready == 0 {
        ("RouterNotReady", "no router is ready")
    } else if prefill.routable == 0 {
        ("PrefillNotRoutable", "no prefill worker is routable")
    } else {
        ("DecodeNotRoutable", "no decode worker is routable")
    };
    Claim {
        name: "Ready",
        holds,
        reason,
        message: match inputs.obstacle() {
            Some(obstacle) if !holds => format!("{message}; {obstacle}"),
            Some(_) | None => message.to_owned(),
        },
    }
}

/// Whether nothing went forward for longer than a rollout may take.
fn is_overdue(deployment: &PdDeployment, inputs: &StatusInputs, now: Timestamp) -> bool {
    let deadline = deployment.spec.rollout.progress_deadline_seconds;
    let deadline = SignedDuration::from_secs(deadline.into());
    let progressed = inputs.progressed;
    progressed.is_some_and(|progressed| now.duration_since(progressed) > deadline)
}

fn progressing_claim(pools: &PoolsStatus, inputs: &StatusInputs, is_overdue: bool) -> Claim {
    let both = [&pools.prefill, &pools.decode];
    let settled = both.iter().all(|pool| {
        pool.routable == pool.desired
            && pool.current == pool.desired
            && pool.updated == pool.desired
            && pool.draining == 0
    });
    let replaces = both.iter().any(|pool| pool.updated < pool.current);
    let (holds, reason, message) = match (&inputs.trouble, &inputs.stuck) {
        (Some(trouble), _) => (true, CANNOT_APPLY, trouble.as_str()),
        (None, _) if settled => (false, AS_WANTED, "everything is as the spec wants it"),
        (None, _) if is_overdue => (
            false,
            DEADLINE_EXCEEDED,
            inputs
                .obstacle()
                .unwrap_or("nothing went forward within spec.rollout.progressDeadlineSeconds"),
        ),
        (None, Some(stuck)) => match stuck.cause {
            // The pods of the old revision serve on until there is room.
            Cause::Unschedulable if replaces => (true, "NoSurgeCapacity", stuck.message.as_str()),
            Cause::Unschedulable => (true, "Unschedulable", stuck.message.as_str()),
            Cause::Broken => (true, "WorkerDoesNotStart", stuck.message.as_str()),
        },
        (None, None) => match &inputs.unpaired {
            Some(why) => (true, "KvDoesNotArrive", why.as_str()),
            None => (true, "Moving", "workers start, are replaced or leave"),
        },
    };
    Claim {
        name: "Progressing",
        holds,
        reason,
        message: message.to_owned(),
    }
}

fn pool_claim(name: &'static str, pool: &PoolStatus) -> Claim {
    let holds = pool.routable >= pool.desired;
    Claim {
        name,
        holds,
        reason: if holds {
            "AllRoutable"
        } else {
            "NotAllRoutable"
        },
        message: format!(
            "{} of {} replicas are routable",
            pool.routable, pool.desired
        ),
    }
}

/// Dates each condition by its last change of status.
fn date(
    claims: Vec<Claim>,
    deployment: &PdDeployment,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let dated = claims.into_iter().map(|claim| {
        let status = if claim.holds { "True" } else { "False" };
        let same = before
            .iter()
            .find(|old| old.type_ == claim.name && old.status == status);
        Condition {
            type_: claim.name.to_owned(),
            status: status.to_owned(),
            reason: claim.reason.to_owned(),
            message: claim.message,
            observed_generation: deployment.metadata.generation,
            last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        }
    });
    dated.collect()
}

#[cfg(test)]
mod tests;
