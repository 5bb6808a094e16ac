//! The admin token of a deployment: a Secret, made once and never written again.

use super::admin::Admin;
use super::apply::{ApplyError, MANAGER, failed};
use super::context::Context;
use crate::controller::build::component::Component;
use crate::controller::build::pod::{ADMIN_SECRET_KEY, admin_secret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use pd_crds::PdDeployment;
use std::collections::BTreeMap;

/// Bytes of a token before they are written in hexadecimal.
const TOKEN_BYTES: usize = 24;

/// Reads the token, or makes one.
pub(crate) async fn ensure_token(
    context: &Context,
    deployment: &PdDeployment,
    namespace: &str,
) -> Result<(), ApplyError> {
    let uid = deployment.uid().unwrap_or_default();
    if context.admins.lock().contains_key(&uid) {
        return Ok(());
    }
    let api = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let name = admin_secret(deployment);
    let stored = api
        .get_opt(&name)
        .await
        .map_err(|source| failed::<Secret>("get", &name, source))?;
    let secret = match stored {
        Some(secret) => secret,
        None => {
            let params = PostParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PostParams::default()
            };
            let secret = build_secret(deployment, name.clone());
            api.create(&params, &secret)
                .await
                .map_err(|source| failed::<Secret>("create", &name, source))?
        }
    };
    let token = secret
        .data
        .and_then(|mut data| data.remove(ADMIN_SECRET_KEY));
    let token = token.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    let admin = Admin::new(token.unwrap_or_default());
    context.admins.lock().insert(uid, admin);
    Ok(())
}

fn build_secret(deployment: &PdDeployment, name: String) -> Secret {
    let bytes: [u8; TOKEN_BYTES] = rand::random();
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Secret {
        metadata: Component::Router.metadata(deployment, name),
        data: Some(BTreeMap::from([(
            ADMIN_SECRET_KEY.to_owned(),
            ByteString(token.into_bytes()),
        )])),
        immutable: Some(true),
        ..Secret::default()
    }
}
