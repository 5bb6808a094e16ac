//! The admin token of a deployment: a Secret, made once and never written again.

use super::admin::Admin;
use super::apply::{ApplyError, Writer, failed, post_params};
use crate::controller::build::component::Component;
use crate::controller::build::pod::{ADMIN_SECRET_KEY, admin_secret};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use std::collections::BTreeMap;

/// Bytes of a token before they are written in hexadecimal.
const TOKEN_BYTES: usize = 24;

// === impl Writer ===

impl Writer<'_> {
    /// Reads the token, or makes one. A Secret of that name which is not ours is not read.
    pub(crate) async fn ensure_token(&self) -> Result<(), ApplyError> {
        let uid = self.uid();
        if self.context.admins.lock().contains_key(&uid) {
            return Ok(());
        }
        let api = self.api::<Secret>();
        let name = admin_secret(self.deployment);
        let stored = api
            .get_opt(&name)
            .await
            .map_err(|source| failed::<Secret>("get", &name, source))?;
        let secret = match stored {
            Some(secret) => {
                self.check_owner::<Secret>(&name, secret.owner_references())?;
                secret
            }
            None => api
                .create(&post_params(), &build_secret(self.deployment, name.clone()))
                .await
                .map_err(|source| failed::<Secret>("create", &name, source))?,
        };
        let token = secret
            .data
            .and_then(|mut data| data.remove(ADMIN_SECRET_KEY));
        let token = token.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
        let admin = Admin::new(token.unwrap_or_default());
        self.context.admins.lock().insert(uid, admin);
        Ok(())
    }
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
