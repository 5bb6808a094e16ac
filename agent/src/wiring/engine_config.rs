//! The engine's configuration, from checked arguments, for a model that may have taken the place of theirs.

use super::own_address::own_address;
use super::transfer_config;
use crate::args::{Args, ModelArgs, SamplingSource};
use crate::device;
use crate::listeners::Ports;
use crate::observations::ObservationFile;
use crate::service::App;
use crate::sizes::Sizes;
use anyhow::Result;
use pd_engine::engine::{DecodeConfig, DisaggregationMode, EngineConfig, PrefillConfig};
use pd_engine::observe::Observer;
use pd_kv_transfer::TransferConfig;
use pd_protocol::Role;
use std::sync::Arc;

/// # Errors
/// When the device cannot be used, has no memory left for the KV pool, or there is no address that
/// peers can dial.
pub(super) fn build(
    (args, model): (&Args, &ModelArgs),
    ports: Ports,
    app: &App,
) -> Result<EngineConfig> {
    let schedule = &args.schedule;
    let device = device::open(&args.device, &model.model_path)?;
    let sizes = Sizes::new(schedule, &device);
    Ok(EngineConfig {
        sampling_from_model: model.sampling_defaults == SamplingSource::Model,
        served_model_name: model.served_name(),
        weight_version: model.weight_version.clone(),
        context_length: model.context_length,
        dtype: model.dtype,
        kv_cache_dtype: model.kv_cache_dtype,
        page_size: schedule.page_size,
        max_total_tokens: schedule.max_total_tokens,
        max_mamba_cache_size: schedule.max_mamba_cache_size,
        mamba_full_memory_ratio: schedule.mamba_full_memory_ratio,
        swa_full_tokens_ratio: schedule.swa_full_tokens_ratio,
        chunked_prefill_size: sizes.chunked_prefill_size,
        max_prefill_tokens: schedule.max_prefill_tokens,
        max_running_requests: sizes.max_running_requests,
        max_queued_requests: schedule.max_queued_requests,
        schedule_conservativeness: schedule.schedule_conservativeness,
        jump_forward: !schedule.disable_jump_forward,
        disable_radix_cache: schedule.disable_radix_cache,
        device,
        overlap_schedule: args.device.disable_overlap_schedule.then_some(false),
        random_seed: model.random_seed.unwrap_or_else(rand::random),
        observer: observer(args)?,
        mode: mode(args, ports, app)?,
        ..of_model(model, args)
    })
}

/// As far as it says which checkpoint is read, and how.
pub(super) fn of_model(model: &ModelArgs, args: &Args) -> EngineConfig {
    EngineConfig {
        tokenizer_path: model.tokenizer_path.clone(),
        chat_template: model.chat_template.clone(),
        speculative: args.speculative.config(),
        cache_dir: pd_engine::weights::digest::user_folder(),
        ..EngineConfig::new(&model.model_path)
    }
}

fn observer(args: &Args) -> Result<Option<Arc<dyn Observer>>> {
    let Some(folder) = &args.server.observe_kv else {
        return Ok(None);
    };
    let file = ObservationFile::create(folder, args.disaggregation.role)?;
    Ok(Some(Arc::new(file)))
}

fn mode(args: &Args, ports: Ports, app: &App) -> Result<DisaggregationMode> {
    let disaggregation = &args.disaggregation;
    Ok(match disaggregation.role {
        Role::Unified => DisaggregationMode::Unified,
        Role::Prefill => DisaggregationMode::Prefill(PrefillConfig {
            transfer: transfer(args, app)?,
            bootstrap_port: ports
                .bootstrap
                .unwrap_or(disaggregation.transfer.bootstrap_port),
            http_port: ports.http,
        }),
        Role::Decode => DisaggregationMode::Decode(DecodeConfig {
            transfer: transfer(args, app)?,
            num_reserved_decode_tokens: disaggregation.num_reserved_decode_tokens,
            extra_slots: disaggregation.decode_extra_slots,
            polling_interval: disaggregation.decode_polling_interval,
        }),
    })
}

fn transfer(args: &Args, app: &App) -> Result<TransferConfig> {
    let disaggregation = &args.disaggregation;
    let host = own_address(args.server.host)?;
    Ok(TransferConfig {
        bootstrap_timeout: disaggregation.bootstrap_timeout,
        waiting_timeout: disaggregation.waiting_timeout,
        transfer_timeout: disaggregation.transfer_timeout,
        heartbeat_interval: disaggregation.heartbeat_interval,
        heartbeat_failures: disaggregation.heartbeat_max_failure,
        test_failure_prob: disaggregation.test_failure_prob,
        test_failure_seed: args.model.random_seed.unwrap_or_else(rand::random),
        transport_report: app.transport_report.clone(),
        ..transfer_config::build(&disaggregation.transfer, host, &app.peers)
    })
}
