//! The keys of a deployment's processes: a Secret, made once and then its owner's to change, since all who are given it
//! follow it. One that is lost is made again, with the same keys while this operator knows them. Where an annotation asks
//! for it, they are replaced in steps ([`rotation`]).

mod processes;
mod rotate;
mod rotation;
mod text;

pub(crate) use rotate::{Rotation, observe_rotation, write_rotation};

use super::apply::{Writer, post_params};
use super::error::{ApplyError, failed};
use crate::controller::build::component::Component;
use crate::controller::build::peers::{PEER_SECRET_KEY, peer_secret};
use crate::random_text::random_text;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_identity::{Identity, KeyFileError, Keyring, Peers};
use pd_protocol::labels::{PEER_KEYS_ROTATED, PEER_KEYS_ROTATING, ROTATE_PEER_KEYS};
use rotation::{Agreement, Stored};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A Secret is read again at the next reconcile after this long: pods have seen a change about then.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// Bytes of a key before they are written in hexadecimal.
const KEY_BYTES: usize = 32;

/// Keys that were read or made.
#[derive(Clone)]
pub(crate) struct PeerKeys {
    /// As it was read or written last.
    secret: Secret,
    /// This operator among the processes that share them.
    identity: Identity,
    read: Instant,
    agreement: Option<Agreement>,
}

/// Reads the keys, or makes them, where the deployment authenticates peers. Those that are known serve on while they
/// cannot be read again.
pub(crate) async fn ensure_peer_keys(writer: &Writer<'_>) -> Result<(), ApplyError> {
    let uid = writer.uid();
    let memories = &writer.context.memories;
    let known = memories.read(&uid, |memory| memory.peer_keys.clone());
    let known = known.flatten();
    let is_fresh = known.as_ref().is_some_and(|keys| {
        keys.read.elapsed() < READ_AGAIN && !keys.is_rotating(wanted(writer.deployment))
    });
    if is_fresh || !writer.deployment.spec.authenticates_peers() {
        return Ok(());
    }
    let secret = read_or_make(writer, known.as_ref()).await?;
    let keyring = parse(writer.deployment, &secret)?;
    let keys = match known {
        Some(mut known) => {
            known.take(secret, keyring);
            known
        }
        None => PeerKeys::new(secret, keyring),
    };
    memories.update(&uid, |memory| memory.peer_keys = Some(keys));
    Ok(())
}

/// What asks for other keys.
fn wanted(deployment: &PdDeployment) -> Option<&str> {
    let annotations = deployment.annotations();
    annotations.get(ROTATE_PEER_KEYS).map(String::as_str)
}

fn parse(deployment: &PdDeployment, secret: &Secret) -> Result<Keyring, KeyFileError> {
    Keyring::parse(
        &format!("Secret {}", peer_secret(deployment)),
        text_of(secret),
    )
}

fn text_of(secret: &Secret) -> &[u8] {
    let data = secret.data.as_ref();
    data.and_then(|data| data.get(PEER_SECRET_KEY))
        .map_or(&[], |text| &text.0)
}

/// The Secret of the keys. One of that name which is not ours is not read.
async fn read_or_make(writer: &Writer<'_>, known: Option<&PeerKeys>) -> Result<Secret, ApplyError> {
    let api = writer.api::<Secret>();
    let name = &peer_secret(writer.deployment);
    let stored = api.get_opt(name).await;
    let stored = stored.map_err(|source| failed::<Secret>("get", name, source))?;
    if let Some(secret) = stored {
        writer.check_owner::<Secret>(name, secret.owner_references())?;
        return Ok(secret);
    }
    let secret = match known {
        Some(known) => known.again(writer.deployment),
        None => first(writer.deployment),
    };
    let created = api.create(&post_params(), &secret).await;
    created.map_err(|source| failed::<Secret>("create", name, source))
}

/// A Secret with a key of its own. What asks for other keys has got them with that.
fn first(deployment: &PdDeployment) -> Secret {
    let mut secret = Secret {
        metadata: Component::Router.metadata(deployment, peer_secret(deployment)),
        data: Some(BTreeMap::from([(
            PEER_SECRET_KEY.to_owned(),
            ByteString(new_key().into_bytes()),
        )])),
        ..Secret::default()
    };
    if let Some(wanted) = wanted(deployment) {
        let rotated = (PEER_KEYS_ROTATED.to_owned(), wanted.to_owned());
        secret.annotations_mut().extend([rotated]);
    }
    secret
}

/// A line of a key file.
fn new_key() -> String {
    format!("{}\n", random_text::<KEY_BYTES>())
}

// === impl PeerKeys ===

impl PeerKeys {
    fn new(secret: Secret, keyring: Keyring) -> Self {
        Self {
            secret,
            identity: Identity::new(keyring),
            read: Instant::now(),
            agreement: None,
        }
    }

    /// The Secret is this one now.
    fn take(&mut self, secret: Secret, keyring: Keyring) {
        if text_of(&self.secret) != text_of(&secret) {
            self.identity.replace(keyring);
        }
        self.secret = secret;
        self.read = Instant::now();
    }

    /// The Secret once more, which was lost: with its keys, and how far their rotation is.
    fn again(&self, deployment: &PdDeployment) -> Secret {
        let mut again = Secret {
            data: self.secret.data.clone(),
            ..first(deployment)
        };
        let marks = [PEER_KEYS_ROTATED, PEER_KEYS_ROTATING];
        let annotations = again.annotations_mut();
        for mark in marks {
            annotations.remove(mark);
        }
        let known = self.secret.annotations().iter();
        let known = known.filter(|(name, _)| marks.contains(&name.as_str()));
        annotations.extend(known.map(|(name, value)| (name.clone(), value.clone())));
        again
    }

    fn stored(&self) -> Stored {
        let mark = |name| self.secret.annotations().get(name);
        Stored {
            ids: text::ids(text_of(&self.secret)),
            finished: mark(PEER_KEYS_ROTATED).cloned(),
            rotating: mark(PEER_KEYS_ROTATING).and_then(|text| serde_json::from_str(text).ok()),
        }
    }

    /// Whether the keys are to be replaced, or are being replaced.
    fn is_rotating(&self, wanted: Option<&str>) -> bool {
        let mark = |name| self.secret.annotations().get(name).map(String::as_str);
        mark(PEER_KEYS_ROTATING).is_some() || wanted.is_some() && wanted != mark(PEER_KEYS_ROTATED)
    }

    pub(crate) fn peers(&self) -> Peers {
        Peers::Tls(self.identity.clone())
    }
}

#[cfg(test)]
mod tests;
