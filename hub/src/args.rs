//! The command line of `pd-fetch`.

use clap::Parser;
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
    /// Files that are fetched at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) connections: u16,
    /// Address at which GET /progress is answered.
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub(crate) host: IpAddr,
    /// Port of that; without one, nothing listens.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Write commit, path and bytes here as JSON, once all is there.
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
