//! What Events say of workers.

use crate::cluster::facts::PodFacts;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_crds::node_disposition::NodeDisposition;

/// Says that a worker is replaced because of its node.
pub(super) fn worker_replaced(facts: &PodFacts) -> Option<Event> {
    let why = match facts.disposition {
        NodeDisposition::Keep => return None,
        NodeDisposition::Evacuate => "its node is being emptied, and its successor serves",
        NodeDisposition::Lost => "its node, or a pod of its replica, is lost",
    };
    let name = facts.pod.name_any();
    Some(Event {
        type_: EventType::Normal,
        reason: "WorkerReplaced".to_owned(),
        note: Some(format!("{name} leaves: {why}")),
        action: "Replace".to_owned(),
        secondary: None,
    })
}

/// Says that a gang's replica gives back its nodes.
pub(super) fn nodes_released(facts: &PodFacts, why: &str) -> Event {
    let name = facts.pod.name_any();
    Event {
        type_: EventType::Warning,
        reason: "NodesReleased".to_owned(),
        note: Some(format!("{name} leaves: {why}")),
        action: "Release".to_owned(),
        secondary: None,
    }
}
