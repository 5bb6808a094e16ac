//! The probe's command line.

use super::*;

fn parse(flags: &str) -> KvProbeArgs {
    let words = std::iter::once("pd-agent kv-probe").chain(flags.split_whitespace());
    KvProbeArgs::try_parse_from(words).unwrap()
}

fn peer(flags: &str) -> String {
    let peer = parse(flags).peer().unwrap();
    peer.map_or_else(String::new, |peer| peer.to_string())
}

#[test]
fn a_peer_is_a_host_with_or_without_a_port() {
    assert_eq!(peer(""), "");
    assert_eq!(peer("--peer node-1"), "node-1:8998");
    assert_eq!(peer("--peer node-1:9000"), "node-1:9000");
    let flags = "--peer 10.0.0.1 --disaggregation-bootstrap-port 9001";
    assert_eq!(peer(flags), "10.0.0.1:9001");
    assert_eq!(peer("--peer fd00::1"), "[fd00::1]:8998");
    assert_eq!(peer("--peer [fd00::1]"), "[fd00::1]:8998");
    assert_eq!(peer("--peer [fd00::1]:9000"), "[fd00::1]:9000");
}

#[test]
fn a_peer_that_is_none_is_refused_with_what_was_given() {
    for (given, why) in [
        ("node-1:port", "not a port"),
        ("node-1:70000", "not a port"),
        (":9000", "no host"),
    ] {
        let error = parse(&format!("--peer {given}")).peer().unwrap_err();
        let error = error.to_string();
        assert!(error.contains(given) && error.contains(why), "{error}");
    }
}

#[test]
fn sessions_share_the_bytes() {
    assert_eq!(parse("").session_pages().unwrap(), 16_384);
    assert_eq!(parse("--sessions 8").session_pages().unwrap(), 2048);
    assert_eq!(parse("--bytes 65536").session_pages().unwrap(), 1);
    let few = parse("--bytes 65536 --sessions 2").session_pages();
    assert!(few.unwrap_err().to_string().contains("each of 2 sessions"));
    let less = ["pd-agent kv-probe", "--bytes", "65535"];
    assert!(KvProbeArgs::try_parse_from(less).is_err());
}

#[test]
fn flags_of_the_transfer_are_those_of_serving() {
    let args = parse(
        "--disaggregation-transfer-backend rdma --disaggregation-ib-device mlx5_0,mlx5_1 \
         --disaggregation-ib-queue-pairs 4",
    );
    assert_eq!(args.transfer.ib_device, ["mlx5_0", "mlx5_1"]);
    assert_eq!(args.transfer.ib_queue_pairs, 4);
}

/// docs/flags.md is made of it.
#[test]
fn the_help_as_documents_have_it() {
    let mut command = <KvProbeArgs as clap::CommandFactory>::command().term_width(110);
    insta::assert_snapshot!(command.render_long_help());
}
