//! The apiserver's audit log: every write with its user, so that a test can count them. Reads are left
//! out; there are thousands.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// One line per finished write.
pub(super) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
    {"level": "None"}
  ]
}
"#;

/// The log of one cluster.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log: what came before does not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark(u64);

/// One finished write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub user: String,
    pub verb: String,
    /// `pods`, or `pods/status`.
    pub resource: String,
    pub namespace: String,
    /// Empty where the server makes the name.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
}

// === impl AuditLog ===

impl AuditLog {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The end of the log now.
    pub fn mark(&self) -> Mark {
        Mark(fs::metadata(&self.path).map_or(0, |meta| meta.len()))
    }

    /// Writes that finished after `mark`, refused ones too. An answered write is in the log already.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn writes_since(&self, mark: Mark) -> Result<Vec<Write>> {
        let mut file = File::open(&self.path)
            .with_context(|| format!("open the audit log {}", self.path.display()))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be half written.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().map(parse).collect()
    }
}

#[derive(Deserialize)]
struct Event {
    verb: String,
    user: User,
    #[serde(rename = "objectRef", default)]
    object: ObjectRef,
    #[serde(rename = "responseStatus", default)]
    response: Response,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    code: u16,
}

fn parse(line: &str) -> Result<Write> {
    let event: Event =
        serde_json::from_str(line).with_context(|| format!("read the audit line {line}"))?;
    let ObjectRef {
        mut resource,
        subresource,
        namespace,
        name,
    } = event.object;
    if !subresource.is_empty() {
        resource = format!("{resource}/{subresource}");
    }
    Ok(Write {
        user: event.user.username,
        verb: event.verb,
        resource,
        namespace,
        name,
        code: event.response.code,
    })
}
