//! Any command line, one argument in each line: refused, or checked by the rules.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// Clap's own tables of the flags.
const MEMORY: Memory = Memory {
    base: 2 << 20,
    per_byte: 256,
};

#[test]
fn agent_args() {
    fuzz!("agent_args", MEMORY, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let line = std::iter::once("pd-agent").chain(text.lines());
        if let Ok(args) = Args::try_parse_from(line) {
            for rule in args.broken_rules() {
                assert!(!rule.to_string().is_empty());
            }
        }
    });
}
