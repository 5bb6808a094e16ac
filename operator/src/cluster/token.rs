//! The admin token of a deployment: a Secret, made once and never written again. One that is lost is
//! made again: with the same token while this operator knows it, else with another, and the pods that
//! hold the old one are replaced.

use super::apply::{Writer, post_params};
use super::error::{ApplyError, failed};
use super::facts::PodFacts;
use super::held_token::Held;
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

/// A Secret is read again after this long, so that a lost one is seen before pods lack it.
const READ_AGAIN: Duration = Duration::from_secs(300);

/// The token, read or made. A Secret of that name which is not ours is not read.
pub(crate) async fn ensure_token(writer: &Writer<'_>) -> Result<Held, ApplyError> {
    let uid = writer.uid();
    let memories = &writer.context.memories;
    let known = memories.read(&uid, |memory| memory.token.clone()).flatten();
    let pods = pods(writer, None);
    let lacks_secret = pods.iter().any(PodFacts::lacks_secret);
    let is_fresh = |known: &&Held| known.read.elapsed() < READ_AGAIN && !lacks_secret;
    if let Some(known) = known.as_ref().filter(is_fresh) {
        return Ok(known.clone());
    }
    let is_new = known.is_none() && writer.deployment.status.is_none() && pods.is_empty();
    // Most likely there is none yet, which the answer says.
    let made = if is_new {
        make_first(writer).await?
    } else {
        None
    };
    let held = match made {
        Some(held) => held,
        None => read_token(writer, known.as_ref(), !pods.is_empty()).await?,
    };
    memories.update(&uid, |memory| memory.token = Some(held.clone()));
    Ok(held)
}

/// Makes the token of a new deployment; nothing if there is one.
async fn make_first(writer: &Writer<'_>) -> Result<Option<Held>, ApplyError> {
    let held = Held::renewed(None, false, Timestamp::now());
    let name = admin_secret(writer.deployment);
    let secret = build_secret(writer.deployment, name.clone(), &held);
    match writer.api().create(&post_params(), &secret).await {
        Ok(_) => Ok(Some(held)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(source) => Err(failed::<Secret>("create", &name, source)),
    }
}

/// Reads the token, or makes it again while `pods_run`.
async fn read_token(
    writer: &Writer<'_>,
    known: Option<&Held>,
    pods_run: bool,
) -> Result<Held, ApplyError> {
    let api = writer.api::<Secret>();
    let name = &admin_secret(writer.deployment);
    let stored = api.get_opt(name).await;
    let stored = stored.map_err(|source| failed::<Secret>("get", name, source))?;
    if let Some(secret) = stored {
        writer.check_owner::<Secret>(name, secret.owner_references())?;
        return Ok(Held::read(&secret, known));
    }
    let held = Held::renewed(known, pods_run, Timestamp::now());
    let secret = build_secret(writer.deployment, name.to_owned(), &held);
    api.create(&post_params(), &secret)
        .await
        .map_err(|source| failed::<Secret>("create", name, source))?;
    if pods_run {
        writer.publish(&lost(name, known.is_some())).await;
    }
    Ok(held)
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

fn build_secret(deployment: &PdDeployment, name: String, held: &Held) -> Secret {
    let mut secret = Secret {
        metadata: Component::Router.metadata(deployment, name),
        data: Some(BTreeMap::from([(
            ADMIN_SECRET_KEY.to_owned(),
            ByteString(held.token.clone().into_bytes()),
        )])),
        immutable: Some(true),
        ..Secret::default()
    };
    if let Some(since) = held.since {
        let annotations = secret.annotations_mut();
        annotations.insert(TOKEN_SINCE.to_owned(), since.to_string());
    }
    secret
}

#[cfg(test)]
mod tests {
    //! Facts about tokens that are lost and found.

    use super::*;
    use pd_crds::document;

    fn mk_secret(held: &Held, created: &str) -> Secret {
        let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny, namespace: ns}
spec: {model: {source: {hostPath: {path: /m.gguf}}}, pools: {}}
";
        let deployment = document::parse(text).unwrap();
        let mut secret = build_secret(&deployment, "tiny-admin".to_owned(), held);
        let created = created.parse().expect("a time");
        secret.metadata.creation_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created),
        );
        secret
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_lost_secret_comes_back_with_the_token_that_is_known() {
        let first = Held::renewed(None, false, at(5));
        assert_eq!(first.since, None, "nothing ran before it");
        let again = Held::renewed(Some(&first), true, at(9));
        assert_eq!((&again.token, again.since), (&first.token, None));
    }

    #[test]
    fn a_new_token_dates_the_pods_that_hold_it_and_the_next_operator_reads_when() {
        let made = Held::renewed(None, true, at(9));
        assert_eq!(made.since, Some(at(9)));
        let read = Held::read(&mk_secret(&made, "1970-01-01T00:00:09Z"), None);
        assert_eq!((&read.token, read.since), (&made.token, made.since));
    }

    #[test]
    fn another_token_in_the_secret_holds_since_that_was_made() {
        let known = Held::renewed(None, false, at(5));
        let other = Held::renewed(None, false, at(5));
        let stored = mk_secret(&other, "1970-01-01T00:01:00Z");
        let read = Held::read(&stored, Some(&known));
        assert_eq!((&read.token, read.since), (&other.token, Some(at(60))));
        let unchanged = Held::read(&stored, Some(&read));
        assert_eq!(unchanged.since, Some(at(60)));
    }
}
