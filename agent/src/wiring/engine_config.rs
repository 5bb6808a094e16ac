//! The engine's configuration, from arguments that have been checked.

use crate::args::{Args, Dtype, KvCacheDtype, Mode, TransferBackendName};
use crate::listeners::Ports;
use crate::memory::kv_memory_bytes;
use anyhow::Result;
use pd_engine::engine::{
    self, DecodeConfig, DisaggregationMode, EngineConfig, ModelDtype, PrefillConfig,
};
use pd_kv_transfer::{Links, RdmaConfig, TransferConfig, Transport};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;

/// # Errors
/// When no memory is left for the KV pool.
pub(super) fn build(args: &Args, ports: Ports, links: &Links) -> Result<EngineConfig> {
    let (model, schedule) = (&args.model, &args.schedule);
    let defaults = EngineConfig::new(&model.model_path);
    Ok(EngineConfig {
        served_model_name: model.served_name(),
        weight_version: model.weight_version.clone(),
        context_length: model.context_length,
        dtype: match model.dtype {
            Dtype::Auto => ModelDtype::Auto,
            Dtype::Float32 => ModelDtype::Float32,
            Dtype::Bfloat16 => ModelDtype::Bfloat16,
        },
        kv_cache_dtype: match model.kv_cache_dtype {
            KvCacheDtype::Auto => engine::KvCacheDtype::Auto,
            KvCacheDtype::Float32 => engine::KvCacheDtype::Float32,
            KvCacheDtype::Bfloat16 => engine::KvCacheDtype::Bfloat16,
        },
        page_size: schedule.page_size,
        max_total_tokens: schedule.max_total_tokens,
        kv_memory_bytes: kv_memory_bytes(&model.model_path, schedule.mem_fraction_static)?,
        chunked_prefill_size: schedule.chunk_tokens(),
        max_prefill_tokens: schedule.max_prefill_tokens,
        max_running_requests: schedule.max_running_requests,
        max_queued_requests: schedule.max_queued_requests,
        schedule_conservativeness: schedule.schedule_conservativeness,
        disable_radix_cache: schedule.disable_radix_cache,
        cpu_threads: schedule.cpu_threads.map(NonZeroUsize::get),
        random_seed: model.random_seed.unwrap_or_else(rand::random),
        cache_dir: pd_engine::weights::digest::user_folder(),
        mode: mode(args, ports, links),
        ..defaults
    })
}

fn mode(args: &Args, ports: Ports, links: &Links) -> DisaggregationMode {
    let disaggregation = &args.disaggregation;
    match disaggregation.mode {
        Mode::Null => DisaggregationMode::Null,
        Mode::Prefill => DisaggregationMode::Prefill(PrefillConfig {
            transfer: transfer(args, links),
            bootstrap_port: ports.bootstrap.unwrap_or(disaggregation.bootstrap_port),
            http_port: ports.http,
        }),
        Mode::Decode => DisaggregationMode::Decode(DecodeConfig {
            transfer: transfer(args, links),
            num_reserved_decode_tokens: disaggregation.num_reserved_decode_tokens,
            extra_slots: disaggregation.decode_extra_slots,
            polling_interval: disaggregation.decode_polling_interval,
        }),
    }
}

fn transfer(args: &Args, links: &Links) -> TransferConfig {
    let disaggregation = &args.disaggregation;
    let name = disaggregation.transfer_backend;
    if name.is_foreign() {
        let name = name.as_str();
        tracing::info!(
            "--disaggregation-transfer-backend {name} means auto here: shm, rdma or tcp"
        );
    }
    let host = own_address(args.server.host);
    TransferConfig {
        transport: match name {
            TransferBackendName::Shm => Transport::Shm,
            TransferBackendName::Rdma => Transport::Rdma,
            TransferBackendName::Tcp => Transport::Tcp,
            TransferBackendName::Fake => Transport::Fake,
            TransferBackendName::Auto
            | TransferBackendName::Mooncake
            | TransferBackendName::Nixl
            | TransferBackendName::Mori
            | TransferBackendName::Ascend => Transport::Auto,
        },
        bootstrap_timeout: disaggregation.bootstrap_timeout,
        waiting_timeout: disaggregation.waiting_timeout,
        transfer_timeout: disaggregation.transfer_timeout,
        heartbeat_interval: disaggregation.heartbeat_interval,
        heartbeat_failures: disaggregation.heartbeat_max_failure,
        test_failure_prob: disaggregation.test_failure_prob,
        test_failure_seed: args.model.random_seed.unwrap_or_else(rand::random),
        links: links.clone(),
        rdma: RdmaConfig {
            devices: disaggregation.ib_device.clone(),
            gid_index: disaggregation.ib_gid_index,
            traffic_class: disaggregation.ib_traffic_class,
            lanes: disaggregation.ib_queue_pairs.into(),
            in_flight_bytes: u64::from(disaggregation.ib_max_in_flight) << 20,
            gather_max: usize::from(disaggregation.ib_max_sge),
            ..RdmaConfig::default()
        },
        ..TransferConfig::new(host)
    }
}

/// The address that peers dial: the one listened on, or, where that is any, the one this machine
/// reaches the world from; loopback where it reaches none.
fn own_address(host: IpAddr) -> IpAddr {
    if !host.is_unspecified() {
        return host;
    }
    // A UDP socket that is connected chooses its address and sends nothing. 192.0.2.1 is reserved
    // for documentation, so it is routed as the world is and nobody is there.
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let chosen = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    chosen.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}
