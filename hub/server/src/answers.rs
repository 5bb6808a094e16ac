//! What the server answers, and to whom.

use crate::{Asked, Fault, ServerState, Shared};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION, RANGE, RETRY_AFTER,
};
use axum::http::{HeaderMap, HeaderName, Method, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Files from this size on are in large-file storage, where the hub says SHA-256 of them.
const LARGE_BYTES: usize = 1024;
/// Bodies go out in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

const REPO_COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");
const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");

type Answer = Response<Body>;
/// A commit and its files.
type Revision = (String, BTreeMap<String, Bytes>);

pub(crate) async fn list_main(
    State(shared): State<Arc<Shared>>,
    Path((owner, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    list_of(&shared, &format!("{owner}/{name}"), "main", &headers)
}

pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Path((owner, name, revision)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Answer {
    list_of(&shared, &format!("{owner}/{name}"), &revision, &headers)
}

/// The files of a revision in the form that the hub's newer clients ask for.
pub(crate) async fn tree(
    State(shared): State<Arc<Shared>>,
    Path((owner, name, revision)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Answer {
    let state = shared.state.lock();
    let (_, files) = match state.find(&format!("{owner}/{name}"), &revision, &headers) {
        Ok(found) => found,
        Err((status, code)) => return error(status, code),
    };
    let entries = files.iter().map(|(path, bytes)| {
        let mut entry = json!({
            "type": "file", "path": path, "size": bytes.len(), "oid": git_hash(bytes),
        });
        if bytes.len() >= LARGE_BYTES {
            entry["lfs"] = json!({"oid": sha256(bytes), "size": bytes.len(), "pointerSize": 134});
        }
        entry
    });
    let text = json!(entries.collect::<Vec<Value>>()).to_string();
    let answer = Response::builder().header("content-type", "application/json");
    answer.body(Body::from(text)).expect("an answer")
}

fn list_of(shared: &Shared, name: &str, revision: &str, headers: &HeaderMap) -> Answer {
    let mut state = shared.state.lock();
    state.lists += 1;
    if !state.refused_lists.is_empty() {
        let (status, seconds) = state.refused_lists.remove(0);
        return refusal(status, seconds);
    }
    let (commit, files) = match state.find(name, revision, headers) {
        Ok(found) => found,
        Err((status, code)) => return error(status, code),
    };
    let siblings = files.iter().map(|(path, bytes)| {
        let mut sibling = json!({
            "rfilename": path, "size": bytes.len(), "blobId": git_hash(bytes),
        });
        if bytes.len() >= LARGE_BYTES {
            sibling["lfs"] =
                json!({"sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 134});
        }
        sibling
    });
    let siblings: Vec<Value> = siblings.collect();
    let text =
        json!({"id": name, "modelId": name, "sha": commit, "private": false, "siblings": siblings});
    let answer = Response::builder().header("content-type", "application/json");
    answer
        .body(Body::from(text.to_string()))
        .expect("an answer")
}

/// The hub's own answer to a request for a file: small ones at once, large ones from the second address.
pub(crate) async fn resolve(
    State(shared): State<Arc<Shared>>,
    Path((owner, name, revision, path)): Path<(String, String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Answer {
    let mut state = shared.state.lock();
    let name = format!("{owner}/{name}");
    let (commit, files) = match state.find(&name, &revision, &headers) {
        Ok(found) => found,
        Err((status, code)) => return error(status, code),
    };
    let Some(bytes) = files.get(&path).cloned() else {
        return error(StatusCode::NOT_FOUND, "EntryNotFound");
    };
    let answer = Response::builder().header(REPO_COMMIT, commit.clone());
    if bytes.len() < LARGE_BYTES {
        let etag = format!("\"{}\"", git_hash(&bytes));
        let (status, more, body) = state.bytes(&path, &bytes, &method, &headers, false);
        let mut answer = answer.status(status).header(ETAG, etag);
        answer.headers_mut().expect("headers").extend(more);
        return answer.body(body).expect("an answer");
    }
    let location = format!(
        "http://{}/{name}/{commit}/{path}?Signature=secret",
        shared.cdn
    );
    answer
        .status(StatusCode::FOUND)
        .header(LOCATION, location)
        .header(LINKED_ETAG, format!("\"{}\"", sha256(&bytes)))
        .header(LINKED_SIZE, bytes.len())
        .header(CONTENT_LENGTH, 0)
        .body(Body::empty())
        .expect("an answer")
}

/// A large file's bytes.
pub(crate) async fn content(
    State(shared): State<Arc<Shared>>,
    Path((owner, name, commit, path)): Path<(String, String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Answer {
    let mut state = shared.state.lock();
    let repo = state.repos.get(&format!("{owner}/{name}"));
    let Some(bytes) = repo.and_then(|repo| repo.files.get(&commit)?.get(&path).cloned()) else {
        return error(StatusCode::NOT_FOUND, "EntryNotFound");
    };
    let (status, more, body) = state.bytes(&path, &bytes, &method, &headers, true);
    let etag = format!("\"{}\"", sha256(&bytes));
    let mut answer = Response::builder().status(status).header(ETAG, etag);
    answer.headers_mut().expect("headers").extend(more);
    answer.body(body).expect("an answer")
}

// === impl ServerState ===

impl ServerState {
    fn find(
        &self,
        name: &str,
        revision: &str,
        headers: &HeaderMap,
    ) -> Result<Revision, (StatusCode, &'static str)> {
        let authorization = headers.get(AUTHORIZATION);
        let repo = self.repos.get(name);
        // Who is not let in does not learn whether it is there.
        let unknown = (StatusCode::UNAUTHORIZED, "RepoNotFound");
        let repo = repo.ok_or(unknown)?;
        if let Some(token) = &repo.token {
            let expected = format!("Bearer {token}");
            match authorization {
                None if !repo.is_gated => return Err(unknown),
                Some(given) if given.as_bytes() != expected.as_bytes() => {
                    return Err((StatusCode::UNAUTHORIZED, ""));
                }
                _ if repo.is_gated => return Err((StatusCode::FORBIDDEN, "GatedRepo")),
                _ => {}
            }
        }
        let commit = repo.refs.get(revision).map_or(revision, String::as_str);
        let files = repo.files.get(commit).cloned();
        let files = files.ok_or((StatusCode::NOT_FOUND, "RevisionNotFound"))?;
        Ok((commit.to_owned(), files))
    }

    /// A file's bytes as asked for, but for the next fault.
    fn bytes(
        &mut self,
        path: &str,
        bytes: &Bytes,
        method: &Method,
        headers: &HeaderMap,
        is_cdn: bool,
    ) -> (StatusCode, HeaderMap, Body) {
        let mut more = HeaderMap::new();
        more.insert(ACCEPT_RANGES, "bytes".parse().expect("a value"));
        if method == Method::HEAD {
            more.insert(CONTENT_LENGTH, bytes.len().into());
            return (StatusCode::OK, more, Body::empty());
        }
        let range = headers.get(RANGE).and_then(|range| range.to_str().ok());
        let from = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let mut from: usize = from.and_then(|(from, _)| from.parse().ok()).unwrap_or(0);
        tracing::info!(path, from, "asked");
        self.asked.push(Asked {
            path: path.to_owned(),
            from,
            leaked_token: is_cdn && headers.contains_key(AUTHORIZATION),
        });
        let faults = self
            .faults
            .get_mut(path)
            .filter(|faults| !faults.is_empty());
        let fault = faults.map(|faults| faults.remove(0));
        let mut sent = bytes.clone();
        let mut cut = None;
        match fault {
            None => {}
            Some(Fault::Cut(after)) => cut = Some(after),
            Some(Fault::Refuse {
                status,
                retry_after,
            }) => {
                let refused = refusal(status, retry_after);
                return (refused.status(), refused.headers().clone(), Body::empty());
            }
            Some(Fault::Corrupt) => {
                let mut changed = bytes.to_vec();
                let middle = usize::midpoint(from, changed.len());
                changed[middle] ^= 1;
                sent = changed.into();
            }
            Some(Fault::NoRange) => from = 0,
        }
        if from > bytes.len() {
            return (StatusCode::RANGE_NOT_SATISFIABLE, more, Body::empty());
        }
        let rest = sent.slice(from..);
        more.insert(CONTENT_LENGTH, rest.len().into());
        let status = if from > 0 {
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            more.insert(CONTENT_RANGE, range.parse().expect("a value"));
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        };
        (status, more, body(rest, cut, self.bytes_per_second))
    }
}

/// Sends bytes piece by piece, cut or slowed down.
fn body(bytes: Bytes, cut: Option<usize>, bytes_per_second: Option<usize>) -> Body {
    let end = cut.unwrap_or(bytes.len()).min(bytes.len());
    let first = (bytes, 0);
    Body::from_stream(stream::unfold(first, move |(bytes, at)| async move {
        if at == end {
            // What was sent goes out before the connection breaks.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let broken = io::Error::other("the connection is cut");
            return cut.map(|_| (Err(broken), (bytes, usize::MAX)));
        }
        if at > end {
            return None;
        }
        let next = (at + PIECE_BYTES).min(end);
        if let Some(speed) = bytes_per_second {
            let seconds = Duration::from_secs(1).mul_f64((next - at) as f64 / speed as f64);
            tokio::time::sleep(seconds).await;
        }
        Some((Ok(bytes.slice(at..next)), (bytes, next)))
    }))
}

fn error(status: StatusCode, code: &str) -> Answer {
    let answer = Response::builder().status(status).header(ERROR_CODE, code);
    let text = json!({"error": code}).to_string();
    answer.body(Body::from(text)).expect("an answer")
}

fn refusal(status: u16, retry_after: u64) -> Answer {
    let answer = Response::builder().status(status);
    let answer = answer.header(RETRY_AFTER, retry_after);
    answer.body(Body::empty()).expect("an answer")
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// As `git hash-object` says.
fn git_hash(bytes: &[u8]) -> String {
    let mut content = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    content.update(format!("blob {}\0", bytes.len()).as_bytes());
    content.update(bytes);
    hex(content.finish().as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
