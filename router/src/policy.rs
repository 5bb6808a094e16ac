//! Which worker of a pool gets a request. A policy sees the loads of the workers that may serve
//! it and names one; health, circuits and pairing are settled before.

mod least_loaded;
mod load;
mod power_of_two;
mod random;
mod round_robin;

pub(crate) use load::Load;

use least_loaded::least_loaded;
use power_of_two::power_of_two;
use random::random;
use round_robin::RoundRobin;

/// A policy by SGLang's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PolicyName {
    Random,
    RoundRobin,
    PowerOfTwo,
    #[value(alias = "least_load")]
    LeastLoaded,
    /// SGLang's default. There is no cache index here yet, so it serves as `least_loaded`.
    CacheAware,
    /// SGLang's choice by prompt length; serves as `least_loaded`.
    Bucket,
}

/// The policy of each pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policies {
    pub(crate) prefill: PolicyName,
    pub(crate) decode: PolicyName,
    pub(crate) unified: PolicyName,
}

/// A policy with what it remembers between requests.
#[derive(Debug)]
pub(crate) enum Policy {
    Random,
    RoundRobin(RoundRobin),
    PowerOfTwo,
    LeastLoaded,
}

// === impl PolicyName ===

impl PolicyName {
    /// Whether another policy serves under this name.
    pub(crate) fn is_substituted(self) -> bool {
        matches!(self, Self::CacheAware | Self::Bucket)
    }
}

// === impl Policy ===

impl Policy {
    pub(crate) fn new(name: PolicyName) -> Self {
        match name {
            PolicyName::Random => Self::Random,
            PolicyName::RoundRobin => Self::RoundRobin(RoundRobin::default()),
            PolicyName::PowerOfTwo => Self::PowerOfTwo,
            PolicyName::LeastLoaded | PolicyName::CacheAware | PolicyName::Bucket => {
                Self::LeastLoaded
            }
        }
    }

    /// Index of the chosen worker; `None` only if there is none. `draw` is 64 random bits.
    pub(crate) fn pick(&self, loads: &[Load], draw: u64) -> Option<usize> {
        match loads.len() {
            0 => None,
            1 => Some(0),
            _ => Some(match self {
                Self::Random => random(loads.len(), draw),
                Self::RoundRobin(state) => state.next(loads.len()),
                Self::PowerOfTwo => power_of_two(loads, draw),
                Self::LeastLoaded => least_loaded(loads, draw),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
