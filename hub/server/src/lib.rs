//! A server of the Hugging Face hub's API for proofs: the list of a revision's files, and their bytes, large ones by a
//! redirect to a second address as from the hub to its CDN. What goes wrong between client and hub is done on demand.
//!
//! That it is like the hub is proven by the hub's own client, which fetches from it.

mod answers;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use parking_lot::Mutex;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What goes wrong with the next request for a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is cut after so many bytes.
    Cut(usize),
    /// An answer of this status, which asks for a pause of so many seconds.
    Refuse { status: u16, retry_after: u64 },
    /// One byte is another one.
    Corrupt,
    /// The whole file comes, also where a range was asked for.
    NoRange,
}

/// A request for a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub path: String,
    /// First byte asked for.
    pub from: usize,
    /// Whether it carried a token to the second address, which is not the hub's.
    pub leaked_token: bool,
}

/// A running server; it ends when it is dropped.
pub struct HubServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: [JoinHandle<io::Result<()>>; 2],
}

struct Shared {
    cdn: SocketAddr,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    repos: BTreeMap<String, Repo>,
    /// By path of the file, the next first.
    faults: BTreeMap<String, Vec<Fault>>,
    /// Of what is left of a list of files.
    refused_lists: Vec<(u16, u64)>,
    asked: Vec<Asked>,
    lists: usize,
    bytes_per_second: Option<usize>,
}

#[derive(Default)]
struct Repo {
    /// Commit by branch or tag.
    refs: BTreeMap<String, String>,
    files: BTreeMap<String, BTreeMap<String, Bytes>>,
    token: Option<String>,
    is_gated: bool,
}

// === impl HubServer ===

impl HubServer {
    /// Starts on an address, and on a second one for large files.
    ///
    /// # Errors
    /// An address cannot be had.
    pub async fn start(listen: SocketAddr) -> io::Result<Self> {
        let hub = TcpListener::bind(listen).await?;
        let cdn = TcpListener::bind(SocketAddr::new(cdn_ip(listen.ip()), 0)).await?;
        let address = hub.local_addr()?;
        let shared = Arc::new(Shared {
            cdn: cdn.local_addr()?,
            state: Mutex::default(),
        });
        let routes = Router::new()
            .route(
                "/api/models/{owner}/{name}/revision/{revision}",
                get(answers::list),
            )
            .route(
                "/api/models/{owner}/{name}/tree/{revision}",
                get(answers::tree),
            )
            .route("/api/models/{owner}/{name}", get(answers::list_main))
            .route(
                "/{owner}/{name}/resolve/{revision}/{*path}",
                get(answers::resolve),
            )
            .with_state(Arc::clone(&shared));
        let files = Router::new()
            .route("/{owner}/{name}/{commit}/{*path}", get(answers::content))
            .with_state(Arc::clone(&shared));
        let serve = |listener, routes: Router| {
            tokio::spawn(async move { axum::serve(listener, routes).await })
        };
        Ok(Self {
            address,
            tasks: [serve(hub, routes), serve(cdn, files)],
            shared,
        })
    }

    /// For `HF_ENDPOINT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Gives a repository a commit, to which a branch or tag points from now on.
    pub fn push(&self, repo: &str, revision: &str, files: &[(&str, Bytes)]) -> String {
        let mut content = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        for (path, bytes) in files {
            content.update(path.as_bytes());
            content.update(bytes);
        }
        let commit = answers::hex(content.finish().as_ref());
        let files = files.iter().cloned();
        let files = files
            .map(|(path, bytes)| (path.to_owned(), bytes))
            .collect();
        let repos = &mut self.shared.state.lock().repos;
        let repo = repos.entry(repo.to_owned()).or_default();
        repo.refs.insert(revision.to_owned(), commit.clone());
        repo.files.insert(commit.clone(), files);
        commit
    }

    /// Lets in only who has this token, and with `is_gated` not even those.
    pub fn protect(&self, repo: &str, token: &str, is_gated: bool) {
        let repos = &mut self.shared.state.lock().repos;
        let repo = repos.entry(repo.to_owned()).or_default();
        (repo.token, repo.is_gated) = (Some(token.to_owned()), is_gated);
    }

    /// Does this to the next requests for a file's bytes, one each.
    pub fn fail(&self, path: &str, faults: &[Fault]) {
        let all = &mut self.shared.state.lock().faults;
        all.insert(path.to_owned(), faults.to_vec());
    }

    /// Answers the next lists of files by these statuses, with the seconds of their pauses.
    pub fn refuse_lists(&self, statuses: &[(u16, u64)]) {
        self.shared.state.lock().refused_lists = statuses.to_vec();
    }

    /// Sends no faster than this from now on.
    pub fn slow_down(&self, bytes_per_second: Option<usize>) {
        self.shared.state.lock().bytes_per_second = bytes_per_second;
    }

    /// Requests for files' bytes until now.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.state.lock().asked.clone()
    }

    /// Lists of files until now.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.shared.state.lock().lists
    }
}

/// Another host than the hub's, as clients treat it so, where this machine has one at hand.
fn cdn_ip(hub: IpAddr) -> IpAddr {
    match hub {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::from(u32::from(ip) ^ 2).into(),
        IpAddr::V4(_) | IpAddr::V6(_) => hub,
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
