//! What a router may take of its node's memory where the spec says nothing: the sum of its own bounds, so that a router
//! within them is never killed, and one that leaks harms no neighbour.

use pd_crds::limits::LimitsSpec;

const MIB: u64 = 1 << 20;
/// Code, threads, tables of workers, metrics and timelines; 64 MiB were above it under the bench's load.
const PROCESS: u64 = 128 * MIB;
/// `--max-connections`, its default.
const CONNECTIONS: u64 = 16_384;
/// Of each: two heads of HTTP with their headers, and pieces of an answer towards a client that reads slowly.
const CONNECTION: u64 = 32 << 10;
/// `--max-total-payload-size`, its default; one body always fits.
const BODIES: u64 = 256 * MIB;
/// A client's body, and the same with the bootstrap fields.
const COPIES: u64 = 2;
/// Answers that are held whole, to put the prompt's log probabilities into them.
const ANSWERS: u64 = 256 * MIB;

/// In MiB.
pub(super) fn router_limit_mib(limits: &LimitsSpec) -> u64 {
    let body = u64::try_from(limits.max_payload_bytes).unwrap_or(0);
    let bodies = COPIES * BODIES.max(body);
    (PROCESS + CONNECTIONS * CONNECTION + bodies + ANSWERS).div_ceil(MIB)
}

#[cfg(test)]
mod tests;
