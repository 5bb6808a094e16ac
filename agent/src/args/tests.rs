//! The rules of the command line.

use super::*;
use pd_engine::engine::{ComputeDtype, SpeculativeAlgorithm};
use pd_protocol::Role;
use pd_protocol::layout::KvDtype;
use std::net::IpAddr;
use std::time::Duration;

fn parse(flags: &str) -> Args {
    let words = ["pd-agent", "--model-path", "m"].into_iter();
    Args::try_parse_from(words.chain(flags.split_whitespace())).unwrap()
}

/// No rule is broken.
const NONE: [&str; 0] = [];

fn refused(flags: &str) -> String {
    let words = ["pd-agent", "--model-path", "m"].into_iter();
    let parsed = Args::try_parse_from(words.chain(flags.split_whitespace()));
    parsed.unwrap_err().to_string()
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
    assert_eq!(args.disaggregation.role, Role::Prefill);
    assert!(args.disaggregation.transfer.transfer_backend.is_foreign());
    assert_eq!(args.schedule.chunked_prefill_size, Some(-1));
}

#[test]
fn seed_commands_start_or_name_the_one_flag_that_cannot_be() {
    let seed_000 =
        "--disaggregation-transfer-backend mooncake --disaggregation-bootstrap-port 8998";
    let prefill = format!(
        "--tp 4 --disaggregation-mode prefill {seed_000} --disaggregation-decode-tp 8 --port 30000"
    );
    let one_rank = "this version runs one rank per process; set 1 and start more workers";
    assert_eq!(
        broken(&prefill),
        [format!("--tp 4, --disaggregation-decode-tp 8: {one_rank}")]
    );
    let decode = "--tp 8 --disaggregation-mode decode --disaggregation-transfer-backend mooncake \
                  --port 30001";
    assert_eq!(broken(decode), [format!("--tp 8: {one_rank}")]);
    let of_one_rank = |command: &str| command.replace(" 8 ", " 1 ").replace("--tp 4", "--tp 1");
    assert_eq!(broken(&of_one_rank(&prefill)), NONE);
    assert_eq!(broken(&of_one_rank(&format!("{decode} "))), NONE);
    let keys = "--disaggregation-decode-enable-offload-kvcache \
                --disaggregation-decode-polling-interval 2 --num-reserved-decode-tokens 256 \
                --disaggregation-ib-device mlx5_0,mlx5_1 --disaggregation-prefill-pp 1";
    for backend in ["mooncake", "mori", "nixl", "ascend", "fake", "nccl", "gloo"] {
        let flags = format!("{keys} --disaggregation-transfer-backend {backend}");
        assert_eq!(
            broken(&format!("{flags} --disaggregation-mode decode")),
            NONE
        );
        assert_eq!(
            broken(&format!("{flags} --disaggregation-mode prefill")),
            NONE
        );
    }
    for (mode, port) in [("prefill", 30000), ("decode", 30001)] {
        let seed_001 = format!(
            "--disaggregation-mode {mode} --disaggregation-transfer-backend fake --port {port} \
             --host 127.0.0.1 --trust-remote-code"
        );
        assert_eq!(broken(&seed_001), NONE);
    }
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
fn every_broken_rule_is_named_at_once() {
    let messages =
        broken("--tp 4 --nnodes 2 --page-size 48 --mem-fraction-static 1.5 --admin-port 30000");
    assert_eq!(messages.len(), 4, "{messages:#?}");
    assert!(messages[0].starts_with("--tp 4, --nnodes 2:"));
    assert!(messages[1].starts_with("--port and --admin-port are both 30000"));
}

#[test]
fn a_chunk_is_a_multiple_of_the_page() {
    assert_eq!(broken("--page-size 64 --chunked-prefill-size 96").len(), 1);
    assert_eq!(broken("--chunked-prefill-size 0").len(), 1);
    assert_eq!(broken("--page-size 64 --chunked-prefill-size 128").len(), 0);
}

#[test]
fn conservativeness_is_above_0_as_the_engine_wants_it() {
    assert_eq!(
        broken("--schedule-conservativeness 0"),
        ["--schedule-conservativeness 0: use a number above 0"]
    );
    assert_eq!(broken("--schedule-conservativeness 0.3"), NONE);
}

#[test]
fn a_host_is_an_address_in_any_form_or_a_name() {
    for (given, address) in [
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("::", "::"),
        ("0.0.0.0", "0.0.0.0"),
        ("localhost", "127.0.0.1"),
    ] {
        let host = parse(&format!("--host {given}")).server.host;
        assert_eq!(host, address.parse::<IpAddr>().unwrap(), "{given}");
    }
    let refused = refused("--host no.such.host.invalid");
    assert!(
        refused.contains("'--host <HOST>': this is neither an address nor a name"),
        "{refused}"
    );
}

#[test]
fn numbers_that_the_engine_lacks_are_refused_with_those_it_has() {
    for flags in ["--dtype half", "--dtype float16"] {
        let refused = refused(flags);
        assert!(
            refused.contains("takes float16 weights as they are"),
            "{refused}"
        );
    }
    for dtype in ["fp8_e5m2", "mxfp8", "nvfp4", "fp4_mx_block16"] {
        let refused = refused(&format!("--kv-cache-dtype {dtype}"));
        assert!(refused.contains("fp8_e4m3 alone is supported"), "{refused}");
    }
    assert_eq!(parse("--dtype float").model.dtype, Some(ComputeDtype::F32));
    let float16 = parse("--kv-cache-dtype float16").model.kv_cache_dtype;
    assert_eq!(float16, Some(KvDtype::Float16));
    let fp8 = parse("--kv-cache-dtype fp8_e4m3").model.kv_cache_dtype;
    assert_eq!(fp8, Some(KvDtype::Fp8E4m3));
}

#[test]
fn a_template_is_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let given = parse(&format!("--chat-template {}", file.path().display()));
    assert_eq!(given.model.chat_template.as_deref(), Some(file.path()));
    let refused = refused("--chat-template chatml");
    assert!(
        refused.contains("'--chat-template <FILE>': there is no such file"),
        "{refused}"
    );
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
            "the value of --api-key, or of PDSERVE_API_KEY, is not a usable secret: it is empty, which \
             protects nothing; omit it or give another",
            "the value of --admin-token, or of PDSERVE_ADMIN_TOKEN, is not a usable secret: it holds a \
             space, a line break or another character that no bearer token has; omit it or \
             give another",
        ]
    );
}

/// docs/flags.md is made of it.
#[test]
fn the_help_as_documents_have_it() {
    let mut command = <Args as clap::CommandFactory>::command().term_width(110);
    insta::assert_snapshot!(command.render_long_help());
}

#[test]
fn numbers_of_drafts_that_contradict_each_other_are_refused() {
    let ngram = "--speculative-algorithm NGRAM";
    let config = |flags: &str| parse(flags).speculative.config();
    assert_eq!(config(""), None);
    for flags in [
        "",
        "--speculative-num-steps 4",
        "--speculative-num-draft-tokens 5",
    ] {
        let all = format!("{ngram} --speculative-eagle-topk 1 {flags}");
        assert_eq!(broken(&all), NONE);
        assert_eq!(config(&all).map(|config| config.num_steps), Some(4));
    }
    assert_eq!(
        broken("--speculative-num-steps 3"),
        [
            "--speculative-num-steps 3: nothing is drafted without --speculative-algorithm; add it, or omit \
          --speculative-num-steps"
        ]
    );
    assert_eq!(
        broken(&format!(
            "{ngram} --speculative-num-steps 3 --speculative-num-draft-tokens 3 --speculative-eagle-topk 4"
        )),
        [
            "--speculative-eagle-topk 4: use a number of 1, since drafts are chains and no trees",
            "--speculative-num-steps is 3 and --speculative-num-draft-tokens 3, which must be one more, since a step \
             computes the token before the drafts, too; give one of the two"
        ]
    );
    assert_eq!(
        broken(&format!("{ngram} --speculative-num-steps 16")),
        ["--speculative-num-steps 16: use a number of 1 to 15"]
    );
    let refusal = refused("--speculative-algorithm EAGLE3");
    assert!(
        refusal.contains("give NEXTN, NGRAM or STANDALONE"),
        "{refusal}"
    );
    for name in ["NEXTN", "EAGLE"] {
        let config = config(&format!("--speculative-algorithm {name}"));
        let algorithm = config.map(|config| config.algorithm);
        assert_eq!(algorithm, Some(SpeculativeAlgorithm::Nextn));
    }
}

#[test]
fn a_draft_model_is_given_where_one_drafts() {
    let standalone = "--speculative-algorithm STANDALONE";
    let path = "--speculative-draft-model-path small";
    let config = parse(&format!("{standalone} {path}")).speculative.config();
    let algorithm = SpeculativeAlgorithm::Standalone {
        draft_model_path: "small".into(),
    };
    assert_eq!(config.map(|config| config.algorithm), Some(algorithm));
    assert_eq!(
        broken(standalone),
        ["--speculative-algorithm STANDALONE needs --speculative-draft-model-path; add it"]
    );
    for flags in [path, &format!("--speculative-algorithm NGRAM {path}")] {
        assert!(broken(flags)[0].contains("set that, or omit the path"));
    }
}
