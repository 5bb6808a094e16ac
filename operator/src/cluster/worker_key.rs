//! The key of a deployment's workers, where their engine asks for one: a Secret, made once. One that is lost is made again,
//! with the same key while this operator knows it.

use super::apply::{Writer, post_params};
use super::error::{ApplyError, failed};
use crate::controller::build::component::Component;
use crate::controller::build::worker_key::{WORKER_SECRET_KEY, asks_for_key, worker_secret};
use crate::random_text::random_text;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A Secret is read again at the next reconcile after this long, so that one that is lost is seen before pods lack it.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// Bytes of a key before they are written in hexadecimal.
const KEY_BYTES: usize = 24;

/// A key that was read or made.
#[derive(Clone)]
pub(crate) struct WorkerKey {
    text: String,
    read: Instant,
}

// === impl WorkerKey ===

impl WorkerKey {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Reads the key, or makes it, where the deployment's engine asks for one.
pub(crate) async fn ensure_worker_key(writer: &Writer<'_>) -> Result<(), ApplyError> {
    if !asks_for_key(&writer.deployment.spec) {
        return Ok(());
    }
    let uid = writer.uid();
    let memories = &writer.context.memories;
    let known = memories.read(&uid, |memory| memory.worker_key.clone());
    let known = known.flatten();
    if known
        .as_ref()
        .is_some_and(|key| key.read.elapsed() < READ_AGAIN)
    {
        return Ok(());
    }
    let key = WorkerKey {
        text: read_or_make(writer, known).await?,
        read: Instant::now(),
    };
    memories.update(&uid, |memory| memory.worker_key = Some(key));
    Ok(())
}

/// A Secret of that name which is not ours is not read.
async fn read_or_make(writer: &Writer<'_>, known: Option<WorkerKey>) -> Result<String, ApplyError> {
    let api = writer.api::<Secret>();
    let name = &worker_secret(writer.deployment);
    let stored = api.get_opt(name).await;
    let stored = stored.map_err(|source| failed::<Secret>("get", name, source))?;
    if let Some(secret) = stored {
        writer.check_owner::<Secret>(name, secret.owner_references())?;
        return Ok(text_of(&secret));
    }
    let text = known.map_or_else(random_text::<KEY_BYTES>, |known| known.text);
    let secret = build_secret(writer.deployment, &text);
    let created = api.create(&post_params(), &secret).await;
    created.map_err(|source| failed::<Secret>("create", name, source))?;
    Ok(text)
}

fn text_of(secret: &Secret) -> String {
    let data = secret.data.as_ref();
    let text = data.and_then(|data| data.get(WORKER_SECRET_KEY));
    text.map_or_else(String::new, |text| {
        String::from_utf8_lossy(&text.0).into_owned()
    })
}

fn build_secret(deployment: &PdDeployment, text: &str) -> Secret {
    Secret {
        metadata: Component::Router.metadata(deployment, worker_secret(deployment)),
        data: Some(BTreeMap::from([(
            WORKER_SECRET_KEY.to_owned(),
            ByteString(text.as_bytes().to_vec()),
        )])),
        // Not immutable, as the admin token's is not.
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests;
