//! The command line of `pd-fetch`.

use clap::Parser;
use pd_hub::{Commit, NotARepo, RepoName};
use std::net::IpAddr;
use std::path::PathBuf;

/// Fetches a model from the Hugging Face hub: resumed where it was cut, checked by hash, once for all that share the
/// folder.
///
/// HF_ENDPOINT names a mirror, HF_TOKEN the token of a gated repository; HTTPS_PROXY and SSL_CERT_FILE hold, too.
#[derive(Debug, Parser)]
#[command(name = "pd-fetch", version)]
pub(crate) struct Args {
    /// Repository, such as Qwen/Qwen3-8B.
    pub(crate) repo: String,
    /// Branch, tag or commit.
    #[arg(long, default_value = "main")]
    pub(crate) revision: String,
    /// Only this file of it, such as one GGUF of many.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<String>,
    /// Cache folder of the hub. Default: HF_HUB_CACHE, or hub in HF_HOME.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Print the commit of the revision, and fetch nothing.
    #[arg(long)]
    pub(crate) resolve: bool,
    /// Before that, remove commits that pd-fetch put into the folder and was not asked for in so many days, but for the one
    /// that comes and those of --keep; what other tools wrote stays.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) remove_unused_after_days: Option<u32>,
    /// A commit that stays, such as Qwen/Qwen3-8B@0123…; may be given again.
    #[arg(long, value_name = "REPO@COMMIT", requires = "remove_unused_after_days", value_parser = kept)]
    pub(crate) keep: Vec<(RepoName, Commit)>,
    /// Files that are fetched at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) connections: u16,
    /// Address at which GET /progress is answered.
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub(crate) host: IpAddr,
    /// Port of that; without one, nothing listens.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Write commit, path and bytes here as JSON, once all is there, or with --resolve once they are known.
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
}

/// Reads `REPO@COMMIT`.
fn kept(text: &str) -> Result<(RepoName, Commit), String> {
    let (repo, commit) = text.split_once('@').unwrap_or((text, ""));
    let repo = repo.parse().map_err(|error: NotARepo| error.to_string())?;
    let commit = Commit::parse(commit);
    let commit = commit.ok_or("give REPO@COMMIT, the commit as 40 hexadecimal digits")?;
    Ok((repo, commit))
}

#[cfg(test)]
mod tests;
