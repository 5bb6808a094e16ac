//! What a request asks of sampling, and what follows from the tokens drawn. The drawing itself is
//! compute's.

pub mod params;
pub mod stop;

pub(crate) mod logprobs;
pub(crate) mod penalties;
pub(crate) mod rows;
