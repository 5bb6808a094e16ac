//! What the table looks like.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pd_crds::status::PoolReplicas;

fn mk_pod(name: &str, state: &str, pid: Option<u32>) -> PodStatus {
    PodStatus {
        name: name.to_owned(),
        component: "decode".to_owned(),
        state: state.to_owned(),
        address: "127.3.4.5".to_owned(),
        url: "http://127.3.4.5:30000".to_owned(),
        admin_url: Some("http://127.3.4.5:30900".to_owned()),
        pid,
        restarts: 2,
        revision: "0123456789".to_owned(),
        reason: None,
    }
}

fn mk_decision() -> Decision {
    Decision {
        time: Time(Timestamp::UNIX_EPOCH),
        from: PoolReplicas {
            prefill: 1,
            decode: 1,
        },
        to: PoolReplicas {
            prefill: 2,
            decode: 1,
        },
        reason: "PrefillTokens".to_owned(),
        limited_by: "None".to_owned(),
        message: "prefill 1 → 2 (needs 1.3), decode 1 (needs 0.4) for 2.0 req/s".to_owned(),
    }
}

#[test]
fn the_table_lines_up() {
    let status = LocalStatus {
        name: "tiny".to_owned(),
        namespace: "default".to_owned(),
        file: "tiny.yaml".to_owned(),
        operator_pid: 17,
        endpoint: "http://127.0.0.1:8000".to_owned(),
        phase: LocalPhase::Progressing,
        file_error: Some("spec.pools.prefil: unknown field".to_owned()),
        pods: vec![
            mk_pod("tiny-decode-0-1", "Ready", Some(4711)),
            PodStatus {
                reason: Some("ended with exit status: 1: error: no model".to_owned()),
                ..mk_pod("tiny-decode-10-1", "BackOff", None)
            },
        ],
        scaling: ScalingStatus {
            mode: ScalingMode::Auto,
            decisions: vec![mk_decision()],
        },
    };
    insta::assert_snapshot!(table(&[status]), @r"
    default/tiny  Progressing  http://127.0.0.1:8000  (tiny.yaml, pid 17)
    the file's last edit was refused: spec.pools.prefil: unknown field
      POD               STATE    ADDRESS    PID   RESTARTS  REVISION
      tiny-decode-0-1   Ready    127.3.4.5  4711  2         0123456789
      tiny-decode-10-1  BackOff  127.3.4.5  -     2         0123456789
      tiny-decode-10-1: ended with exit status: 1: error: no model
      DECIDED               REASON         LIMITED BY  REPLICAS
      1970-01-01T00:00:00Z  PrefillTokens  None        prefill 1 → 2 (needs 1.3), decode 1 (needs 0.4) for 2.0 req/s
    ");
}

#[test]
fn an_idle_machine_says_how_to_start() {
    assert_eq!(
        table(&[]),
        "nothing runs; start with `pd-operator local -f FILE`\n"
    );
}
