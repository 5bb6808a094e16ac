//! A deployment's admin token, as this process read or made it; [`admin_secret`](super::admin_secret) does so.

use super::admin::Admin;
use crate::controller::build::pod::ADMIN_SECRET_KEY;
use crate::random_text::random_text;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::ResourceExt;
use pd_protocol::labels::TOKEN_SINCE;
use std::time::Instant;

/// Bytes of a token before they are written in hexadecimal.
const TOKEN_BYTES: usize = 24;

/// A token that was read or made.
#[derive(Clone)]
pub(crate) struct AdminToken {
    pub(crate) admin: Admin,
    pub(super) text: String,
    /// Pods that are older hold another one.
    pub(crate) since: Option<Timestamp>,
    pub(super) read: Instant,
    /// The Secret could not be read again since.
    pub(super) is_unread: bool,
}

// === impl AdminToken ===

impl AdminToken {
    fn new(text: String, since: Option<Timestamp>) -> Self {
        Self {
            admin: Admin::new(text.clone()),
            text,
            since,
            read: Instant::now(),
            is_unread: false,
        }
    }

    /// What a stored Secret holds, which another than this operator may have put there.
    pub(super) fn read(secret: &Secret, known: Option<&Self>) -> Self {
        let data = secret.data.as_ref();
        let text = data.and_then(|data| data.get(ADMIN_SECRET_KEY));
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
        let text = text.unwrap_or_default();
        let marked = secret.annotations().get(TOKEN_SINCE);
        let since = match known {
            Some(known) if known.text == text => known.since,
            Some(_) => secret.creation_timestamp().map(|time| time.0),
            None => marked.and_then(|since| since.parse().ok()),
        };
        Self::new(text, since)
    }

    /// A token for a Secret that is not there: the one that is known, or a new one, which pods that
    /// run do not hold.
    pub(super) fn renewed(known: Option<&Self>, pods_run: bool, now: Timestamp) -> Self {
        if let Some(known) = known {
            return Self::new(known.text.clone(), known.since);
        }
        let text = random_text::<TOKEN_BYTES>();
        // Pods are dated by the second.
        let now = now.round(Unit::Second).unwrap_or(now);
        Self::new(text, pods_run.then_some(now))
    }
}
