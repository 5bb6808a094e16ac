//! Who may ask, and over what: API keys, the admin token, TLS, keys of the deployment.

use crate::api_keys::{ApiKeyConfig, KeyFiles};
use crate::cors::{CorsOrigins, OriginError};
use crate::headers::RequestIds;
use crate::tls::TlsFiles;
use clap::Args;
use http::HeaderName;
use pd_protocol::secret::SecretError;
use pd_protocol::{Secret, labels};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub(crate) struct AccessArgs {
    /// Key that clients present as a bearer token, and the router to its workers. Give it in the
    /// environment: a command line is shown to everyone on the machine.
    #[arg(long, env = labels::ENV_API_KEY, hide_env_values = true, value_name = "KEY")]
    pub(crate) api_key: Option<Secret>,
    /// Key that the router presents to its workers in the place of `--api-key` and of what clients present: that of
    /// SGLang's or vLLM's `--api-key`, for one. Give it in the environment, too.
    #[arg(long, env = labels::ENV_WORKER_API_KEY, hide_env_values = true, value_name = "KEY")]
    pub(crate) worker_api_key: Option<Secret>,
    /// More keys that clients may present: a file that is a key, or a folder of such files, as a
    /// Secret is mounted. They are read again when they change; workers never see them.
    #[arg(long, value_name = "PATH")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Serve the API over TLS with this certificate (PEM), its chain behind it. It is read again
    /// when it changes.
    #[arg(long, value_name = "PATH", requires = "tls_key_path")]
    pub(crate) tls_cert_path: Option<PathBuf>,
    /// Private key of the certificate (PEM, not encrypted).
    #[arg(long, value_name = "PATH", requires = "tls_cert_path")]
    pub(crate) tls_key_path: Option<PathBuf>,
    /// Keys that the processes of this deployment share, one a line: the first one signs, each one
    /// verifies. Workers at `https://` are reached by mutual TLS with them. The file is read again when it
    /// changes.
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_key_file: Option<PathBuf>,
    /// Web pages that may call the API, by their origin (https://chat.example.com); `*`: any. If
    /// absent, pages of this machine; with API keys any, since no page has a key by itself.
    #[arg(long, num_args = 0.., value_name = "ORIGIN")]
    pub(crate) cors_allowed_origins: Option<Vec<String>>,
    /// Headers that name a request, the first that it has; `x-request-id` comes last.
    #[arg(long, num_args = 0.., value_name = "HEADER")]
    pub(crate) request_id_headers: Vec<HeaderName>,
}

/// A secret that no client could present.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessArgsError {
    #[error(
        "the value of --api-key, or of {env}, is no key: {0}; leave it out to serve anyone, or give \
         one",
        env = labels::ENV_API_KEY
    )]
    ApiKey(#[source] SecretError),
    #[error(
        "the value of --worker-api-key, or of {env}, is no key: {0}; leave it out if workers ask for none, or give one",
        env = labels::ENV_WORKER_API_KEY
    )]
    WorkerApiKey(#[source] SecretError),
    #[error(
        "the value of {env} is no token: {0}; leave it out to serve this machine only, or give one",
        env = labels::ENV_ADMIN_TOKEN
    )]
    AdminToken(#[source] SecretError),
}

// === impl AccessArgs ===

impl AccessArgs {
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        let cert = self.tls_cert_path.clone()?;
        let key = self.tls_key_path.clone()?;
        Some(TlsFiles { cert, key })
    }

    /// # Errors
    /// What no browser sends as an origin.
    pub(crate) fn cors(&self) -> Result<CorsOrigins, OriginError> {
        let asks_for_keys = self.api_key.is_some() || self.api_key_file.is_some();
        match &self.cors_allowed_origins {
            Some(origins) => CorsOrigins::listed(origins),
            None if asks_for_keys => Ok(CorsOrigins::Any),
            None => Ok(CorsOrigins::Local),
        }
    }

    pub(crate) fn request_ids(&self) -> RequestIds {
        RequestIds::new(self.request_id_headers.clone())
    }

    /// # Errors
    /// Why no one could present `--api-key`, or `--worker-api-key`. Found here and not where flags are parsed,
    /// because clap shows what it refuses.
    pub(crate) fn into_api_keys(self) -> Result<ApiKeyConfig, AccessArgsError> {
        if let Some(key) = &self.api_key {
            key.check().map_err(AccessArgsError::ApiKey)?;
        }
        if let Some(key) = &self.worker_api_key {
            key.check().map_err(AccessArgsError::WorkerApiKey)?;
        }
        Ok(ApiKeyConfig {
            own: self.api_key,
            for_workers: self.worker_api_key,
            files: self.api_key_file.map(KeyFiles),
        })
    }
}

/// The token of the admin API, from the environment; an empty one is none.
pub(super) fn admin_token() -> Result<Option<Secret>, AccessArgsError> {
    let token = std::env::var(labels::ENV_ADMIN_TOKEN).ok();
    let token = token.filter(|token| !token.is_empty()).map(Secret::from);
    if let Some(token) = &token {
        token.check().map_err(AccessArgsError::AdminToken)?;
    }
    Ok(token)
}

#[cfg(test)]
mod tests;
