//! `EngineConfig`: everything that an engine is started with. The agent defines the flags.

use crate::observe::Observer;
use crate::text::TextSources;
use pd_compute::Reach;
use pd_compute::cuda::driver::Driver;
use pd_compute::dtype::ComputeDtype;
use pd_kv_transfer::TransferConfig;
use pd_protocol::layout::KvDtype;
use pd_protocol::{Role, Transport};
use std::path::PathBuf;
use std::sync::Arc;

/// SGLang's default.
const DEFAULT_STATE_RATIO: f32 = 0.9;

#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// A Hugging Face directory or a GGUF file.
    pub model_path: PathBuf,
    /// SGLang's `--tokenizer-path`; the model's own if absent.
    pub tokenizer_path: Option<PathBuf>,
    /// SGLang's `--chat-template`: a file of Jinja; the tokenizer's own if absent.
    pub chat_template: Option<PathBuf>,
    /// SGLang's `--sampling-defaults model`: `generation_config.json` sets the defaults of chats.
    pub sampling_from_model: bool,
    pub served_model_name: String,
    /// Reported with every answer.
    pub weight_version: String,
    /// Longest prompt plus answer in tokens; the model's own if absent.
    pub context_length: Option<u32>,
    /// SGLang's `--dtype`; the fastest that the device and the file support if absent.
    pub dtype: Option<ComputeDtype>,
    /// SGLang's `--kv-cache-dtype`; that of the products if absent.
    pub kv_cache_dtype: Option<KvDtype>,
    /// Slots (tokens) per page: 1, 16, 64 or another power of two up to 256.
    pub page_size: u32,
    /// Size of the KV pool in tokens; from the device's memory if absent.
    pub max_total_tokens: Option<u32>,
    /// SGLang's `--max-mamba-cache-size`: slots for recurrent states; from the device's memory if absent.
    pub max_mamba_cache_size: Option<u32>,
    /// SGLang's `--mamba-full-memory-ratio`: memory for recurrent states, as a multiple of the memory for KV pages.
    pub mamba_full_memory_ratio: f32,
    /// SGLang's `--swa-full-tokens-ratio`: tokens that layers with a window hold, for each that the others hold; by what
    /// requests use of each if absent.
    pub swa_full_tokens_ratio: Option<f32>,
    /// Longest chunk of a prompt in one step; `None` computes prompts whole.
    pub chunked_prefill_size: Option<u32>,
    /// Largest number of prompt tokens in one step, over all requests.
    pub max_prefill_tokens: u32,
    pub max_running_requests: u32,
    /// Requests that may wait; more are refused, retriably.
    pub max_queued_requests: u32,
    /// Above 1 admits less and retracts less. Scales the expected share of `max_new_tokens`.
    pub schedule_conservativeness: f32,
    pub disable_radix_cache: bool,
    pub device: Device,
    /// SGLang's overlap schedule: a step is launched before the tokens of the previous one are
    /// known. If absent, on where steps are replayed (on GPUs).
    pub overlap_schedule: Option<bool>,
    /// Whether text that a request's grammar forces is computed together with the token before it.
    pub jump_forward: bool,
    /// SGLang's `--speculative-algorithm` and its numbers.
    pub speculative: Option<SpeculativeConfig>,
    /// Seeds the requests that carry no seed.
    pub random_seed: u64,
    /// Where digests of model files are kept between starts; without it each start computes them.
    pub cache_dir: Option<PathBuf>,
    /// Takes hashes of what requests compute, send and receive; costs time and waits.
    pub observer: Option<Arc<dyn Observer>>,
    pub mode: DisaggregationMode,
}

/// How tokens are drafted that a step computes ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeculativeConfig {
    pub algorithm: SpeculativeAlgorithm,
    /// SGLang's `--speculative-num-steps`: drafts per request and step, at most.
    pub num_steps: u32,
}

/// SGLang's `SpeculativeAlgorithm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpeculativeAlgorithm {
    /// Drafts are what followed the same tokens earlier in the request.
    Ngram,
    /// Drafts are those of another model, a Hugging Face directory or a GGUF file, of the same vocabulary.
    Standalone { draft_model_path: PathBuf },
    /// Drafts are those of the model's own draft layer (multi-token prediction): SGLang's `NEXTN` and `EAGLE`. Both
    /// sides of a pair have it, or neither.
    Nextn,
}

/// The compute device.
#[derive(Clone, Debug)]
pub enum Device {
    Cpu {
        /// All cores if absent.
        threads: Option<usize>,
        /// Memory for the KV pool where `max_total_tokens` is absent.
        kv_memory_bytes: u64,
    },
    Cuda {
        driver: Arc<dyn Driver>,
        /// SGLang's `--mem-fraction-static`: share of the device's memory that weights, activations and
        /// the KV pool take together, where `max_total_tokens` is absent.
        mem_fraction_static: f64,
        /// SGLang's `--enable-deterministic-inference`: tokens depend on neither batch-mates nor chunks.
        deterministic: bool,
        /// SGLang's `--cuda-graph-max-bs`: decode steps of up to this many requests are replayed as
        /// graphs; 0 replays none.
        cuda_graph_max_bs: u32,
    },
}

/// SGLang's `DisaggregationMode`.
#[derive(Clone, Debug)]
pub enum DisaggregationMode {
    Unified,
    Prefill(PrefillConfig),
    Decode(DecodeConfig),
}

#[derive(Clone, Debug)]
pub struct PrefillConfig {
    pub transfer: TransferConfig,
    /// Port of the bootstrap server next to this engine, where it registers its rank.
    pub bootstrap_port: u16,
    /// HTTP port, sent to decode with the registration.
    pub http_port: u16,
}

#[derive(Clone, Debug)]
pub struct DecodeConfig {
    pub transfer: TransferConfig,
    /// SGLang's `--num-reserved-decode-tokens`: slots reserved per request for tokens to come.
    pub num_reserved_decode_tokens: u32,
    /// Request slots beyond `max_running_requests` for requests whose KV is in transfer; as many as
    /// `max_running_requests` if absent.
    pub extra_slots: Option<u32>,
    /// SGLang's `--disaggregation-decode-polling-interval`: steps between two polls of the
    /// transfers.
    pub polling_interval: u32,
}

// === impl DisaggregationMode ===

impl DisaggregationMode {
    pub fn role(&self) -> Role {
        match self {
            Self::Unified => Role::Unified,
            Self::Prefill(_) => Role::Prefill,
            Self::Decode(_) => Role::Decode,
        }
    }

    /// Who reaches the pools: over shm, decode reads those of prefill; all other memory is this process's.
    pub(crate) fn reach(&self) -> Reach {
        match self {
            Self::Prefill(prefill) if prefill.transfer.transport.allows(Transport::Shm) => {
                Reach::Host
            }
            Self::Unified | Self::Prefill(_) | Self::Decode(_) => Reach::Process,
        }
    }

    /// The configuration of the KV transfer, if there is one.
    pub(crate) fn transfer(&self) -> Option<&TransferConfig> {
        match self {
            Self::Unified => None,
            Self::Prefill(prefill) => Some(&prefill.transfer),
            Self::Decode(decode) => Some(&decode.transfer),
        }
    }
}

// === impl EngineConfig ===

impl EngineConfig {
    /// Whether the model's own draft layer drafts.
    pub(crate) fn has_draft_layer(&self) -> bool {
        let speculative = self.speculative.as_ref();
        speculative.is_some_and(|speculative| match speculative.algorithm {
            SpeculativeAlgorithm::Ngram | SpeculativeAlgorithm::Standalone { .. } => false,
            SpeculativeAlgorithm::Nextn => true,
        })
    }

    pub(super) fn text_sources(&self) -> TextSources {
        TextSources {
            model_path: self.model_path.clone(),
            tokenizer_path: self.tokenizer_path.clone(),
            chat_template: self.chat_template.clone(),
        }
    }

    /// A unified engine with SGLang's defaults.
    pub fn new(model_path: impl Into<PathBuf>) -> Self {
        Self {
            model_path: model_path.into(),
            tokenizer_path: None,
            chat_template: None,
            sampling_from_model: true,
            served_model_name: "default".to_owned(),
            weight_version: "default".to_owned(),
            context_length: None,
            dtype: None,
            kv_cache_dtype: None,
            page_size: 16,
            max_total_tokens: None,
            max_mamba_cache_size: None,
            mamba_full_memory_ratio: DEFAULT_STATE_RATIO,
            swa_full_tokens_ratio: None,
            chunked_prefill_size: Some(512),
            max_prefill_tokens: 16_384,
            max_running_requests: 32,
            max_queued_requests: 1024,
            schedule_conservativeness: 1.0,
            disable_radix_cache: false,
            device: Device::Cpu {
                threads: None,
                kv_memory_bytes: 1 << 30,
            },
            overlap_schedule: None,
            jump_forward: true,
            speculative: None,
            random_seed: 0,
            cache_dir: None,
            observer: None,
            mode: DisaggregationMode::Unified,
        }
    }
}
