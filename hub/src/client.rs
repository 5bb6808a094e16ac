//! Asks the hub: which files a revision has, and for the bytes of one.

use crate::download::{FRUITLESS_MAX, persist};
use crate::error::{HubError, RequestError};
use crate::hash::FileHash;
use crate::names::{Commit, RepoName, is_inside};
use pd_protocol::secret::Secret;
use reqwest::header::{AUTHORIZATION, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Where the hub is, if `HF_ENDPOINT` names no mirror.
const ENDPOINT: &str = "https://huggingface.co";
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A connection that brings no byte for so long is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// Longest pause that a hub may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The hub says here what a status means.
const ERROR_CODE: &str = "x-error-code";

/// An access token of the hub.
pub type Token = Secret;

/// The hub, or a mirror that speaks its API.
#[derive(Clone, Debug)]
pub struct Hub {
    client: Client,
    endpoint: Url,
    has_token: bool,
}

/// What a revision is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub commit: Commit,
    pub files: Vec<RemoteFile>,
}

/// A file of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// In the repository, with `/` between folders; relative, without `..`.
    pub path: String,
    pub size: u64,
    pub hash: FileHash,
}

#[derive(Deserialize)]
struct RevisionAnswer {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
    size: u64,
}

/// The bytes of a file from an offset on.
pub(crate) struct Content {
    pub(crate) response: Response,
    /// Where they begin: 0 where the server knows no ranges.
    pub(crate) from: u64,
}

// === impl Hub ===

impl Hub {
    /// A hub at an address, asked with a token where there is one.
    ///
    /// # Errors
    /// The address is no HTTP URL, or the token cannot be sent.
    pub fn new(endpoint: &str, token: Option<&Token>) -> Result<Self, HubError> {
        let with_slash = format!("{}/", endpoint.trim_end_matches('/'));
        let endpoint = Url::parse(&with_slash).ok();
        let endpoint = endpoint.filter(|url| matches!(url.scheme(), "http" | "https"));
        let endpoint = endpoint.ok_or_else(|| {
            HubError::Config(format!(
                "HF_ENDPOINT: {with_slash} is no http or https URL; give one, such as {ENDPOINT}"
            ))
        })?;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let config = |why: String| HubError::Config(format!("the hub's token: {why}"));
            token.check().map_err(|why| config(why.to_string()))?;
            let mut value =
                HeaderValue::from_str(&token.to_bearer()).map_err(|why| config(why.to_string()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // One that is installed already is this one.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("pdserve/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(SILENCE_LIMIT)
            .build()
            .map_err(|why| HubError::Config(format!("no HTTP client: {why}")))?;
        Ok(Self {
            client,
            endpoint,
            has_token: token.is_some(),
        })
    }

    /// The hub at `endpoint`, or at the one that the environment names, as the hub's own tools read it: `HF_ENDPOINT`, and
    /// the token from `HF_TOKEN`, or from the file that `huggingface-cli login` writes.
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub fn from_env(endpoint: Option<&str>) -> Result<Self, HubError> {
        let of_env = std::env::var("HF_ENDPOINT").ok();
        let of_env = of_env.filter(|text| !text.is_empty());
        let endpoint = endpoint.or(of_env.as_deref());
        Self::new(endpoint.unwrap_or(ENDPOINT), token_of_env().as_ref())
    }

    /// The files of a branch, a tag or a commit.
    ///
    /// # Errors
    /// The hub knows none of that name, does not let this one see it, or stays unreachable.
    pub async fn list(&self, repo: &RepoName, revision: &str) -> Result<Listing, HubError> {
        self.list_within(repo, revision, FRUITLESS_MAX).await
    }

    /// The same with so many attempts.
    pub(crate) async fn list_within(
        &self,
        repo: &RepoName,
        revision: &str,
        attempts_max: u32,
    ) -> Result<Listing, HubError> {
        let [owner, name] = repo.parts();
        let mut url = self.url(&["api", "models", owner, name, "revision", revision]);
        url.query_pairs_mut().append_pair("blobs", "true");
        let what = format!("{repo} on {}", self.endpoint);
        let text = persist(&what, attempts_max, || async {
            let response = self.get(url.clone(), None).await?;
            let response = self.check(response, repo, || HubError::NoRevision {
                repo: repo.clone(),
                revision: revision.to_owned(),
            })?;
            response.text().await.map_err(passing)
        })
        .await?;
        let answer: RevisionAnswer =
            serde_json::from_str(&text).map_err(|why| HubError::Answer {
                repo: repo.clone(),
                what: "the list of files".to_owned(),
                why: why.to_string(),
            })?;
        answer.listing(repo)
    }

    /// Asks for a file's bytes from an offset on.
    pub(crate) async fn open(
        &self,
        repo: &RepoName,
        commit: &Commit,
        path: &str,
        from: u64,
    ) -> Result<Content, RequestError> {
        let [owner, name] = repo.parts();
        let mut parts = vec![owner, name, "resolve", commit.as_str()];
        parts.extend(path.split('/'));
        let url = self.url(&parts);
        let response = self.get(url, Some(from).filter(|from| *from > 0)).await?;
        let response = self.check(response, repo, || HubError::NoFile {
            repo: repo.clone(),
            path: path.to_owned(),
        })?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return Ok(Content { response, from: 0 });
        }
        let range = response.headers().get(CONTENT_RANGE);
        let begins: Option<u64> = range.and_then(|range| {
            let range = range.to_str().ok()?.strip_prefix("bytes ")?;
            range.split_once('-')?.0.parse().ok()
        });
        match begins {
            Some(begins) if begins == from => Ok(Content { response, from }),
            _ => Err(RequestError::Passing {
                why: format!("bytes from {from} on were asked for, and others came"),
                pause: None,
            }),
        }
    }

    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.endpoint.clone();
        let mut segments = url.path_segments_mut().expect("an http URL has a path");
        segments.pop_if_empty().extend(parts);
        drop(segments);
        url
    }

    async fn get(&self, url: Url, from: Option<u64>) -> Result<Response, RequestError> {
        let mut request = self.client.get(url);
        if let Some(from) = from {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        request.send().await.map_err(passing)
    }

    /// Says what a status means.
    fn check(
        &self,
        response: Response,
        repo: &RepoName,
        missing: impl FnOnce() -> HubError,
    ) -> Result<Response, RequestError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let (repo, hub, has_token) = (repo.clone(), self.endpoint.to_string(), self.has_token);
        let code = response.headers().get(ERROR_CODE);
        let code = code.and_then(|code| code.to_str().ok()).unwrap_or_default();
        let no_repo = HubError::NoRepo {
            hub: hub.clone(),
            repo: repo.clone(),
            has_token,
        };
        Err(RequestError::Final(match (status, code) {
            (_, "GatedRepo") | (StatusCode::FORBIDDEN, _) => HubError::Gated {
                hub,
                repo,
                has_token,
            },
            (_, "RepoNotFound") => no_repo,
            (StatusCode::UNAUTHORIZED, _) if has_token => HubError::TokenRefused { hub, repo },
            (StatusCode::UNAUTHORIZED, _) => no_repo,
            (StatusCode::NOT_FOUND, _) => missing(),
            _ => {
                return Err(RequestError::Passing {
                    why: format!("the hub answers {status}"),
                    pause: pause_asked_for(response.headers()),
                });
            }
        }))
    }
}

/// The seconds in `Retry-After`, bounded.
fn pause_asked_for(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

/// Of an error of the network. A URL that a redirect led to may carry a signature.
pub(crate) fn passing(error: reqwest::Error) -> RequestError {
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !why.contains(&cause_text) {
            why = format!("{why}: {cause_text}");
        }
        source = cause.source();
    }
    RequestError::Passing { why, pause: None }
}

/// `HF_TOKEN`, or what `HF_TOKEN_PATH` holds, or the file in `HF_HOME`.
fn token_of_env() -> Option<Token> {
    let given = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let in_file = || {
        let path = given("HF_TOKEN_PATH").map(PathBuf::from);
        let path = path.or_else(|| Some(crate::cache::home()?.join("token")))?;
        std::fs::read_to_string(path).ok()
    };
    let text = given("HF_TOKEN").or_else(in_file)?;
    let text = text.trim();
    (!text.is_empty()).then(|| Token::from(text.to_owned()))
}

// === impl RevisionAnswer ===

impl RevisionAnswer {
    fn listing(self, repo: &RepoName) -> Result<Listing, HubError> {
        let wrong = |what: &str, why: &str| HubError::Answer {
            repo: repo.clone(),
            what: what.to_owned(),
            why: why.to_owned(),
        };
        let commit = Commit::parse(&self.sha)
            .ok_or_else(|| wrong("the commit", &format!("{:?} is none", self.sha)))?;
        let files = self.siblings.into_iter().map(|sibling| {
            let path = sibling.rfilename;
            let size = sibling.lfs.as_ref().map(|lfs| lfs.size).or(sibling.size);
            let hash = match &sibling.lfs {
                Some(lfs) => FileHash::sha256(&lfs.sha256),
                None => sibling.blob_id.as_deref().and_then(FileHash::git),
            };
            if !is_inside(&path) {
                return Err(wrong(&path, "it leads out of the repository"));
            }
            match (size, hash) {
                (Some(size), Some(hash)) => Ok(RemoteFile { path, size, hash }),
                _ => Err(wrong(&path, "neither size nor hash is said of it")),
            }
        });
        Ok(Listing {
            commit,
            files: files.collect::<Result<_, _>>()?,
        })
    }
}
