//! Where a worker's HTTP API is.

use http::Uri;
use http::uri::{Authority, InvalidUri, Scheme};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    authority: Authority,
    is_tls: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("worker URL {url:?} is not a URL: {source}; give one such as http://10.0.0.7:30000")]
    NotAUrl { url: String, source: InvalidUri },
    #[error("worker URL {url:?} is not a URL: {reason}; give one such as http://10.0.0.7:30000")]
    Malformed { url: String, reason: &'static str },
    #[error("worker URL {0:?}: http:// is missing; write http://{0}")]
    NoScheme(String),
    #[error(
        "worker URL {0:?} is neither of http nor of https; give one such as http://10.0.0.7:30000"
    )]
    Scheme(String),
    #[error(
        "worker URL {0:?}: a worker is reached over TLS with a key of its deployment; give --peer-key-file as the \
         worker has it, or http:// if it has none"
    )]
    NoKey(String),
    #[error("worker URL {0:?} has a path; give scheme, host and port only")]
    HasPath(String),
}

// === impl Endpoint ===

impl Endpoint {
    /// # Errors
    /// Says what of the URL is not `http://HOST[:PORT]` or, if the router `has_key`, `https://HOST[:PORT]`.
    pub(crate) fn parse(url: &str, has_key: bool) -> Result<Self, EndpointError> {
        let parts = url
            .parse::<Uri>()
            .map_err(|source| EndpointError::NotAUrl {
                url: url.to_owned(),
                source,
            })?
            .into_parts();
        let is_tls = match parts.scheme {
            None => return Err(EndpointError::NoScheme(url.to_owned())),
            Some(scheme) if scheme == Scheme::HTTP => false,
            Some(scheme) if scheme != Scheme::HTTPS => {
                return Err(EndpointError::Scheme(url.to_owned()));
            }
            Some(_) if has_key => true,
            Some(_) => return Err(EndpointError::NoKey(url.to_owned())),
        };
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err(EndpointError::HasPath(url.to_owned()));
        }
        let authority = parts
            .authority
            .filter(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
        let malformed = |reason| EndpointError::Malformed {
            url: url.to_owned(),
            reason,
        };
        let authority = authority.ok_or_else(|| malformed("it names no host"))?;
        let has_port = authority.as_str() != authority.host();
        if has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(malformed("its port is no number in 1..=65535"));
        }
        Ok(Self { authority, is_tls })
    }

    /// As a `host` header has it.
    pub(crate) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    pub(crate) fn port(&self) -> u16 {
        let well_known = if self.is_tls { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(well_known)
    }

    /// Whether the worker proves that it has a key of the deployment, and this router does.
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Host without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        let host = self.authority.host();
        host.strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(host)
    }
}

#[cfg(test)]
mod tests;
