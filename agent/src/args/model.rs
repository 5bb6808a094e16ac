//! Flags about the model and its numbers.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Hugging Face directory or GGUF file
    #[arg(long, alias = "model", value_name = "PATH")]
    pub(crate) model_path: PathBuf,

    /// Name that clients ask for; `--model-path` as given if absent
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,

    /// Longest prompt plus answer in tokens; the model's own limit if absent
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context_length: Option<u32>,

    /// Weights in memory: `auto` keeps the file's own format, quantised files stay packed
    #[arg(long, value_enum, default_value_t = Dtype::Auto)]
    pub(crate) dtype: Dtype,

    /// Format of the KV pool; `auto` is that of the activations
    #[arg(long, value_enum, default_value_t = KvCacheDtype::Auto)]
    pub(crate) kv_cache_dtype: KvCacheDtype,

    /// Seed of the requests that bring none; drawn at start if absent
    #[arg(long, value_name = "SEED")]
    pub(crate) random_seed: Option<u64>,

    /// Name of these weights, returned with every answer
    #[arg(long, default_value = "default", value_name = "VERSION")]
    pub(crate) weight_version: String,

    /// Tensor-parallel ranks
    #[arg(
        long,
        visible_alias = "tp",
        alias = "tensor-parallel-size",
        default_value_t = 1,
        value_name = "N"
    )]
    pub(crate) tp_size: u32,

    /// Pipeline stages
    #[arg(
        long,
        visible_alias = "pp",
        alias = "pipeline-parallel-size",
        default_value_t = 1,
        value_name = "N"
    )]
    pub(crate) pp_size: u32,

    /// Data-parallel replicas
    #[arg(
        long,
        visible_alias = "dp",
        alias = "data-parallel-size",
        default_value_t = 1,
        value_name = "N"
    )]
    pub(crate) dp_size: u32,

    /// Nodes that the ranks are spread over
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) nnodes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dtype {
    Auto,
    #[value(alias = "float")]
    Float32,
    Bfloat16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvCacheDtype {
    Auto,
    Float32,
    #[value(alias = "bf16")]
    Bfloat16,
}

// === impl ModelArgs ===

impl ModelArgs {
    /// The name that requests carry in `model`.
    pub(crate) fn served_name(&self) -> String {
        match &self.served_model_name {
            Some(name) => name.clone(),
            None => self.model_path.display().to_string(),
        }
    }
}
