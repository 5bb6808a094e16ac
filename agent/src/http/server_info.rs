//! `/server_info` and `/get_model_info`: properties of this worker, in SGLang's names. Routers read
//! the first to pair workers.

use super::error::ApiError;
use crate::service::App;
use axum::Json;
use axum::extract::State;
use pd_kv_transfer::PeerTransport;
use pd_protocol::Role;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Serialize)]
pub(crate) struct ServerInfo {
    model_path: String,
    served_model_name: String,
    weight_version: String,
    model_type: String,
    dtype: String,
    kv_cache_dtype: String,
    context_length: u32,
    max_body_bytes: usize,
    max_total_num_tokens: u32,
    /// Of layers that see a window, where they have a space of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    swa_max_total_num_tokens: Option<u32>,
    max_running_requests: u32,
    page_size: u32,
    vocab_size: u32,
    tp_size: u32,
    pp_size: u32,
    dp_size: u32,
    disaggregation_mode: Role,
    disaggregation_transfer_backend: &'static str,
    /// On decode: the transport to each prefill rank that it has met.
    disaggregation_links: BTreeMap<String, PeerTransport>,
    /// Port of this worker's bootstrap server; on prefill only.
    bootstrap_port: Option<u16>,
    kv_compat: String,
    boot_id: String,
    version: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct ModelInfo {
    model_path: String,
    tokenizer_path: String,
    served_model_name: String,
    model_type: String,
    is_generation: bool,
    has_image_understanding: bool,
    has_audio_understanding: bool,
    preferred_sampling_params: Option<String>,
    weight_version: String,
    max_model_len: u32,
}

pub(crate) async fn server(State(app): State<Arc<App>>) -> Result<Json<ServerInfo>, ApiError> {
    let max_body_bytes = app.body_bytes_max();
    let service = app.service()?;
    let info = service.engine.info();
    Ok(Json(ServerInfo {
        model_path: info.model_path.clone(),
        served_model_name: info.served_model_name.clone(),
        weight_version: info.weight_version.clone(),
        model_type: info.model_type.clone(),
        dtype: info.dtype.clone(),
        kv_cache_dtype: info.kv_cache_dtype.clone(),
        context_length: info.context_length,
        max_body_bytes,
        max_total_num_tokens: info.max_total_tokens,
        swa_max_total_num_tokens: Some(info.max_window_tokens).filter(|&tokens| tokens > 0),
        max_running_requests: info.max_running_requests,
        page_size: info.page_size,
        vocab_size: info.vocab_size,
        tp_size: 1,
        pp_size: 1,
        dp_size: 1,
        disaggregation_mode: info.role,
        disaggregation_transfer_backend: app.transfer_backend,
        disaggregation_links: app.transport_report.snapshot(),
        bootstrap_port: app.bootstrap_port,
        kv_compat: info.kv_compat.clone(),
        boot_id: info.boot_id.clone(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}

pub(crate) async fn model(State(app): State<Arc<App>>) -> Result<Json<ModelInfo>, ApiError> {
    let service = app.service()?;
    let info = service.engine.info();
    Ok(Json(ModelInfo {
        model_path: info.model_path.clone(),
        tokenizer_path: info.tokenizer_path.clone(),
        served_model_name: info.served_model_name.clone(),
        model_type: info.model_type.clone(),
        is_generation: true,
        has_image_understanding: false,
        has_audio_understanding: false,
        preferred_sampling_params: None,
        weight_version: info.weight_version.clone(),
        max_model_len: info.context_length,
    }))
}
