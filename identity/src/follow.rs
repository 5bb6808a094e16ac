//! Follows a key file as the router follows its Secrets: polled each second, since a watch on a mounted file sees
//! nothing of its swap, and taken when two polls in a row agree, so that its writer has finished.

use crate::identity::WeakIdentity;
use crate::keyring::{KeyId, KeyUse, Keyring};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What one poll found: the keys, or why there are none, as text since two of these are compared.
type Polled = Result<Vec<(KeyId, KeyUse)>, String>;

struct Polls {
    applied: Polled,
    last: Polled,
}

/// Ends with the identity.
pub(crate) async fn follow(
    file: PathBuf,
    keys: Vec<(KeyId, KeyUse)>,
    identity: WeakIdentity,
    changed: impl Fn(bool),
) {
    let mut polls = Polls {
        applied: Ok(keys.clone()),
        last: Ok(keys),
    };
    loop {
        sleep(POLL_INTERVAL).await;
        let reader = file.clone();
        let found = match spawn_blocking(move || Keyring::read(&reader)).await {
            Ok(found) => found,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends.
                Err(_) => return,
            },
        };
        let Some(identity) = identity.upgrade() else {
            return;
        };
        let polled = match &found {
            Ok(keyring) => Ok(keyring.key_ids()),
            Err(error) => Err(error.to_string()),
        };
        if !polls.settle(polled) {
            continue;
        }
        let file = file.display();
        changed(found.is_ok());
        match found {
            Ok(keyring) => {
                tracing::info!(%file, keys = ?keyring, "reloaded deployment keys");
                identity.replace(keyring);
            }
            Err(error) => {
                tracing::warn!(%file, %error, "reload failed, keeping the previous deployment keys");
            }
        }
    }
}

impl Polls {
    /// Whether what was found is to be applied: it differs from what was applied last, and two polls in a row found it.
    fn settle(&mut self, found: Polled) -> bool {
        let is_finished = found == self.last;
        self.last = found;
        let is_new = is_finished && self.last != self.applied;
        if is_new {
            self.applied = self.last.clone();
        }
        is_new
    }
}

#[cfg(test)]
mod tests;
