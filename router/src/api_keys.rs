//! Who may ask: the keys that clients present as bearer tokens, and what workers are sent in their
//! place.
//!
//! `--api-key` is SGLang's one key, which the router presents to its workers too, unless they have one of their own
//! (`--worker-api-key`). The keys of `--api-key-file` are the router's alone. A file is a key and a folder holds one in each of its
//! files, since that is how a Secret is mounted: each entry is named after who holds the key, and
//! comes and goes by itself. A file with a line for each key would be one entry that everybody's
//! keys share.

mod files;

pub(crate) use files::{KeyFiles, KeyFilesError};

use crate::error::ApiError;
use crate::headers;
use crate::metrics::Metrics;
use crate::reload::Reloaded;
use crate::vitals::Vitals;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use pd_protocol::Secret;
use std::sync::Arc;

/// Where the keys come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiKeyConfig {
    pub(crate) own: Option<Secret>,
    /// What workers are sent; `own` where there is none.
    pub(crate) for_workers: Option<Secret>,
    pub(crate) files: Option<KeyFiles>,
}

/// The keys that open the API; without any, anyone is served.
pub(crate) struct ApiKeys {
    own: Option<Secret>,
    files: Option<Reloaded<Vec<Secret>>>,
    /// As workers are sent it.
    authorization: Option<HeaderValue>,
}

// === impl ApiKeys ===

impl ApiKeys {
    /// # Errors
    /// Why the keys in files cannot be used.
    pub(crate) fn open(
        config: &ApiKeyConfig,
        metrics: &Arc<Metrics>,
        vitals: &Vitals,
    ) -> Result<Self, KeyFilesError> {
        let files = config.files.clone();
        let own = config.own.clone();
        Ok(Self {
            authorization: config
                .for_workers
                .as_ref()
                .or(own.as_ref())
                .and_then(|key| {
                    let mut value = HeaderValue::try_from(key.to_bearer()).ok()?;
                    value.set_sensitive(true);
                    Some(value)
                }),
            own,
            files: files
                .map(|files| Reloaded::open(files, metrics, vitals))
                .transpose()?,
        })
    }

    /// # Errors
    /// 401 if keys are asked for and the request presents none of them.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.is_asked_for() || headers::bearer_token(headers).is_some_and(|key| self.opens(key))
        {
            return Ok(());
        }
        Err(ApiError::unauthorized())
    }

    fn is_asked_for(&self) -> bool {
        self.own.is_some() || self.files.is_some()
    }

    /// Compares with every key, so that the time does not show which one matched.
    fn opens(&self, key: &[u8]) -> bool {
        let files = self.files.as_ref().map(Reloaded::get);
        let all = self
            .own
            .iter()
            .chain(files.iter().flat_map(|keys| keys.iter()));
        all.fold(false, |opens, secret| opens | secret.matches(key))
    }

    /// `Authorization` of the router's calls to its workers.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Puts the router's own `Authorization` in the place of the client's, whose key
    /// stays here. A router without keys passes the client's on to workers, which may ask for one.
    pub(crate) fn replace(&self, headers: &mut HeaderMap) {
        if self.is_asked_for() || self.authorization.is_some() {
            headers.remove(AUTHORIZATION);
            headers.extend(
                self.authorization()
                    .map(|value| (AUTHORIZATION, value.clone())),
            );
        }
    }
}

#[cfg(test)]
mod tests;
