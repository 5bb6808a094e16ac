//! Kubeconfig files: where the apiserver is and who asks.

use crate::certs::Identity;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;
use std::path::Path;

/// How a client identifies itself to an apiserver.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    Certificate(&'a Identity),
    /// Of a service account.
    Token(&'a str),
}

/// Writes a kubeconfig that shows `credential` to `server`, and trusts `ca`.
///
/// # Errors
/// When `path` cannot be written.
pub fn write(path: &Path, server: &str, ca: &Path, credential: Credential<'_>) -> Result<()> {
    let user = match credential {
        Credential::Certificate(Identity { cert, key }) => {
            json!({"client-certificate": cert, "client-key": key})
        }
        Credential::Token(token) => json!({"token": token}),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "pdserve", "cluster": {"server": server, "certificate-authority": ca}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "pdserve", "context": {"cluster": "pdserve", "user": "user"}}],
        "current-context": "pdserve",
    });
    fs::write(path, serde_json::to_string_pretty(&config)?)
        .with_context(|| format!("write {}", path.display()))
}
