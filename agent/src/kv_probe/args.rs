//! Flags of the probe; it shares those of the transfer with serving.

use super::pool::PAGE_BYTES;
use crate::args::TransferArgs;
use crate::args::host;
use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use pd_kv_transfer::BootstrapAddr;
use std::net::IpAddr;

/// Page lists of larger pools would not fit into the request that carries them.
const BYTES_MAX: u64 = 16 << 30;

/// Transfers test pages between two nodes as serving would, and measures it; no model is needed.
///
/// Start it on one node, which plays prefill, and with --peer on the other.
#[derive(Debug, Parser)]
// As for serving, the last value of a repeated flag wins.
#[command(
    name = "pd-agent kv-probe",
    bin_name = "pd-agent kv-probe",
    version,
    args_override_self = true
)]
pub(crate) struct KvProbeArgs {
    /// The node that plays prefill; its port is --disaggregation-bootstrap-port if absent
    #[arg(long, value_name = "HOST[:PORT]")]
    peer: Option<String>,

    /// Address of all listeners; if absent 127.0.0.1, or the one from which the peer is reached
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(super) host: Option<IpAddr>,

    /// Bytes of test pages over all sessions; prefill needs as many as its peers
    #[arg(long, default_value_t = 1 << 30, value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(PAGE_BYTES as u64..=BYTES_MAX))]
    bytes: u64,

    /// Rounds for each row of the table, after a warm-up round
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,

    /// Decode ranks that receive concurrently
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) sessions: u32,

    /// Output format of the table
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,

    /// Log filter: a level, or `tracing` directives
    #[arg(long, default_value = "warn", value_name = "FILTER")]
    pub(super) log_level: String,

    /// Instead of the table, run a round for each line of standard input, `PIECES PIECE_BYTES`, and
    /// print it as a line of JSON
    #[arg(long, hide = true, requires = "peer")]
    pub(super) rounds_from_stdin: bool,

    #[command(flatten)]
    pub(super) transfer: TransferArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

// === impl KvProbeArgs ===

impl KvProbeArgs {
    /// # Errors
    /// The peer's port is not a number.
    pub(super) fn peer(&self) -> Result<Option<BootstrapAddr>> {
        let default = self.transfer.bootstrap_port;
        let peer = self.peer.as_deref();
        peer.map(|peer| parse_peer(peer, default)).transpose()
    }

    /// Pages of all sessions.
    pub(super) fn pages(&self) -> u32 {
        u32::try_from(self.bytes / PAGE_BYTES as u64).expect("BYTES_MAX has fewer pages")
    }

    /// Pages of one session.
    /// There is less than one for each.
    /// There is not one for each.
    pub(super) fn session_pages(&self) -> Result<u32> {
        let pages = self.pages() / self.sessions;
        ensure!(
            pages > 0,
            "--bytes {} is less than a page of {PAGE_BYTES} bytes for each of {} sessions",
            self.bytes,
            self.sessions
        );
        Ok(pages)
    }
}

fn parse_peer(peer: &str, default_port: u16) -> Result<BootstrapAddr> {
    let (host, port) = match peer.rsplit_once(':') {
        // An IPv6 address without a port.
        Some((before, _)) if before.contains(':') && !before.ends_with(']') => (peer, None),
        Some((host, port)) => (host, Some(port)),
        None => (peer, None),
    };
    let port = port.map(str::parse).transpose();
    let port =
        port.with_context(|| format!("--peer {peer}: the text after the colon is not a port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ensure!(!host.is_empty(), "--peer {peer}: there is no host");
    Ok(BootstrapAddr {
        host: host.to_owned(),
        port: port.unwrap_or(default_port),
    })
}

#[cfg(test)]
mod tests;
