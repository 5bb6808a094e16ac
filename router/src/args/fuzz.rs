//! Any command line, one argument in each line: refused, or taken with workers that have addresses.

use super::*;
use crate::client::Endpoint;
use crate::queue::ConcurrencyLimit;
use pd_fuzz::{Memory, fuzz};

/// Clap's own tables of the flags.
const MEMORY: Memory = Memory {
    base: 2 << 20,
    per_byte: 256,
};

#[test]
fn router_args() {
    fuzz!("router_args", MEMORY, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines() {
            if let Ok(limit) = line.parse::<ConcurrencyLimit>() {
                assert_eq!(limit.to_string().parse(), Ok(limit));
            }
            if let Ok(endpoint) = Endpoint::parse(line, true) {
                assert!(endpoint.port() > 0 && !endpoint.host().is_empty());
            }
        }
        let line = std::iter::once("pd-router").chain(text.lines());
        if let Ok(args) = Args::try_parse_from(line)
            && let Ok(workers) = args.workers.into_specs(true)
        {
            for worker in workers {
                assert!(Endpoint::parse(&worker.url, true).is_ok());
                assert_ne!(worker.bootstrap_port, Some(0));
            }
        }
    });
}
