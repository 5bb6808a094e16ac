//! The admin token of a deployment: a Secret, made once and never written again. One that is lost is
//! made again: with the same token while this operator knows it, else with another, and the pods that
//! hold the old one are replaced.

use super::admin_token::AdminToken;
use super::apply::{Writer, post_params};
use super::error::{ApplyError, failed};
use super::facts::PodFacts;
use super::snapshot::pods;
use crate::controller::build::component::Component;
use crate::controller::build::pod::{ADMIN_SECRET_KEY, admin_secret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_crds::PdDeployment;
use pd_protocol::labels::TOKEN_SINCE;
use std::collections::BTreeMap;
use std::time::Duration;

/// A Secret is read again at the next reconcile after this long, so that one that is lost is seen before pods lack it; a
/// deployment at rest is not reconciled for that.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// As errors name it.
const READ: &str = "get";

/// A token to go on with.
pub(crate) struct Ensured {
    pub(crate) token: AdminToken,
    /// Why a new pod could not be given it: its Secret is another owner's, or is missing and cannot be made.
    pub(crate) failure: Option<ApplyError>,
}

// === impl Ensured ===

impl Ensured {
    fn of(token: AdminToken) -> Self {
        Self {
            token,
            failure: None,
        }
    }
}

/// The token, read or made. A Secret of that name which is not ours is not read.
pub(crate) async fn ensure_token(writer: &Writer<'_>) -> Result<Ensured, ApplyError> {
    let uid = writer.uid();
    let memories = &writer.context.memories;
    let known = memories.read(&uid, |memory| memory.token.clone()).flatten();
    let pods = pods(writer, None);
    let lacks_secret = pods.iter().any(PodFacts::lacks_secret);
    let is_fresh = |known: &&AdminToken| known.read.elapsed() < READ_AGAIN && !lacks_secret;
    if let Some(known) = known.as_ref().filter(is_fresh) {
        return Ok(Ensured::of(known.clone()));
    }
    let is_new = known.is_none() && writer.deployment.status.is_none() && pods.is_empty();
    // Most likely there is none yet, which the answer says.
    let made = if is_new {
        make_first(writer).await?
    } else {
        None
    };
    let ensured = match made {
        Some(token) => Ensured::of(token),
        None => match read_token(writer, known.as_ref(), !pods.is_empty()).await {
            Ok(token) => Ensured::of(token),
            Err(error) => kept(writer, known, error)?,
        },
    };
    memories.update(&uid, |memory| memory.token = Some(ensured.token.clone()));
    Ok(ensured)
}

/// The known token, where the Secret cannot be read or made again: what runs holds it. The next reconcile tries again.
fn kept(
    writer: &Writer<'_>,
    known: Option<AdminToken>,
    error: ApplyError,
) -> Result<Ensured, ApplyError> {
    let Some(mut known) = known else {
        return Err(error);
    };
    if !known.is_unread {
        let deployment = writer.key();
        tracing::warn!(%deployment, %error, "cannot read the admin token again; keeping the known one");
    }
    known.is_unread = true;
    let is_unreadable = matches!(&error, ApplyError::Write { verb, .. } if *verb == READ);
    Ok(Ensured {
        token: known,
        failure: Some(error).filter(|_| !is_unreadable),
    })
}

/// Makes the token of a new deployment; nothing if there is one.
async fn make_first(writer: &Writer<'_>) -> Result<Option<AdminToken>, ApplyError> {
    let token = AdminToken::renewed(None, false, Timestamp::now());
    let name = admin_secret(writer.deployment);
    let secret = build_secret(writer.deployment, name.clone(), &token);
    match writer.api().create(&post_params(), &secret).await {
        Ok(_) => Ok(Some(token)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(source) => Err(failed::<Secret>("create", &name, source)),
    }
}

/// Reads the token, or makes it again while `pods_run`.
async fn read_token(
    writer: &Writer<'_>,
    known: Option<&AdminToken>,
    pods_run: bool,
) -> Result<AdminToken, ApplyError> {
    let api = writer.api::<Secret>();
    let name = &admin_secret(writer.deployment);
    let stored = api.get_opt(name).await;
    let stored = stored.map_err(|source| failed::<Secret>(READ, name, source))?;
    if let Some(secret) = stored {
        writer.check_owner::<Secret>(name, secret.owner_references())?;
        return Ok(AdminToken::read(&secret, known));
    }
    let token = AdminToken::renewed(known, pods_run, Timestamp::now());
    let secret = build_secret(writer.deployment, name.to_owned(), &token);
    api.create(&post_params(), &secret)
        .await
        .map_err(|source| failed::<Secret>("create", name, source))?;
    if pods_run {
        writer.publish(&lost(name, known.is_some())).await;
    }
    Ok(token)
}

/// Says that a Secret was lost, and what follows from it.
fn lost(name: &str, is_known: bool) -> Event {
    let follows = if is_known {
        "was made again with the same token"
    } else {
        "was made again with a new token: workers and routers are replaced step by step"
    };
    Event {
        type_: EventType::Warning,
        reason: "AdminSecretLost".to_owned(),
        note: Some(format!("Secret {name} was deleted; it {follows}")),
        action: "Restore".to_owned(),
        secondary: None,
    }
}

fn build_secret(deployment: &PdDeployment, name: String, token: &AdminToken) -> Secret {
    let mut secret = Secret {
        metadata: Component::Router.metadata(deployment, name),
        data: Some(BTreeMap::from([(
            ADMIN_SECRET_KEY.to_owned(),
            ByteString(token.text.clone().into_bytes()),
        )])),
        // Not immutable: a kubelet keeps such a one for as long as a pod of its node names it, and would give new pods the
        // token of a Secret that is gone.
        ..Secret::default()
    };
    if let Some(since) = token.since {
        let annotations = secret.annotations_mut();
        annotations.insert(TOKEN_SINCE.to_owned(), since.to_string());
    }
    secret
}

#[cfg(test)]
mod tests;
