//! The keys of a deployment's processes: a Secret, made once and then its owner's to change, since all who are given it
//! follow it. One that is lost is made again, with the same keys while this operator knows them.

use super::apply::{Writer, post_params};
use super::error::{ApplyError, failed};
use crate::controller::build::component::Component;
use crate::controller::build::peers::{PEER_SECRET_KEY, peer_secret};
use crate::random_text::random_text;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pd_identity::{Identity, Keyring, Peers};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A Secret is read again at the next reconcile after this long: pods have seen a change about then.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// Bytes of a key before they are written in hexadecimal.
const KEY_BYTES: usize = 32;

/// Keys that were read or made.
#[derive(Clone)]
pub(crate) struct PeerKeys {
    text: Vec<u8>,
    /// This operator among the processes that share them.
    identity: Identity,
    read: Instant,
}

/// Reads the keys, or makes them, where the deployment authenticates peers. Those that are known serve on while they
/// cannot be read again.
pub(crate) async fn ensure_peer_keys(writer: &Writer<'_>) -> Result<(), ApplyError> {
    let uid = writer.uid();
    let memories = &writer.context.memories;
    let known = memories.read(&uid, |memory| memory.peer_keys.clone());
    let known = known.flatten();
    let is_fresh = known
        .as_ref()
        .is_some_and(|keys| keys.read.elapsed() < READ_AGAIN);
    if is_fresh || !writer.deployment.spec.authenticates_peers() {
        return Ok(());
    }
    let text = read_or_make(writer, known.as_ref()).await?;
    let keyring = Keyring::parse(&format!("Secret {}", peer_secret(writer.deployment)), &text)?;
    let identity = match known {
        Some(known) => {
            if known.text != text {
                known.identity.replace(keyring);
            }
            known.identity
        }
        None => Identity::new(keyring),
    };
    let keys = PeerKeys {
        text,
        identity,
        read: Instant::now(),
    };
    memories.update(&uid, |memory| memory.peer_keys = Some(keys));
    Ok(())
}

/// The text of the keys. A Secret of that name which is not ours is not read.
async fn read_or_make(
    writer: &Writer<'_>,
    known: Option<&PeerKeys>,
) -> Result<Vec<u8>, ApplyError> {
    let api = writer.api::<Secret>();
    let name = &peer_secret(writer.deployment);
    let stored = api.get_opt(name).await;
    let stored = stored.map_err(|source| failed::<Secret>("get", name, source))?;
    if let Some(secret) = stored {
        writer.check_owner::<Secret>(name, secret.owner_references())?;
        let text = secret
            .data
            .and_then(|mut data| data.remove(PEER_SECRET_KEY));
        return Ok(text.unwrap_or_default().0);
    }
    let made = || format!("{}\n", random_text::<KEY_BYTES>()).into_bytes();
    let text = known.map_or_else(made, |known| known.text.clone());
    let secret = Secret {
        metadata: Component::Router.metadata(writer.deployment, name.clone()),
        data: Some(BTreeMap::from([(
            PEER_SECRET_KEY.to_owned(),
            ByteString(text.clone()),
        )])),
        ..Secret::default()
    };
    api.create(&post_params(), &secret)
        .await
        .map_err(|source| failed::<Secret>("create", name, source))?;
    Ok(text)
}

// === impl PeerKeys ===

impl PeerKeys {
    pub(crate) fn peers(&self) -> Peers {
        Peers::Tls(self.identity.clone())
    }
}

#[cfg(test)]
mod tests;
