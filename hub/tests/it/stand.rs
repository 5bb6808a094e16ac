//! A hub with a small model, and an empty cache.

use bytes::Bytes;
use pd_hub::{Cache, Fetch, Fetched, Hub, HubError, Progress, Token};
use pd_hub_server::HubServer;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tempfile::TempDir;

pub(crate) const REPO: &str = "Qwen/Tiny";
/// Files and their sizes.
pub(crate) const MODEL: [(&str, usize); 5] = [
    ("config.json", 300),
    ("model-00001-of-00002.safetensors", 700_000),
    ("model-00002-of-00002.safetensors", 400_000),
    ("tokenizer.json", 50_000),
    ("tokenizer/vocab.json", 900),
];

pub(crate) struct Stand {
    pub(crate) server: HubServer,
    pub(crate) progress: Progress,
    folder: TempDir,
}

/// Bytes that look like no others.
pub(crate) fn mk_bytes(seed: &str, len: usize) -> Bytes {
    let mut state = seed.bytes().fold(7_u32, |state, byte| {
        state.wrapping_mul(31).wrapping_add(byte.into())
    });
    let bytes = (0..len).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    bytes.collect()
}

// === impl Stand ===

impl Stand {
    pub(crate) async fn start() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            server: HubServer::start(listen).await.expect("a hub"),
            progress: Progress::default(),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub(crate) fn cache(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the hub the model; returns its commit.
    pub(crate) fn push(&self, revision: &str) -> String {
        let mut files = MODEL
            .map(|(path, size)| (path, mk_bytes(path, size)))
            .to_vec();
        files.push((".gitattributes", Bytes::from("*")));
        files.push(("pytorch_model.bin", mk_bytes("old", 90_000)));
        self.server.push(REPO, revision, &files)
    }

    pub(crate) fn hub(&self, token: Option<&str>) -> Hub {
        let token = token.map(|token| Token::from(token.to_owned()));
        Hub::new(&self.server.endpoint(), token.as_ref()).expect("a hub")
    }

    pub(crate) fn fetch_of(&self, revision: &str) -> Fetch {
        Fetch {
            repo: REPO.parse().expect("a name"),
            revision: revision.to_owned(),
            file: None,
            cache: Cache::new(self.cache()),
            connections: 3,
            clean_up: None,
        }
    }

    pub(crate) async fn fetch(&self, revision: &str) -> Result<Fetched, HubError> {
        self.fetch_with(None, revision).await
    }

    pub(crate) async fn fetch_with(
        &self,
        token: Option<&str>,
        revision: &str,
    ) -> Result<Fetched, HubError> {
        let fetch = self.fetch_of(revision);
        fetch.run(&self.hub(token), &self.progress).await
    }
}
