//! Flags for the model and its dtypes.

use crate::service::answer_forms::WantedForm;
use clap::{Args, ValueEnum};
use pd_answers::{ReasoningForm, ToolForm};
use pd_engine::engine::ComputeDtype;
use pd_protocol::layout::KvDtype;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Hugging Face directory or GGUF file; or a repository of the hub, such as Qwen/Qwen3-8B, which is fetched to the
    /// hub's cache folder (HF_HOME, HF_TOKEN and HF_ENDPOINT hold)
    #[arg(long, alias = "model", value_name = "PATH")]
    pub(crate) model_path: PathBuf,

    /// Branch, tag or commit of that repository
    #[arg(long, default_value = "main", value_name = "REVISION")]
    pub(crate) revision: String,

    /// Name that clients request; `--model-path` as given if absent
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,

    /// Longest prompt plus answer, in tokens; the model's own limit if absent
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context_length: Option<u32>,

    /// Dtype of activations and products, float32 or bfloat16; `auto` is the fastest that device
    /// and file allow. Weights keep the file's dtype, quantised ones stay packed
    #[arg(long, default_value = "auto", value_name = "DTYPE", value_parser = dtype)]
    // The full path keeps clap from reading the field as a flag that may be absent; `auto` is `None`.
    pub(crate) dtype: std::option::Option<ComputeDtype>,

    /// Dtype of the KV pool: float32, float16 (on CPUs), bfloat16 or fp8_e4m3, by the scales of
    /// the checkpoint or 1; `auto` is that of `--dtype`
    #[arg(long, default_value = "auto", value_name = "DTYPE", value_parser = kv_cache_dtype)]
    pub(crate) kv_cache_dtype: std::option::Option<KvDtype>,

    /// Folder with a tokenizer.json, or GGUF file, that replaces the model's tokenizer
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer_path: Option<PathBuf>,

    /// Jinja file that replaces the model's chat template
    #[arg(long, value_name = "FILE", value_parser = chat_template)]
    pub(crate) chat_template: Option<PathBuf>,

    /// How reasoning is marked in the model's answers: auto takes the form that its chat template is written for, none leaves
    /// reasoning in the text; or deepseek-r1, qwen3, qwen3-thinking, glm45, kimi, kimi_k2, mistral, gpt-oss
    #[arg(long, default_value = "auto", value_name = "FORM")]
    pub(crate) reasoning_parser: WantedForm<ReasoningForm>,

    /// How calls of tools are written in the model's answers: auto takes the form that its chat template is written for, none
    /// refuses tools; or qwen25, hermes, qwen3_coder, llama3, mistral, deepseekv3, deepseekv31, glm45, kimi_k2, pythonic,
    /// gpt-oss
    #[arg(long, default_value = "auto", value_name = "FORM")]
    pub(crate) tool_call_parser: WantedForm<ToolForm>,

    /// Source of a chat's temperature, top_p, top_k, min_p and repetition_penalty where a client
    /// leaves them out: the model's generation_config.json, or OpenAI's defaults only
    #[arg(long, value_enum, default_value_t = SamplingSource::Model)]
    pub(crate) sampling_defaults: SamplingSource,

    /// Seed of requests that carry none; drawn at start if absent
    #[arg(long, value_name = "SEED")]
    pub(crate) random_seed: Option<u64>,

    /// Name of these weights, returned with every answer
    #[arg(long, default_value = "default", value_name = "VERSION")]
    pub(crate) weight_version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplingSource {
    Model,
    Openai,
}

pub(crate) fn dtype(name: &str) -> Result<Option<ComputeDtype>, &'static str> {
    match name {
        "auto" => Ok(None),
        "float32" | "float" => Ok(Some(ComputeDtype::F32)),
        "bfloat16" => Ok(Some(ComputeDtype::BF16)),
        "half" | "float16" => Err(
            "float16 products are not supported; give auto, which takes float16 weights as they \
             are",
        ),
        _ => Err("give auto, float32 or bfloat16"),
    }
}

pub(crate) fn kv_cache_dtype(name: &str) -> Result<Option<KvDtype>, &'static str> {
    match name {
        "auto" => Ok(None),
        "float32" => Ok(Some(KvDtype::Float32)),
        "float16" => Ok(Some(KvDtype::Float16)),
        "bfloat16" | "bf16" => Ok(Some(KvDtype::Bfloat16)),
        "fp8_e4m3" => Ok(Some(KvDtype::Fp8E4m3)),
        name if name.starts_with("fp") || name.contains("fp4") || name.contains("fp8") => Err(
            "of 8-bit and 4-bit KV fp8_e4m3 alone is supported; give it, auto, float32, float16 or bfloat16",
        ),
        _ => Err("give auto, float32, float16, bfloat16 or fp8_e4m3"),
    }
}

fn chat_template(name: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(
        "there is no such file, and SGLang's built-in templates are not included; give a Jinja file, \
         or omit the flag to use the model's own",
    )
}

// === impl ModelArgs ===

impl ModelArgs {
    /// Reads the model from where it was fetched to, under the name that was given.
    pub(crate) fn read_from(&mut self, path: PathBuf) {
        self.served_model_name = Some(self.served_name());
        self.model_path = path;
    }

    /// The name that requests put in `model`.
    pub(crate) fn served_name(&self) -> String {
        match &self.served_model_name {
            Some(name) => name.clone(),
            None => self.model_path.display().to_string(),
        }
    }
}
