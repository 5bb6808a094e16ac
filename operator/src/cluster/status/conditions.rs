//! The conditions of a deployment: what each claims, and since when.

mod properties;

use super::inputs::StatusInputs;
use crate::weights::Progress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use pd_crds::PdDeployment;
use pd_crds::status::{PdDeploymentStatus, PoolStatus, PoolsStatus};
use pd_crds::stuck::Cause;
use properties::{
    guard_claim, images_claim, model_claim, rotation_claim, slots_claim, weights_claim,
};

/// Reasons of a deployment that cannot be carried out.
pub(crate) const CANNOT_APPLY: &str = "CannotApply";
pub(crate) const INVALID_SPEC: &str = "InvalidSpec";
/// The model that the spec asks for is on its way from the hub.
pub(crate) const FETCHING_MODEL: &str = "FetchingModel";
/// The condition of the peer keys, and its reason for one who has to act.
pub(crate) const PEER_KEYS_ROTATED: &str = "PeerKeysRotated";
pub(crate) const ROTATION_HELD: &str = "RotationHeld";
/// The condition of slots for recurrent state, and its reason while they are too few.
pub(crate) const STATE_SLOTS_FREE: &str = "StateSlotsFree";
pub(crate) const OUT_OF_STATE_SLOTS: &str = "OutOfStateSlots";
/// The condition of weights that workers change while they run, and its reason where one cannot take them.
pub(crate) const WEIGHTS_SERVED: &str = "WeightsServed";
pub(crate) const WEIGHTS_REFUSED: &str = "WeightsRefused";
const WEIGHTS_CHANGE: &str = "WeightsChange";
/// Reasons of `Progressing` that decide what `Reconciling` and `Stalled` say.
const AS_WANTED: &str = "AsWanted";
const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

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

/// The conditions of a deployment that could be built.
pub(super) fn conditions(
    deployment: &PdDeployment,
    pools: &PoolsStatus,
    inputs: &StatusInputs,
    now: Timestamp,
) -> Vec<Condition> {
    date(claims(deployment, pools, inputs, now), deployment, now)
}

/// Those of one that cannot be carried out for a reason.
pub(super) fn refused_conditions(
    deployment: &PdDeployment,
    reason: &'static str,
    message: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let claim = |name, holds| Claim {
        name,
        holds,
        reason,
        message: message.to_owned(),
    };
    let is_fetching = reason == FETCHING_MODEL;
    let mut claims = vec![claim("Ready", false), claim("Progressing", is_fetching)];
    claims.extend(is_fetching.then(|| claim("ModelReady", false)));
    let is_invalid = reason == INVALID_SPEC;
    let invalid = is_invalid.then(|| claim("SpecValid", false));
    claims.push(invalid.unwrap_or_else(|| spec_claim(None)));
    claims.push(claim("Reconciling", !is_invalid));
    claims.push(claim("Stalled", is_invalid));
    date(claims, deployment, now)
}

fn claims(
    deployment: &PdDeployment,
    pools: &PoolsStatus,
    inputs: &StatusInputs,
    now: Timestamp,
) -> Vec<Claim> {
    let (routers_ready, routers_wanted) = inputs.routers;
    let all_ready = routers_ready >= routers_wanted;
    let is_overdue = |claim| is_overdue(deployment, inputs, claim, now);
    let progressing = progressing_claim(pools, inputs, is_overdue("Progressing"));
    let moves = inputs.replaces_routers || !all_ready && !inputs.suspended;
    let routers = match (moves, is_overdue("Reconciling")) {
        (false, _) => Routers::AsWanted,
        (true, false) => Routers::Move,
        (true, true) => Routers::Overdue,
    };
    let [reconciling, stalled] = kstatus_claims(deployment, inputs, &progressing, routers);
    let mut claims = vec![
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
    ];
    claims.extend(inputs.model.as_ref().map(model_claim));
    claims.extend(inputs.rotation.as_ref().map(rotation_claim));
    claims.extend(inputs.weights.as_ref().map(weights_claim));
    claims.extend(inputs.guard.map(guard_claim));
    let slots = inputs
        .lacks_slots
        .map(|lacks| slots_claim(deployment, lacks));
    claims.extend(slots);
    claims
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
        None => inputs.weights.as_ref().and_then(|weights| match weights {
            Progress::Refused(why) => Some((WEIGHTS_REFUSED, why.as_str())),
            Progress::Served(_) | Progress::UnderWay(_) => None,
        }),
    };
    let fetched = inputs.model.as_ref().filter(|model| !model.is_fetched());
    let moves = if let Some(model) = fetched {
        Some((FETCHING_MODEL, model.message.as_str()))
    } else if progressing.reason != AS_WANTED {
        Some((progressing.reason, progressing.message.as_str()))
    } else if routers != Routers::AsWanted {
        Some(("RoutersMove", "routers start or are replaced"))
    } else {
        inputs.weights.as_ref().and_then(|weights| match weights {
            Progress::UnderWay(said) => Some((WEIGHTS_CHANGE, said.as_str())),
            Progress::Served(_) | Progress::Refused(_) => None,
        })
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

/// Whether what a claim says is under way has not gone forward for longer than a rollout may take.
fn is_overdue(
    deployment: &PdDeployment,
    inputs: &StatusInputs,
    claim: &str,
    now: Timestamp,
) -> bool {
    let deadline = deployment.spec.rollout.progress_deadline_seconds;
    let deadline = SignedDuration::from_secs(deadline.into());
    let began = began(deployment, claim, now);
    let counts_from = inputs
        .progressed
        .map(|progressed| began.map_or(progressed, |it| it.max(progressed)));
    counts_from.is_some_and(|from| now.duration_since(from) > deadline)
}

/// When what a claim says is under way began, as far as the last status says: what was at rest begins now. Nothing for
/// what was overdue already, which no longer holds as under way.
fn began(deployment: &PdDeployment, claim: &str, now: Timestamp) -> Option<Timestamp> {
    let before = deployment.status.as_ref()?;
    let mut conditions = before.conditions.iter();
    let is_of_claim = |name: &str| name == claim || (claim, name) == ("Reconciling", "Stalled");
    if conditions.any(|is| is.reason == DEADLINE_EXCEEDED && is_of_claim(&is.type_)) {
        return None;
    }
    Some(true_since(before, claim).unwrap_or(now))
}

/// Since when a condition has been true; nothing for one that is not.
pub(crate) fn true_since(status: &PdDeploymentStatus, name: &str) -> Option<Timestamp> {
    let holds = condition(status, name).filter(|is| is.status == "True")?;
    Some(holds.last_transition_time.0)
}

pub(crate) fn condition<'a>(status: &'a PdDeploymentStatus, name: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|is| is.type_ == name)
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
        (None, _) if inputs.half_placed.is_some() => {
            (true, "HalfPlaced", inputs.obstacle().unwrap_or_default())
        }
        (None, Some(stuck)) => match stuck.cause {
            // The pods of the old revision serve on until there is room.
            Cause::Unschedulable if replaces => (true, "NoSurgeCapacity", stuck.message.as_str()),
            Cause::Unschedulable => (true, "Unschedulable", stuck.message.as_str()),
            Cause::Broken => (true, "WorkerDoesNotStart", stuck.message.as_str()),
            Cause::Queued => (true, "Queued", stuck.message.as_str()),
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
fn date(claims: Vec<Claim>, deployment: &PdDeployment, now: Timestamp) -> Vec<Condition> {
    let before = deployment.status.as_ref();
    let dated = claims.into_iter().map(|claim| {
        let status = if claim.holds { "True" } else { "False" };
        let mut old = before.iter().flat_map(|before| &before.conditions);
        let same = old.find(|old| old.type_ == claim.name && old.status == status);
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
