//! Sampling parameters of a request, and the consequences of sampled tokens. Compute does the
//! sampling itself.

pub mod params;
pub mod stop_regex;

pub(crate) mod penalties;
pub(crate) mod stop;
