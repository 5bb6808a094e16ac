//! Facts about who probes with whom.

use super::*;
use pd_protocol::workers::WorkerState;

fn mk_worker(id: &str, role: Role, kv_compat: Option<&str>) -> WorkerStatus {
    WorkerStatus {
        spec: WorkerSpec {
            id: id.to_owned(),
            role,
            url: format!("http://{id}.local:30000"),
            bootstrap_host: None,
            bootstrap_port: None,
        },
        state: WorkerState::Serving,
        circuit_open: false,
        in_flight: 0,
        kv_compat: kv_compat.map(str::to_owned),
        boot_id: None,
        reason: None,
    }
}

fn names(pair: Option<Pair>) -> Option<(String, String)> {
    pair.map(|pair| (pair.prefill.id, pair.decode.id))
}

fn mk_names(prefill: &str, decode: &str) -> Option<(String, String)> {
    Some((prefill.to_owned(), decode.to_owned()))
}

#[test]
fn a_worker_probes_with_the_other_role_of_its_own_kind_in_turn() {
    let new = mk_worker("d-new", Role::Decode, Some("a"));
    let all = [
        mk_worker("p-0", Role::Prefill, Some("a")),
        mk_worker("p-old", Role::Prefill, Some("b")),
        mk_worker("p-silent", Role::Prefill, None),
        mk_worker("p-1", Role::Prefill, Some("a")),
        mk_worker("d-0", Role::Decode, Some("a")),
        new.clone(),
    ];
    assert_eq!(names(pair(&new, &all, 0)), mk_names("p-0", "d-new"));
    assert_eq!(names(pair(&new, &all, 1)), mk_names("p-1", "d-new"));
    assert_eq!(names(pair(&new, &all, 2)), mk_names("p-0", "d-new"));
    let prefill = mk_worker("p-new", Role::Prefill, Some("a"));
    assert_eq!(names(pair(&prefill, &all, 0)), mk_names("p-new", "d-0"));
}

#[tokio::test]
async fn the_first_of_its_kind_waits_for_nobody() {
    let first = mk_worker("p-0", Role::Prefill, Some("a"));
    let old = mk_worker("d-0", Role::Decode, Some("b"));
    let probes = Probes::new();
    assert_eq!(
        probes.probe("u", &first, &[old, first.clone()]),
        Probed::Passed
    );
}

#[tokio::test]
async fn a_peer_that_cannot_be_reached_is_named() {
    let mut prefill = mk_worker("p-0", Role::Prefill, Some("a"));
    // Port 0 takes no connections.
    prefill.spec.url = "http://127.0.0.1:0".to_owned();
    let new = mk_worker("d-0", Role::Decode, Some("a"));
    let probes = Probes::new();
    let all = [prefill, new.clone()];
    assert_eq!(probes.probe("u", &new, &all), Probed::Runs);
    let reason = loop {
        tokio::task::yield_now().await;
        if let Probed::Failed(reason) = probes.probe("u", &new, &all) {
            break reason;
        }
    };
    assert!(reason.starts_with("no KV from p-0 to d-0: "), "{reason}");
}

#[test]
fn a_probe_is_one_token_over_the_pair() {
    let pair = Pair {
        prefill: mk_worker("p-0", Role::Prefill, None).spec,
        decode: mk_worker("d-0", Role::Decode, None).spec,
    };
    let room = BootstrapRoom::new(7).expect("a room");
    let expected = json!({
        "input_ids": [0, 0, 0, 0, 0, 0, 0, 0],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": true},
        "bootstrap_host": "p-0.local",
        "bootstrap_port": 8998,
        "bootstrap_room": 7,
    });
    assert_eq!(request(&pair, room), expected);
}
