//! Flags for KV transfer, which serving and the KV probe share.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use pd_protocol::ports;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Disaggregation")]
pub(crate) struct TransferArgs {
    /// Port of the bootstrap server, which prefill opens and decode queries
    #[arg(long = "disaggregation-bootstrap-port", default_value_t = ports::BOOTSTRAP, value_name = "PORT")]
    pub(crate) bootstrap_port: u16,

    /// Transport of the KV; the names of other engines mean `auto`, and `fake` transfers nothing
    #[arg(long = "disaggregation-transfer-backend", value_name = "BACKEND",
          value_parser = transfer_backend(), default_value = "auto")]
    pub(crate) transfer_backend: TransferBackend,

    /// Keys that the processes of this deployment share, one a line: the first one signs, each one verifies; only
    /// processes with a key are then peers, over mutual TLS, and anybody is if absent; read again when it changes
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_key_file: Option<PathBuf>,

    /// Sends KV of the tcp transport unencrypted although peers have a key: more than twice the speed, where the network
    /// between them is to be trusted; both sides must say it
    #[arg(long = "disaggregation-tcp-plaintext", requires = "peer_key_file")]
    pub(crate) tcp_plaintext: bool,

    /// Directory that lets processes of one host and user share memory across network namespaces,
    /// as pods need: give prefill and decode the same one; limited to one network namespace if
    /// absent
    #[arg(long = "disaggregation-shm-dir", value_name = "PATH")]
    pub(crate) shm_dir: Option<PathBuf>,

    /// RDMA devices by name, separated by commas, preferred ones first; all if absent
    #[arg(long = "disaggregation-ib-device", value_name = "NAMES", value_delimiter = ',',
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) ib_device: Vec<String>,

    /// Row of the RDMA ports' GID table; prefers RoCE v2 over IPv4 to IPv6 if absent
    #[arg(long = "disaggregation-ib-gid-index", value_name = "ROW")]
    pub(crate) ib_gid_index: Option<u8>,

    /// Traffic class of RoCE packets: DSCP in its upper six bits
    #[arg(
        long = "disaggregation-ib-traffic-class",
        default_value_t = 0,
        value_name = "BYTE"
    )]
    pub(crate) ib_traffic_class: u8,

    /// Queue pairs between two RDMA devices
    #[arg(long = "disaggregation-ib-queue-pairs", default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) ib_queue_pairs: u8,

    /// MiB in flight to one peer over RDMA
    #[arg(long = "disaggregation-ib-max-in-flight", default_value_t = 64, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ib_max_in_flight: u32,

    /// Memory ranges that one RDMA write gathers
    #[arg(long = "disaggregation-ib-max-sge", default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) ib_max_sge: u8,
}

/// A word of `--disaggregation-transfer-backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferBackend {
    pub(crate) name: &'static str,
    /// The transport that the word means; `None` for one of SGLang's engines that is not built in,
    /// in which case `auto` is used.
    own: Option<TransportChoice>,
}

const BACKENDS: [TransferBackend; 12] = [
    TransferBackend::own("auto", TransportChoice::Auto),
    TransferBackend::own("shm", TransportChoice::Only(Transport::Shm)),
    TransferBackend::own("rdma", TransportChoice::Only(Transport::Rdma)),
    TransferBackend::own("tcp", TransportChoice::Only(Transport::Tcp)),
    TransferBackend::own("fake", TransportChoice::Fake),
    TransferBackend::foreign("mooncake"),
    TransferBackend::foreign("nixl"),
    TransferBackend::foreign("mori"),
    TransferBackend::foreign("ascend"),
    TransferBackend::foreign("mooncake_tcp"),
    TransferBackend::foreign("nccl"),
    TransferBackend::foreign("gloo"),
];

fn transfer_backend() -> impl TypedValueParser<Value = TransferBackend> {
    PossibleValuesParser::new(BACKENDS.map(|backend| backend.name)).try_map(|name| {
        let named = BACKENDS.into_iter().find(|backend| backend.name == name);
        named.ok_or("unknown transfer backend")
    })
}

// === impl TransferBackend ===

impl TransferBackend {
    const fn own(name: &'static str, choice: TransportChoice) -> Self {
        let own = Some(choice);
        Self { name, own }
    }

    const fn foreign(name: &'static str) -> Self {
        Self { name, own: None }
    }

    pub(crate) const fn is_foreign(self) -> bool {
        self.own.is_none()
    }

    pub(crate) fn choice(self) -> TransportChoice {
        self.own.unwrap_or(TransportChoice::Auto)
    }
}
