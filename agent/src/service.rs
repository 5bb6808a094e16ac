//! What the HTTP doors work with: the loaded model behind a slot that is empty while it loads.

use crate::args::Mode;
use crate::gpu::sampler::GpuSampler;
use crate::http::error::ApiError;
use crate::http::metrics::HttpMetrics;
use pd_engine::engine::EngineHandle;
use pd_kv_transfer::Links;
use std::sync::{Arc, OnceLock};

/// Longest text tokenised on an HTTP thread; it takes about a millisecond.
const SHORT_TEXT_BYTES: usize = 4096;

/// A model that answers.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) engine: EngineHandle,
}

/// The state of the HTTP and admin APIs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) mode: Mode,
    pub(crate) served_model_name: String,
    /// Of the bootstrap server that this worker opened; on prefill only.
    pub(crate) bootstrap_port: Option<u16>,
    pub(crate) transfer_backend: &'static str,
    pub(crate) started_unix_secs: u64,
    pub(crate) metrics: HttpMetrics,
    pub(crate) gpus: GpuSampler,
    /// On decode: the way to each prefill.
    pub(crate) links: Links,
    service: OnceLock<Service>,
}

/// What an [`App`] is made of.
#[derive(Debug)]
pub(crate) struct AppSpec {
    pub(crate) mode: Mode,
    pub(crate) served_model_name: String,
    /// Of the bootstrap server that this worker opened; on prefill only.
    pub(crate) bootstrap_port: Option<u16>,
    pub(crate) transfer_backend: &'static str,
    pub(crate) started_unix_secs: u64,
    pub(crate) gpus: GpuSampler,
}

// === impl Service ===

impl Service {
    /// The token ids of `text`. `add_special_tokens` adds what the model wants around a prompt.
    /// A long text is worked on beside the HTTP threads, which must go on relaying tokens.
    ///
    /// # Errors
    /// 400 when the text cannot be written in the model's vocabulary.
    pub(crate) async fn encode(
        &self,
        text: String,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, ApiError> {
        let is_long = text.len() > SHORT_TEXT_BYTES;
        let tokenizer = Arc::clone(self.engine.tokenizer());
        let encode = move || tokenizer.encode(&text, add_special_tokens);
        let encoded = if is_long {
            let encoded = tokio::task::spawn_blocking(encode).await;
            encoded.map_err(|why| ApiError::internal(format!("tokenising failed: {why}")))?
        } else {
            encode()
        };
        encoded.map_err(|why| ApiError::field("prompt", why.to_string()))
    }

    /// The text of every part's prompt, item-major.
    pub(crate) fn echoes(&self, prompts: &[Vec<u32>], choices: u32) -> Vec<String> {
        let texts = prompts
            .iter()
            .map(|ids| self.engine.tokenizer().decode(ids, true));
        let repeated = texts.flat_map(|text| std::iter::repeat_n(text, choices as usize));
        repeated.collect()
    }
}

// === impl App ===

impl App {
    pub(crate) fn new(spec: AppSpec) -> Self {
        let AppSpec {
            mode,
            served_model_name,
            bootstrap_port,
            transfer_backend,
            started_unix_secs,
            gpus,
        } = spec;
        Self {
            mode,
            served_model_name,
            bootstrap_port,
            transfer_backend,
            started_unix_secs,
            metrics: HttpMetrics::new(),
            gpus,
            links: Links::default(),
            service: OnceLock::new(),
        }
    }

    /// Opens the doors; called once, when the model is loaded.
    pub(crate) fn open(&self, service: Service) {
        assert!(
            self.service.set(service).is_ok(),
            "a process loads one model, once"
        );
    }

    /// The loaded model.
    ///
    /// # Errors
    /// 503 while it loads.
    pub(crate) fn service(&self) -> Result<&Service, ApiError> {
        let loading = || ApiError::retriable("the model is still loading; ask again, or elsewhere");
        self.service.get().ok_or_else(loading)
    }
}
