//! Flags for memory, batches and threads.

use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Memory and scheduling")]
pub(crate) struct ScheduleArgs {
    /// Tokens per KV page
    #[arg(long, default_value_t = 16, value_name = "TOKENS")]
    pub(crate) page_size: u32,

    /// Longest chunk of a prompt computed in one step; -1 computes every prompt whole. If absent,
    /// 512 on CPUs, 2048 to 16384 on GPUs depending on their memory
    #[arg(long, allow_negative_numbers = true, value_name = "TOKENS")]
    pub(crate) chunked_prefill_size: Option<i64>,

    /// Prompt tokens in one step, over all requests
    #[arg(long, default_value_t = 16384, value_name = "TOKENS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_prefill_tokens: u32,

    /// Requests computed concurrently; 32 on CPUs, 256 on GPUs if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_running_requests: Option<u32>,

    /// Requests in the engine, computing or waiting; more are refused, retriably
    #[arg(long, default_value_t = 1024, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_queued_requests: u32,

    /// Tokens that the KV pool holds; derived from `--mem-fraction-static` if absent
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_total_tokens: Option<u32>,

    /// Slots for recurrent states, of running requests and of cached prefixes; derived from
    /// `--mamba-full-memory-ratio` if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_mamba_cache_size: Option<u32>,

    /// Memory for recurrent states, as a multiple of the memory for KV pages
    #[arg(long, default_value_t = 0.9, value_name = "RATIO")]
    pub(crate) mamba_full_memory_ratio: f32,

    /// Tokens that layers with a sliding window hold, for each that the others hold, above 0 and up to 1; enough windows
    /// for requests of 2,048 tokens more, if absent
    #[arg(long, value_name = "RATIO")]
    pub(crate) swa_full_tokens_ratio: Option<f32>,

    /// How much of an answer's possible length admission reserves; above 1 is more cautious
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub(crate) schedule_conservativeness: f32,

    /// Draw each token of text that a request's grammar forces in a step of its own. Answers are the same
    #[arg(long)]
    pub(crate) disable_jump_forward: bool,

    /// Compute every prompt in full; on decode, receive its KV in full
    #[arg(long)]
    pub(crate) disable_radix_cache: bool,
}
