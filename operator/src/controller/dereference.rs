//! Reads everything that a reconcile needs, so that the steps after it are functions.

use pd_crds::PdDeployment;
use pd_crds::document::{self, DocumentError};
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

/// A deployment, and the facts outside it that decide whether it can run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dereferenced {
    pub(crate) deployment: PdDeployment,
    /// The file or folder of a `hostPath` model, where this machine runs it.
    pub(crate) host_model: Option<HostModel>,
}

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostModel {
    /// Absolute, also where the spec's path is relative.
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
}

/// Why a deployment could not be read from its file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DereferenceError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not a valid PDDeployment:\n{source}")]
    Document {
        path: PathBuf,
        source: DocumentError,
    },
}

/// Reads a deployment from a YAML file. A relative `hostPath` is taken from the file's folder, and
/// the address given to `--listen` stands for the router's.
pub(crate) fn file(
    path: &Path,
    listen: Option<SocketAddr>,
) -> Result<Dereferenced, DereferenceError> {
    let text = std::fs::read_to_string(path).map_err(|source| DereferenceError::Read {
        path: path.to_owned(),
        source,
    })?;
    let mut deployment = document::parse(&text).map_err(|source| DereferenceError::Document {
        path: path.to_owned(),
        source,
    })?;
    if let Some(listen) = listen {
        deployment.spec.router.port = listen.port().into();
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let host_model = deployment
        .spec
        .model
        .source
        .host_path
        .as_mut()
        .map(|source| {
            let model = HostModel::find(&folder.join(&source.path));
            source.path = model.path.display().to_string();
            model
        });
    Ok(Dereferenced {
        deployment,
        host_model,
    })
}

// === impl HostModel ===

impl HostModel {
    fn find(path: &Path) -> Self {
        match path.canonicalize() {
            Ok(path) => Self { path, exists: true },
            Err(_) => Self {
                path: without_dots(path),
                exists: false,
            },
        }
    }
}

/// The absolute path that `path` means where no symbolic link lies on it: what is not there has none
/// to follow.
fn without_dots(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    plain
}

#[cfg(test)]
mod tests;
