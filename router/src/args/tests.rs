//! Facts about the command line.

use super::*;
use crate::queue::ConcurrencyLimit;
use pd_protocol::Role;

fn config(line: &str) -> Result<Config, ArgsError> {
    Args::try_parse_from(line.split_whitespace())
        .expect("the flags parse")
        .into_config()
}

#[test]
fn a_start_script_of_sglangs_router_is_understood() {
    let config = config(
        "pd-router --pd-disaggregation --prefill http://p0:30001 8998 --prefill http://p1:30001 \
         --prefill http://p2:30001 none --decode http://d0:30002 --decode http://d1:30002 \
         --host 127.0.0.1 --port 8000 --policy cache_aware --prefill-policy power_of_two \
         --retry-max-retries 3 --max-concurrent-requests -1 --cache-threshold 0.5 \
         --request-timeout-secs 60 --prometheus-port 29000 --log-dir logs",
    )
    .unwrap();
    let ports: Vec<_> = config
        .workers
        .iter()
        .filter(|worker| worker.role == Role::Prefill)
        .map(|worker| worker.bootstrap_port)
        .collect();
    assert_eq!(ports, [Some(8998), None, None]);
    assert_eq!(config.workers.len(), 5);
    assert_eq!(config.policies.prefill, PolicyName::PowerOfTwo);
    assert_eq!(config.policies.decode, PolicyName::CacheAware);
    assert_eq!(config.queue.limit, ConcurrencyLimit::Unbounded);
    assert_eq!(config.retry.retries_max, 3);
}

#[test]
fn a_port_without_its_worker_is_refused() {
    let line = "pd-router --prefill 8998 http://p:1 --decode http://d:2";
    let error = config(line).unwrap_err();
    assert!(error.to_string().contains("--prefill 8998"), "{error}");
}

#[test]
fn a_bootstrap_port_beyond_its_range_is_refused_with_its_worker() {
    let error = config("pd-router --prefill http://p:1 70000").unwrap_err();
    assert!(error.to_string().contains("http://p:1 70000"), "{error}");
}

#[test]
fn a_url_without_its_scheme_is_a_worker_not_a_port() {
    for (line, part) in [
        (
            "--prefill foo",
            "--prefill: worker URL \"foo\": http:// is missing",
        ),
        (
            "--prefill http://p:1 --prefill 10.0.0.7:30000 8998",
            "write http://10.0.0.7:30000",
        ),
        ("--decode localhost:1", "--decode: worker URL"),
        (
            "--worker-urls http://a:1 https://b:1",
            "give --peer-key-file",
        ),
        ("--decode http://[::1]:x", "--decode: worker URL"),
    ] {
        let refused = config(&format!("pd-router {line}"))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(part), "{refused}");
    }
    assert!(config("pd-router --decode http://[::1]:30000 --decode http://d").is_ok());
    assert!(
        config("pd-router --peer-key-file keys --decode https://d:1 --decode http://e").is_ok()
    );
}

#[test]
fn unified_workers_and_pairs_exclude_each_other() {
    let line = "pd-router --pd-disaggregation --worker-urls http://a:1 http://b:1";
    assert!(config(line).is_err());
    let plain = config("pd-router --worker-urls http://a:1 http://b:1").unwrap();
    assert!(
        plain
            .workers
            .iter()
            .all(|worker| worker.role == Role::Unified)
    );
}

#[test]
fn a_router_without_a_connection_is_refused_by_name() {
    let error = Args::try_parse_from(["pd-router", "--max-connections", "0"]).unwrap_err();
    assert!(error.to_string().contains("--max-connections"), "{error}");
}

#[test]
fn a_jitter_outside_its_share_is_refused_by_name() {
    let error = config("pd-router --retry-jitter-factor 2").unwrap_err();
    assert!(
        error.to_string().contains("--retry-jitter-factor is 2"),
        "{error}"
    );
}

#[test]
fn policies_in_whose_place_another_serves_are_named() {
    let line = [
        "pd-router",
        "--policy",
        "cache_aware",
        "--prefill-policy",
        "bucket",
    ];
    assert_eq!(
        Args::parse_from(line).substituted_policies(),
        ["--policy cache_aware", "--prefill-policy bucket"]
    );
    assert!(
        Args::parse_from(["pd-router"])
            .substituted_policies()
            .is_empty()
    );
}

#[test]
fn the_admin_port_follows_the_apis() {
    let admin = |line: &str| config(line).map(|config| config.admin.1);
    assert_eq!(admin("pd-router --port 8000").unwrap(), 8900);
    assert_eq!(admin("pd-router").unwrap(), ports::ADMIN);
    assert_eq!(admin("pd-router --port 0").unwrap(), 0);
    assert_eq!(admin("pd-router --port 65000 --admin-port 1").unwrap(), 1);
    let none = admin("pd-router --port 65000").unwrap_err().to_string();
    assert!(none.contains("set --admin-port"), "{none}");
}

/// docs/flags.md is made of it.
#[test]
fn the_help_as_documents_have_it() {
    let mut command = <Args as clap::CommandFactory>::command().term_width(110);
    insta::assert_snapshot!(command.render_long_help());
}
