//! `ModelIdentity`: a digest of all that decides what a model's KV bytes mean — the effective
//! configuration, the weights, the tokenizer and the chat template — and of nothing else: not the
//! path, not the machine. The engine adds its own settings to it and calls the whole `kv_compat`.

use std::time::Instant;

use super::files::ModelFiles;
use crate::weights::digest::{DigestCache, DigestError, DigestTask, HexDigest, digest_bytes};

/// Equal for processes that loaded the same model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIdentity {
    digest: HexDigest,
}

/// An identity on its way: the files are hashed on a thread of their own.
#[derive(Debug)]
pub struct IdentityTask {
    config: String,
    files: DigestTask,
    started: Instant,
}

// === impl IdentityTask ===

impl IdentityTask {
    /// Starts to hash the model's files, or finds their digests in `cache`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(files: &ModelFiles, cache: &DigestCache) -> Result<Self, DigestError> {
        let config = serde_json::to_string(&files.config);
        Ok(Self {
            config: config.expect("a configuration has only string keys"),
            files: cache.spawn(files.files())?,
            started: Instant::now(),
        })
    }

    /// Waits for the files' digests.
    ///
    /// # Errors
    /// The first file that could not be read.
    pub fn wait(self) -> Result<ModelIdentity, DigestError> {
        let files = self.files.wait()?;
        tracing::info!(
            "identified the model's files in {:.2} s",
            self.started.elapsed().as_secs_f64()
        );
        let parts = [vec![digest_bytes(self.config.as_bytes())], files].concat();
        Ok(ModelIdentity {
            digest: digest_bytes(parts.join("\n").as_bytes()),
        })
    }
}

// === impl ModelIdentity ===

impl ModelIdentity {
    pub fn as_str(&self) -> &str {
        &self.digest
    }
}

#[cfg(test)]
mod tests;
