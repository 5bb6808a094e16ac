//! Calls to the admin ports of one deployment's routers and workers.

use crate::http_client::{CallError, HttpClient};
use http::Method;
use pd_identity::Peers;
use pd_protocol::workers::DrainStatus;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest wait for an admin API: a frozen process must not hold up the others' reconciles.
const LIMIT: Duration = Duration::from_secs(2);

/// A client with the deployment's token.
#[derive(Clone)]
pub(crate) struct Admin {
    client: HttpClient,
}

// === impl Admin ===

impl Admin {
    pub(crate) fn new(token: String) -> Self {
        Self {
            client: HttpClient::new(token, Peers::Plain),
        }
    }

    /// For calls of other kinds.
    pub(crate) fn client(&self) -> &HttpClient {
        &self.client
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, CallError> {
        self.client.call(Method::GET, url, None, LIMIT).await
    }

    /// Asks a worker to finish what it has and take nothing new.
    pub(crate) async fn drain(&self, url: &str) -> Result<DrainStatus, CallError> {
        self.client.call(Method::POST, url, None, LIMIT).await
    }
}
