//! A rotation's place in a reconcile: it is observed, decided and written as the rest is.

use super::rotation::{Decision, Process, Reported, Rotating, Stage, Step, Stored, decide};
use super::{PEER_SECRET_KEY, PeerKeys, new_key, parse, processes, text, text_of, wanted};
use crate::cluster::apply::{Writer, post_params};
use crate::cluster::error::{ApplyError, bounded, failed};
use crate::cluster::snapshot::Snapshot;
use crate::cluster::status::KeyRotation;
use crate::controller::build::peers::peer_secret;
use crate::http_client::HttpClient;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_protocol::labels::{PEER_KEYS_ROTATED, PEER_KEYS_ROTATING};
use std::time::{Duration, Instant};

/// Between two questions to the processes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// A deployment's keys while they are replaced, or were, and what comes next.
#[derive(Debug)]
pub(crate) struct Rotation {
    pub(crate) decision: Decision,
    stored: Stored,
}

/// Asks the processes, if keys are replaced, and says what comes next; nothing where no one ever asked for it. What all
/// agree on is remembered until the next time.
pub(crate) async fn observe_rotation(
    writer: &Writer<'_>,
    snapshot: &Snapshot<'_>,
    http: &HttpClient,
) -> Option<Rotation> {
    let (deployment, memories) = (writer.deployment, &writer.context.memories);
    let known = memories.read(&writer.uid(), |memory| memory.peer_keys.clone());
    let keys = known.flatten()?;
    if !deployment.spec.authenticates_peers() {
        return None;
    }
    let stored = keys.stored();
    let processes = match &stored.rotating {
        Some(_) => {
            let mut processes = processes::ask(snapshot, http).await;
            processes.push(keys.as_process());
            processes
        }
        None => Vec::new(),
    };
    let mut agreement = keys.agreement;
    let now = Instant::now();
    let decision = decide(wanted(deployment), &stored, &processes, &mut agreement, now);
    memories.update(&writer.uid(), |memory| {
        if let Some(keys) = &mut memory.peer_keys {
            keys.agreement = agreement;
        }
    });
    (decision != Decision::None).then_some(Rotation { decision, stored })
}

/// Takes the step that was decided. A Secret that another has changed meanwhile stays as it is: the next reconcile reads
/// it and decides again.
pub(crate) async fn write_rotation(
    writer: &Writer<'_>,
    rotation: &Rotation,
) -> Result<(), ApplyError> {
    let Decision::Take(step) = &rotation.decision else {
        return Ok(());
    };
    let (memories, deployment) = (&writer.context.memories, writer.deployment);
    let known = memories.read(&writer.uid(), |memory| memory.peer_keys.clone());
    let Some(keys) = known.flatten() else {
        return Ok(());
    };
    let wanted = changed(&keys.secret, &rotation.stored, step);
    // What cannot be read must not be written.
    parse(deployment, &wanted)?;
    let name = peer_secret(deployment);
    let api = writer.api::<Secret>();
    let secret = match api.replace(&name, &post_params(), &wanted).await {
        Ok(secret) => secret,
        Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(()),
        Err(source) => return Err(failed::<Secret>("replace", &name, source)),
    };
    let keyring = parse(deployment, &secret)?;
    let said = said(step, &rotation.stored, &text::ids(text_of(&secret)));
    memories.update(&writer.uid(), |memory| {
        if let Some(keys) = &mut memory.peer_keys {
            keys.take(secret, keyring);
        }
    });
    tracing::info!(deployment = %writer.key(), "peer keys: {said}");
    writer.publish(&event(step, said)).await;
    Ok(())
}

/// The Secret after a step.
fn changed(secret: &Secret, stored: &Stored, step: &Step) -> Secret {
    let before = text_of(secret);
    let new = stored
        .rotating
        .as_ref()
        .map(|rotating| rotating.new.as_str());
    let new = new.unwrap_or_default();
    let after = match step {
        Step::Begin { .. } => text::with_last(before, new_key().trim_end()),
        Step::MoveFirst => text::with_first(before, new),
        Step::RemoveOld => text::with_only(before, new),
        Step::Finish | Step::GiveUp => before.to_vec(),
    };
    let mut changed = secret.clone();
    let annotations = changed.annotations_mut();
    match step {
        Step::Begin { request } => {
            let rotating = Rotating {
                request: request.clone(),
                new: text::ids(&after).pop().unwrap_or_default(),
                old: stored.ids.clone(),
            };
            let json = serde_json::to_string(&rotating).expect("texts are JSON");
            annotations.insert(PEER_KEYS_ROTATING.to_owned(), json);
        }
        Step::Finish | Step::GiveUp => {
            annotations.remove(PEER_KEYS_ROTATING);
            let finished = stored.rotating.as_ref().filter(|_| *step == Step::Finish);
            let finished = finished.map(|rotating| rotating.request.clone());
            annotations.extend(finished.map(|request| (PEER_KEYS_ROTATED.to_owned(), request)));
        }
        Step::MoveFirst | Step::RemoveOld => {}
    }
    let data = changed.data.get_or_insert_default();
    data.insert(PEER_SECRET_KEY.to_owned(), ByteString(after));
    changed.metadata.managed_fields = None;
    changed
}

/// A step that was taken, in words; `ids` are the keys after it.
fn said(step: &Step, stored: &Stored, ids: &[String]) -> String {
    let old = stored.ids.iter().filter(|id| !ids.contains(id));
    let old: Vec<&str> = old.map(String::as_str).collect();
    match (step, ids) {
        (Step::Begin { .. }, [.., new]) => {
            format!("added key {new}, for all processes to verify with (step 1 of 3)")
        }
        (Step::MoveFirst, [new, ..]) => {
            format!("moved key {new} first, for all processes to sign with (step 2 of 3)")
        }
        (Step::RemoveOld, _) => format!(
            "removed key {}, for all processes to let go of (step 3 of 3)",
            old.join(", ")
        ),
        (Step::GiveUp, _) => "gave up a rotation whose keys were changed by hand".to_owned(),
        _ => format!("rotated: all processes have key {} alone", ids.join(", ")),
    }
}

fn event(step: &Step, note: String) -> Event {
    // Events of one action and reason are counted, not listed.
    let action = match step {
        Step::Begin { .. } => "AddKey",
        Step::MoveFirst => "MoveKeyFirst",
        Step::RemoveOld => "RemoveKeys",
        Step::Finish | Step::GiveUp => "EndRotation",
    };
    Event {
        type_: EventType::Normal,
        reason: "PeerKeyRotation".to_owned(),
        note: Some(note),
        action: action.to_owned(),
        secondary: None,
    }
}

// === impl PeerKeys ===

impl PeerKeys {
    /// This operator among the processes.
    fn as_process(&self) -> Process {
        let keys = self.identity.key_ids().into_iter();
        Process {
            name: "the operator".to_owned(),
            reported: Reported::Keys(keys.map(|(id, key)| (id.to_string(), key)).collect()),
        }
    }
}

// === impl Rotation ===

impl Rotation {
    /// When to look again; nothing at rest.
    pub(crate) fn timer(&self) -> Option<Duration> {
        (self.decision != Decision::Rest).then_some(INTERVAL)
    }

    /// What is said of it in the status: what is awaited, or what it came to.
    pub(crate) fn said(&self) -> KeyRotation {
        let message = bounded(&self.message());
        match self.decision {
            Decision::None | Decision::Rest => KeyRotation::Done(message),
            Decision::Take(_) | Decision::Wait(..) => KeyRotation::UnderWay(message),
            Decision::Hold(_) => KeyRotation::Held(message),
        }
    }

    fn message(&self) -> String {
        let aim = |stage: Stage| {
            let rotating = self.stored.rotating.as_ref();
            stage.aim(rotating.map_or("", |rotating| &rotating.new))
        };
        match &self.decision {
            Decision::None | Decision::Rest => {
                format!("all processes have key {}", self.stored.ids.join(", "))
            }
            Decision::Take(_) => "takes the next step".to_owned(),
            Decision::Wait(stage, awaited) => {
                format!("waits until all processes {}; {awaited}", aim(*stage))
            }
            Decision::Hold(why) => why.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
