//! An app whose model is still loaded.

use super::AppSpec;
use crate::gpu::sampler::GpuSampler;
use crate::http::metrics::HttpMetrics;
use crate::weights::WeightsBoard;
use pd_identity::Peers;
use pd_protocol::Role;

pub(crate) fn mk_spec() -> AppSpec {
    AppSpec {
        role: Role::Decode,
        served_model_name: "m".to_owned(),
        bootstrap_port: None,
        transfer_backend: "auto",
        started_unix_secs: 0,
        gpus: GpuSampler::spawn(),
        spans: None,
        peers: Peers::Plain,
        metrics: HttpMetrics::new(),
        body_bytes_max: None,
        bodies_bytes_max: 0,
        waiting_max: 1,
        weights: WeightsBoard::new().0,
    }
}
