//! Claims about what a deployment has, whether or not anything moves: its model, its keys, its ports, its images, its slots.

use super::super::inputs::{Guard, KeyRotation};
use super::{
    Claim, FETCHING_MODEL, OUT_OF_STATE_SLOTS, PEER_KEYS_ROTATED, ROTATION_HELD, STATE_SLOTS_FREE,
    WEIGHTS_CHANGE, WEIGHTS_REFUSED, WEIGHTS_SERVED,
};
use crate::weights::Progress;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::status::ModelStatus;

/// Whether the model that the spec asks for is there.
pub(super) fn model_claim(model: &ModelStatus) -> Claim {
    let holds = model.is_fetched();
    Claim {
        name: "ModelReady",
        holds,
        reason: if holds { "Fetched" } else { FETCHING_MODEL },
        message: if holds {
            format!("{} at {}: {}", model.repo, model.commit, model.message)
        } else {
            model.message.clone()
        },
    }
}

/// Whether the peer keys are replaced that were to be.
pub(super) fn rotation_claim(rotation: &KeyRotation) -> Claim {
    let (holds, reason, message) = match rotation {
        KeyRotation::Done(message) => (true, "Rotated", message),
        KeyRotation::UnderWay(message) => (false, "Rotating", message),
        KeyRotation::Held(message) => (false, ROTATION_HELD, message),
    };
    Claim {
        name: PEER_KEYS_ROTATED,
        holds,
        reason,
        message: message.clone(),
    }
}

/// Whether all workers serve the weights that the spec names.
pub(super) fn weights_claim(progress: &Progress) -> Claim {
    let (holds, reason, message) = match progress {
        Progress::Served(message) => (true, "WeightsAlike", message),
        Progress::UnderWay(message) => (false, WEIGHTS_CHANGE, message),
        Progress::Refused(message) => (false, WEIGHTS_REFUSED, message),
    };
    Claim {
        name: WEIGHTS_SERVED,
        holds,
        reason,
        message: message.clone(),
    }
}

/// Whether ports on which workers admit everybody are closed to others.
pub(super) fn guard_claim(guard: Guard) -> Claim {
    let (reason, message) = match guard {
        Guard::OwnPolicy => (
            "OwnPolicy",
            "a network policy keeps all but this deployment's pods from its workers' bootstrap server and KV, where the \
             network enforces policies",
        ),
        Guard::Nothing => (
            "OpenPorts",
            "the workers' bootstrap server and KV admit everybody who reaches them; set the chart's networkPolicy.workloads",
        ),
        Guard::NothingOnNodes => (
            "OpenPorts",
            "the workers' bootstrap server and KV admit everybody who reaches their nodes: no network policy sees pods on \
             the host's network",
        ),
    };
    Claim {
        name: "WorkersGuarded",
        holds: guard == Guard::OwnPolicy,
        reason,
        message: message.to_owned(),
    }
}

/// Whether requests of a model with recurrent state find slots for it.
pub(super) fn slots_claim(deployment: &PdDeployment, lacks: bool) -> Claim {
    let name = deployment.name_any();
    Claim {
        name: STATE_SLOTS_FREE,
        holds: !lacks,
        reason: if lacks {
            OUT_OF_STATE_SLOTS
        } else {
            "SlotsFree"
        },
        message: if lacks {
            format!(
                "requests wait for slots of recurrent state while pages of KV are free: raise max-mamba-cache-size or \
                 mamba-full-memory-ratio in the workers' args, or add replicas; `kubectl pd explain {name}` names the workers"
            )
        } else {
            "requests find slots for their recurrent state".to_owned()
        },
    }
}

/// Whether replicas of one revision run one image. A newer operator brings a newer one, and replaces
/// no running pod for it.
pub(super) fn images_claim(deployment: &PdDeployment, drifted: Option<&str>) -> Claim {
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
