//! Facts about discovery flags.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: DiscoveryArgs,
}

fn config(line: &str) -> Result<Option<DiscoveryConfig>, DiscoveryArgsError> {
    let line = Line::try_parse_from(["pd-router"].into_iter().chain(line.split_whitespace()));
    line.unwrap_or_else(|error| panic!("{error}"))
        .args
        .into_config(true, false)
}

#[test]
fn sglangs_selectors_are_joined_and_ours_are_too() {
    let wanted = Some(DiscoveryConfig {
        scheme: "http",
        namespace: Some("llm".to_owned()),
        selectors: vec![
            (Role::Prefill, "app=s,role=p".to_owned()),
            (Role::Decode, "pdserve.io/role=d,app=s".to_owned()),
        ],
        port: 30000,
    });
    let line = "--service-discovery --service-discovery-namespace llm \
                --prefill-selector app=s role=p --decode-selector pdserve.io/role=d,app=s";
    assert_eq!(config(line), Ok(wanted));
    assert_eq!(config(""), Ok(None));
}

#[test]
fn flags_that_find_nothing_are_refused_with_what_is_missing() {
    let refusal = |line: &str| config(line).unwrap_err().to_string();
    for (line, part) in [
        ("--service-discovery", "needs --prefill-selector"),
        (
            "--decode-selector a=b",
            "--decode-selector needs --service-discovery",
        ),
        (
            "--service-discovery --prefill-selector a=b",
            "give --decode-selector too",
        ),
        (
            "--service-discovery --prefill-selector a",
            "--prefill-selector a: a label",
        ),
        (
            "--service-discovery --prefill-selector =b",
            "a label is KEY=VALUE",
        ),
        (
            "--service-discovery --prefill-selector a=b&c",
            "a label is KEY=VALUE",
        ),
        (
            "--service-discovery --selector a=b",
            "--selector finds unified",
        ),
    ] {
        assert!(refusal(line).contains(part), "{line}: {}", refusal(line));
    }
}
