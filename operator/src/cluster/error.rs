//! Why a write or a reconcile failed, as logs, metrics and statuses say it.

use kube::Resource;
use pd_identity::KeyFileError;
use pd_protocol::labels;
use std::time::Duration;

/// Why a write failed; the next reconcile decides again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("{verb} {kind} {name}: {}", message_of(.source))]
    Write {
        verb: &'static str,
        kind: String,
        name: String,
        source: Box<kube::Error>,
    },
    #[error(
        "{kind} {name} exists and belongs to {owner}; rename this PDDeployment, or delete that {kind}"
    )]
    Foreign {
        kind: String,
        name: String,
        owner: String,
    },
    #[error(
        "{kind} {name} exists and is not watched, so that its size is not known; give it the label \
         {}={deployment} again, or delete it",
        labels::DEPLOYMENT
    )]
    NotWatched {
        kind: String,
        name: String,
        deployment: String,
    },
    #[error(
        "{kind} {name} exists and is not pdserve's, which needs that name in each namespace with a \
         PDDeployment; delete that {kind}, or label it {}=true to hand it over",
        labels::SHARED
    )]
    NotShared { kind: String, name: String },
    #[error(transparent)]
    PeerKeys(#[from] KeyFileError),
}

/// Why a reconcile did not end; it is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("{error}")]
    Apply {
        #[source]
        error: ApplyError,
        /// When what goes on beside it needs another reconcile.
        requeue_after: Option<Duration>,
    },
    #[error("{0} lies in no namespace")]
    NoNamespace(String),
}

#[derive(Debug, thiserror::Error)]
#[error("this operator does not lead, and writes nothing")]
pub(crate) struct NotLeading;

impl From<ApplyError> for ReconcileError {
    fn from(error: ApplyError) -> Self {
        Self::Apply {
            error,
            requeue_after: None,
        }
    }
}

pub(crate) fn failed<K: Resource<DynamicType = ()>>(
    verb: &'static str,
    name: &str,
    source: kube::Error,
) -> ApplyError {
    ApplyError::Write {
        verb,
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    }
}

/// An apiserver's refusal in its own words; its status as a whole is for programs.
fn message_of(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        status.message.clone()
    } else {
        error.to_string()
    }
}

/// A message as a condition may carry it: Events end at 1 kB.
pub(super) fn bounded(message: &impl ToString) -> String {
    let mut text = message.to_string();
    if let Some((end, _)) = text.char_indices().nth(1000) {
        text.truncate(end);
        text.push('…');
    }
    text
}
