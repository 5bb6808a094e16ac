//! Facts about SGLang's flags.

use super::*;
use crate::args;
use clap::{CommandFactory, Parser};
use std::collections::BTreeSet;

/// Names of the options of `sglang_router.launch_router` 0.3.2; `=` takes a value, `=*` several.
const RECORDED: &str = include_str!("../testdata/sglang-router-0.3.2.txt");

/// Of earlier versions.
const EARLIER: [&str; 1] = ["eviction-interval"];

fn refusal(line: &str) -> Option<String> {
    let args = args::Args::parse_from(["pd-router"].into_iter().chain(line.split(' ')));
    args.into_config().err().map(|error| error.to_string())
}

#[test]
fn every_option_of_sglangs_router_is_taken_as_sglang_takes_it() {
    let command = args::Args::command();
    for line in RECORDED.lines() {
        let (name, values) = line.split_once('=').unzip();
        let name = name.unwrap_or(line);
        let arg = command.get_arguments().find(|arg| {
            let mut aliases = arg.get_all_aliases().into_iter().flatten();
            arg.get_long() == Some(name) || aliases.any(|alias| alias == name)
        });
        let arg = arg.unwrap_or_else(|| panic!("--{name} is not classified"));
        let takes_values = arg.get_action().takes_values();
        assert_eq!(takes_values, values.is_some(), "--{name}");
        let takes_several = arg.get_num_args().is_some_and(|num| num.max_values() > 1);
        assert_eq!(takes_several, values == Some("*"), "--{name}");
    }
}

#[test]
fn the_table_holds_options_of_sglangs_router_only_and_each_once() {
    let recorded = RECORDED.lines().map(|line| line.split('=').next().unwrap());
    let recorded: BTreeSet<&str> = recorded.chain(EARLIER).collect();
    let mut seen = BTreeSet::new();
    for (name, _, _) in flags() {
        assert!(recorded.contains(name), "--{name}");
        assert!(seen.insert(name), "--{name} stands there twice");
    }
}

#[test]
fn what_tunes_starts_with_a_warning_that_names_it() {
    let line = "pd-router --mini-lb --max-tree-size 4 --prometheus-duration-buckets 1 2 --port 1";
    let args = args::Args::parse_from(line.split(' '));
    let warnings: Vec<String> = args.sglang.warnings().collect();
    assert_eq!(warnings.len(), 3);
    for (warning, flag) in warnings
        .iter()
        .zip(["max-tree-size", "mini-lb", "prometheus-"])
    {
        assert!(warning.starts_with(&format!("--{flag}")), "{warning}");
    }
    assert!(args.into_config().is_ok());
}

#[test]
fn what_changes_answers_or_trust_is_refused_with_what_to_do() {
    for (line, part) in [
        (
            "--rate-limit-tokens-per-second 5",
            "--max-concurrent-requests",
        ),
        ("--tool-call-parser qwen", "give it to the workers"),
        ("--backend openai", "leave it out"),
        ("--ca-cert-paths a b", "plain HTTP"),
        ("--jwt-issuer x", "PDSERVE_ADMIN_TOKEN"),
    ] {
        let refused = refusal(line).unwrap_or_else(|| panic!("{line} is served"));
        let flag = line.split(' ').next().unwrap();
        assert!(
            refused.starts_with(flag) && refused.contains(part),
            "{refused}"
        );
    }
    let secret = refusal("--oracle-password hush").unwrap();
    assert!(!secret.contains("hush"), "{secret}");
    for line in ["--backend sglang", "--history-backend none"] {
        assert_eq!(refusal(line), None);
    }
}
