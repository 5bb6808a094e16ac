//! The engine from outside: whole requests over tiny checkpoints, in one process.

mod cuda;
mod disaggregated;
mod draft_layer;
mod equal;
mod faults;
mod grammar;
mod harness;
mod observed;
mod pair;
mod prefixes;
mod speculation;
mod states;
mod token_ids_logprob;
mod unified;
mod windows;
