//! An engine's identity: its boot id, and `kv_compat`, the digest of all that must be equal for KV
//! bytes to mean the same on two engines.

use super::config::EngineConfig;
use crate::info::EngineInfo;
use crate::kvcache::group::KvPoolShape;
use crate::model::config::SamplingDefaults;
use crate::model::{ModelConfig, ModelFiles};
use crate::weights::digest::{HexDigest, digest_bytes};
use pd_compute::DType;
use pd_compute::dtype::ComputeDtype;
use serde::Serialize;

/// Incremented when bytes on the wire change their meaning.
const WIRE_VERSION: u32 = 1;

#[derive(Debug)]
pub(super) struct Identity {
    kv_compat: String,
    boot_id: String,
    dtype: &'static str,
    kv_cache_dtype: &'static str,
}

/// Hashed as JSON in this order. The parallel layout is missing: the transfer bridges it.
#[derive(Serialize)]
struct KvMeaning<'a> {
    wire_version: u32,
    config: &'a ModelConfig,
    /// Of the model's files: weights with the scales of KV, tokenizer, chat template.
    digests: &'a [HexDigest],
    dtype: &'a str,
    kv_cache_dtype: &'a str,
    page_size: usize,
    hidden_size: usize,
    /// Of the layers whose pages are of the window space, of which peers get the last window.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_space: Option<usize>,
}

// === impl Identity ===

impl Identity {
    pub(super) fn new(
        model: &ModelConfig,
        (shape, window_space): (KvPoolShape, Option<usize>),
        compute: ComputeDtype,
        digests: &[HexDigest],
    ) -> Self {
        let dtype = compute.as_str();
        let kv_cache_dtype = match shape.dtype {
            DType::F32 => "float32",
            DType::BF16 => "bfloat16",
            DType::F16 => "float16",
            DType::F8E4M3 => "fp8_e4m3",
            DType::U32 | DType::U8 => "integer",
        };
        let meaning = KvMeaning {
            wire_version: WIRE_VERSION,
            config: model,
            digests,
            dtype,
            kv_cache_dtype,
            page_size: shape.page_size,
            hidden_size: model.hidden_size,
            window_space,
        };
        let meaning = serde_json::to_vec(&meaning).expect("numbers and strings have a JSON form");
        let kv_compat = digest_bytes(&meaning);
        Self {
            kv_compat,
            boot_id: boot_id(),
            dtype,
            kv_cache_dtype,
        }
    }

    pub(super) fn info(
        self,
        config: &EngineConfig,
        files: &ModelFiles,
        shape: KvPoolShape,
        context_length: u32,
    ) -> EngineInfo {
        let model = &files.config;
        let to_u32 = |len: usize| u32::try_from(len).expect("sizes are checked to fit 32 bits");
        EngineInfo {
            role: config.mode.role(),
            model_path: config.model_path.display().to_string(),
            tokenizer_path: config.text_sources().tokenizer_path().display().to_string(),
            sampling_defaults: if config.sampling_from_model {
                files.sampling_defaults
            } else {
                SamplingDefaults::default()
            },
            served_model_name: config.served_model_name.clone(),
            weight_version: config.weight_version.clone(),
            model_type: model.family.name().to_owned(),
            context_length,
            max_total_tokens: to_u32(shape.num_pages * shape.page_size),
            max_window_tokens: to_u32(shape.num_window_pages * shape.page_size),
            page_size: config.page_size,
            max_running_requests: config.max_running_requests,
            vocab_size: to_u32(model.vocab_size),
            eos_token_ids: model.eos_token_ids.clone(),
            dtype: self.dtype.to_owned(),
            kv_cache_dtype: self.kv_cache_dtype.to_owned(),
            kv_compat: self.kv_compat,
            boot_id: self.boot_id,
        }
    }
}

/// Draws a new id, as a random UUID is written.
fn boot_id() -> String {
    let drawn = format!("{:032x}", rand::random::<u128>());
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &drawn[part]);
    parts.join("-")
}
