//! The server as a process: folders of this machine as repositories.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Parser;
use pd_hub_server::HubServer;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Serves folders as repositories of the Hugging Face hub.
#[derive(Debug, Parser)]
struct Args {
    /// Where clients ask; large files come from another port of the same address.
    #[arg(long)]
    listen: SocketAddr,
    /// A repository, as in Qwen/Qwen3-8B=FOLDER, or with a branch: Qwen/Qwen3-8B@v2=FOLDER
    #[arg(long = "repo", value_name = "NAME[@BRANCH]=FOLDER", required = true)]
    repos: Vec<RepoFolder>,
    /// Lets in only who has this token.
    #[arg(long)]
    token: Option<String>,
    /// Speed of each connection.
    #[arg(long)]
    bytes_per_second: Option<usize>,
}

#[derive(Clone, Debug)]
struct RepoFolder {
    name: String,
    branch: String,
    folder: PathBuf,
}

// === impl RepoFolder ===

impl FromStr for RepoFolder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, folder) = text.split_once('=').ok_or("give NAME=FOLDER")?;
        let (name, branch) = name.split_once('@').unwrap_or((name, "main"));
        Ok(Self {
            name: name.to_owned(),
            branch: branch.to_owned(),
            folder: folder.into(),
        })
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt().with_ansi(false).init();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(serve(&args))
}

async fn serve(args: &Args) -> Result<()> {
    let server = HubServer::start(args.listen).await;
    let server = server.with_context(|| format!("cannot listen on {}", args.listen))?;
    server.slow_down(args.bytes_per_second);
    for RepoFolder {
        name,
        branch,
        folder,
    } in &args.repos
    {
        let mut files = Vec::new();
        read_folder(folder, Path::new(""), &mut files)?;
        let files: Vec<(&str, Bytes)> = files
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.clone()))
            .collect();
        let commit = server.push(name, branch, &files);
        tracing::info!(name, branch, commit, files = files.len(), "serving");
        if let Some(token) = &args.token {
            server.protect(name, token, false);
        }
    }
    std::future::pending().await
}

/// Every file below a folder, by its path there.
fn read_folder(folder: &Path, at: &Path, files: &mut Vec<(String, Bytes)>) -> Result<()> {
    let entries = fs::read_dir(folder.join(at));
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let path = at.join(entry.file_name());
        // What a link leads to counts.
        let found = fs::metadata(entry.path())?;
        if found.is_dir() {
            read_folder(folder, &path, files)?;
            continue;
        }
        let Some(name) = path.to_str() else {
            bail!("{} is no name of the hub", path.display());
        };
        files.push((name.to_owned(), fs::read(entry.path())?.into()));
    }
    Ok(())
}
