//! The command line's rules, as facts.

use super::*;
use std::time::Duration;

fn parse(flags: &str) -> Args {
    let words = ["pd-agent", "--model-path", "m"].into_iter();
    Args::try_parse_from(words.chain(flags.split_whitespace())).unwrap()
}

fn broken(flags: &str) -> Vec<String> {
    let rules = parse(flags).broken_rules();
    rules.iter().map(ArgError::to_string).collect()
}

#[test]
fn a_start_script_of_sglang_is_understood() {
    let args = parse(
        "--tp 1 --dp 1 --pp-size 1 --host 0.0.0.0 --port 30001 --trust-remote-code \
         --disaggregation-mode prefill --disaggregation-transfer-backend mooncake \
         --disaggregation-bootstrap-port 9000 --disaggregation-decode-tp 1 \
         --disaggregation-ib-device mlx5_0 --mem-fraction-static 0.8 --page-size 16 \
         --chunked-prefill-size -1 --served-model-name m --enable-metrics",
    );
    assert_eq!(args.broken_rules(), []);
    assert_eq!(args.disaggregation.mode, Mode::Prefill);
    assert!(args.disaggregation.transfer.transfer_backend.is_foreign());
    assert_eq!(args.schedule.chunk_tokens(), None);
    let ignored: Vec<_> = args.ignored.given().into_iter().map(|(f, _)| f).collect();
    assert_eq!(ignored, ["--trust-remote-code", "--enable-metrics"]);
}

#[test]
fn flags_of_graphs_and_overlap_are_sglangs() {
    let device = parse("").device;
    let on = (device.disable_cuda_graph, device.disable_overlap_schedule);
    assert_eq!((on, device.cuda_graph_max_bs), ((false, false), 256));
    let device =
        parse("--disable-cuda-graph --disable-overlap-schedule --cuda-graph-max-bs 32").device;
    let off = (device.disable_cuda_graph, device.disable_overlap_schedule);
    assert_eq!((off, device.cuda_graph_max_bs), ((true, true), 32));
}

#[test]
fn defaults_are_those_of_sglang() {
    let args = parse("");
    assert_eq!(args.broken_rules(), []);
    assert_eq!(args.server.port, 30000);
    assert_eq!(args.server.admin_port(), Some(30900));
    assert_eq!(args.disaggregation.transfer.bootstrap_port, 8998);
    assert_eq!(args.disaggregation.num_reserved_decode_tokens, 512);
    assert_eq!(
        args.disaggregation.waiting_timeout,
        Duration::from_secs(300)
    );
    assert_eq!(args.model.served_name(), "m");
}

#[test]
fn the_admin_port_follows_the_http_port() {
    assert_eq!(parse("--port 31000").server.admin_port(), Some(31900));
    assert_eq!(parse("--port 0").server.admin_port(), Some(0));
    assert_eq!(
        broken("--port 65000"),
        ["--port 65000 leaves no admin port 900 above it; set --admin-port"]
    );
}

#[test]
fn decode_sizes_belong_to_prefill_alone() {
    let message = &broken("--disaggregation-mode decode --disaggregation-decode-tp 2")[0];
    assert!(
        message.starts_with("--disaggregation-decode-tp belongs to --disaggregation-mode prefill")
    );
    assert_eq!(broken("--disaggregation-decode-dp 1").len(), 1);
}

#[test]
fn fake_is_refused_on_prefill_only() {
    let fake = "--disaggregation-transfer-backend fake --disaggregation-mode";
    assert_eq!(broken(&format!("{fake} prefill")).len(), 1);
    assert_eq!(broken(&format!("{fake} decode")).len(), 0);
}

#[test]
fn every_broken_rule_is_named_at_once() {
    let messages =
        broken("--tp 4 --nnodes 2 --page-size 48 --mem-fraction-static 1.5 --admin-port 30000");
    assert_eq!(messages.len(), 5, "{messages:#?}");
    assert!(messages[0].starts_with("--tp-size 4:"));
    assert!(messages[1].starts_with("--nnodes 2:"));
    assert!(messages[2].starts_with("--port and --admin-port are both 30000"));
}

#[test]
fn a_chunk_is_a_multiple_of_the_page() {
    assert_eq!(broken("--page-size 64 --chunked-prefill-size 96").len(), 1);
    assert_eq!(broken("--chunked-prefill-size 0").len(), 1);
    assert_eq!(broken("--page-size 64 --chunked-prefill-size 128").len(), 0);
}

#[test]
fn times_are_seconds_and_never_negative() {
    let args = parse("--disaggregation-heartbeat-interval 0.5");
    assert_eq!(
        args.disaggregation.heartbeat_interval,
        Duration::from_millis(500)
    );
    let refused = ["pd-agent", "--model-path", "m", "--drain-timeout-secs=-1"];
    assert!(Args::try_parse_from(refused).is_err());
}

#[test]
fn secrets_are_never_shown() {
    let args = parse("--api-key hush");
    assert!(!format!("{args:?}").contains("hush"));
    let broken = broken("--api-key= --admin-token hush\u{e9}");
    assert_eq!(
        broken,
        [
            "the value of --api-key, or of PDSERVE_API_KEY, is no secret: it is empty, which \
             protects nothing; leave it out or give one",
            "the value of --admin-token, or of PDSERVE_ADMIN_TOKEN, is no secret: it holds a \
             space, a line break or another character that no bearer token has; leave it out or \
             give one",
        ]
    );
}
