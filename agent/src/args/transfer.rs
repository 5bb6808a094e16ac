//! Flags about how KV travels: what serving and the probe of a fabric share.

use clap::{Args, ValueEnum};
use pd_protocol::ports;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Disaggregation")]
pub(crate) struct TransferArgs {
    /// Port of the bootstrap server, which prefill opens and decode asks
    #[arg(long = "disaggregation-bootstrap-port", default_value_t = ports::BOOTSTRAP, value_name = "PORT")]
    pub(crate) bootstrap_port: u16,

    /// How KV bytes travel; the names of other engines mean `auto`, and `fake` moves nothing
    #[arg(long = "disaggregation-transfer-backend", value_enum, default_value_t = TransferBackendName::Auto)]
    pub(crate) transfer_backend: TransferBackendName,

    /// Directory through which processes of one host and user share memory across network namespaces, as pods do:
    /// give prefill and decode the same one; within their network namespace if absent
    #[arg(long = "disaggregation-shm-dir", value_name = "PATH")]
    pub(crate) shm_dir: Option<PathBuf>,

    /// RDMA devices by name, separated by commas, the preferred first; all there are if absent
    #[arg(long = "disaggregation-ib-device", value_name = "NAMES", value_delimiter = ',',
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) ib_device: Vec<String>,

    /// Row of the RDMA ports' GID table; RoCE v2 over IPv4 before IPv6 if absent
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

    /// MiB on their way to one peer over RDMA at once
    #[arg(long = "disaggregation-ib-max-in-flight", default_value_t = 64, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ib_max_in_flight: u32,

    /// Ranges of memory that one RDMA write gathers
    #[arg(long = "disaggregation-ib-max-sge", default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) ib_max_sge: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransferBackendName {
    Auto,
    Shm,
    Rdma,
    Tcp,
    Fake,
    Mooncake,
    Nixl,
    Mori,
    Ascend,
    #[value(name = "mooncake_tcp")]
    MooncakeTcp,
    Nccl,
    Gloo,
}

// === impl TransferBackendName ===

impl TransferBackendName {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Fake => "fake",
            Self::Mooncake => "mooncake",
            Self::Nixl => "nixl",
            Self::Mori => "mori",
            Self::Ascend => "ascend",
            Self::MooncakeTcp => "mooncake_tcp",
            Self::Nccl => "nccl",
            Self::Gloo => "gloo",
        }
    }

    /// Whether the name is that of an engine we do not bring, so that `auto` serves in its place.
    pub(crate) const fn is_foreign(self) -> bool {
        match self {
            Self::Auto | Self::Shm | Self::Rdma | Self::Tcp | Self::Fake => false,
            Self::Mooncake
            | Self::Nixl
            | Self::Mori
            | Self::Ascend
            | Self::MooncakeTcp
            | Self::Nccl
            | Self::Gloo => true,
        }
    }
}
