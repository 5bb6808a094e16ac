//! Facts about who probes with whom, and what becomes of it.

use super::*;
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use pd_identity::Peers;
use pd_protocol::BootstrapRoom;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::TcpListener;

fn mk_worker(name: &str, component: Component, kv_compat: Option<&str>) -> Worker {
    Worker {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        component,
        ip: Ipv4Addr::LOCALHOST.into(),
        // Port 0 takes no connections.
        url: "http://127.0.0.1:0".to_owned(),
        bootstrap_port: Some(8998),
        kv_compat: kv_compat.map(str::to_owned),
        serves: true,
    }
}

use Component::{Decode, Prefill};

fn mk_client() -> HttpClient {
    HttpClient::new(String::new(), Peers::Plain)
}

#[test]
fn a_worker_probes_with_the_other_role_of_its_own_kind_in_turn() {
    let new = mk_worker("d-new", Decode, Some("a"));
    let all = [
        mk_worker("p-0", Prefill, Some("a")),
        mk_worker("p-old", Prefill, Some("b")),
        mk_worker("p-silent", Prefill, None),
        mk_worker("p-1", Prefill, Some("a")),
        mk_worker("d-0", Decode, Some("a")),
        new.clone(),
    ];
    let name = |attempts| match choose(&new, &all, attempts) {
        Choice::Peer(peer) => peer.name.clone(),
        Choice::NotYet | Choice::NoPeer => panic!("there are peers"),
    };
    let two: BTreeSet<String> = [name(0), name(1)].into();
    assert_eq!(two, ["p-0".to_owned(), "p-1".to_owned()].into());
    assert_eq!(name(0), name(2));
}

#[test]
fn peers_that_may_come_are_waited_for_and_others_are_not() {
    let new = mk_worker("d-new", Decode, Some("a"));
    let mut unready = mk_worker("p-0", Prefill, Some("a"));
    unready.serves = false;
    assert_eq!(choose(&new, &[unready], 0), Choice::NotYet);
    let unknown = mk_worker("p-0", Prefill, None);
    assert_eq!(choose(&new, &[unknown], 0), Choice::NotYet);
    let old = mk_worker("p-0", Prefill, Some("b"));
    assert_eq!(choose(&new, &[old], 0), Choice::NoPeer);
    let mut authenticated = mk_worker("p-0", Prefill, Some("a"));
    authenticated.url = authenticated.url.replace("http:", "https:");
    assert_eq!(choose(&new, &[authenticated], 0), Choice::NoPeer);
}

#[tokio::test]
async fn the_first_of_its_kind_waits_for_no_peer() {
    let first = mk_worker("p-0", Prefill, Some("a"));
    let old = mk_worker("d-0", Decode, Some("b"));
    let probes = Probes::default();
    let all = [old, first.clone()];
    assert_eq!(probes.probe(&mk_client(), &first, &all), Probed::Passed);
}

/// A worker whose probe has failed, and all workers.
async fn mk_failed(probes: &Probes) -> (Worker, Vec<Worker>, String) {
    let new = mk_worker("d-0", Decode, Some("a"));
    let all = vec![mk_worker("p-0", Prefill, Some("a")), new.clone()];
    assert_eq!(probes.probe(&mk_client(), &new, &all), Probed::Runs);
    loop {
        tokio::task::yield_now().await;
        if let Probed::Failed(reason) = probes.probe(&mk_client(), &new, &all) {
            return (new, all, reason);
        }
    }
}

#[tokio::test]
async fn a_peer_that_cannot_be_reached_is_named() {
    let (_, _, reason) = mk_failed(&Probes::default()).await;
    assert!(reason.starts_with("no KV from p-0 to d-0: "), "{reason}");
}

#[tokio::test]
async fn what_failed_stays_failed_while_its_peers_are_away() {
    let probes = Probes::default();
    let (new, _, reason) = mk_failed(&probes).await;
    let known = || probes.known.lock();
    let rested = State::Rests(Instant::now());
    known().probes.get_mut(&new.uid).unwrap().state = rested;
    let alone = [new.clone()];
    assert_eq!(
        probes.probe(&mk_client(), &new, &alone),
        Probed::Failed(reason)
    );
}

#[tokio::test]
async fn a_worker_that_is_no_candidate_any_more_leaves_nothing() {
    let probes = Probes::default();
    let (new, _, _) = mk_failed(&probes).await;
    probes.keep(&[new.uid.clone()].into());
    assert_eq!(probes.known.lock().probes.len(), 1);
    probes.keep(&BTreeSet::new());
    assert!(probes.known.lock().probes.is_empty());
}

#[test]
fn a_probe_is_one_token_over_the_pair() {
    let room = BootstrapRoom::new(7).expect("a room");
    let expected = json!({
        "input_ids": [0, 0, 0, 0, 0, 0, 0, 0],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": true},
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": 8998,
        "bootstrap_room": 7,
    });
    let prefill = mk_worker("p-0", Prefill, None);
    assert_eq!(token::in_a_room(prefill.ip, 8998, room), expected);
}

#[tokio::test]
async fn a_probe_that_panics_has_failed() {
    let probes = Probes::default();
    let worker = mk_worker("d-0", Decode, Some("a"));
    let mut probe = Probe::new(Instant::now());
    probe.state = State::Runs(1);
    let known = Arc::clone(&probes.known);
    known.lock().probes.insert(worker.uid.clone(), probe);
    probes.start(1, worker.uid.clone(), async { panic!("on purpose") });
    let outcome = || known.lock().probes[&worker.uid].outcome();
    while outcome() == Probed::Runs {
        tokio::task::yield_now().await;
    }
    assert_eq!(outcome(), Probed::Failed("the probe panicked".to_owned()));
}

/// A worker of vLLM's that answers `answer` and, asked with parameters of a prefill, fetches so many bytes.
async fn serve_vllm(
    component: Component,
    answer: Value,
    bytes: u32,
) -> (Worker, Arc<Mutex<Vec<Value>>>) {
    let fetched = Arc::new(AtomicU32::new(0));
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (counted, kept) = (Arc::clone(&fetched), Arc::clone(&asked));
    let complete = async move |Json(body): Json<Value>| {
        if body["kv_transfer_params"]["do_remote_prefill"] == true {
            fetched.fetch_add(bytes, Ordering::Relaxed);
        }
        kept.lock().push(body);
        Json(answer)
    };
    let metrics = async move || {
        let config = "vllm:cache_config_info{kv_cache_size_tokens=\"64\"} 1\n";
        let bytes = counted.load(Ordering::Relaxed);
        format!("{config}vllm:nixl_bytes_transferred_sum{{engine=\"0\"}} {bytes}\n")
    };
    let routes = Router::new()
        .route("/v1/completions", post(complete))
        .route("/metrics", get(metrics));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = Worker {
        url: format!("http://{}", listener.local_addr().unwrap()),
        bootstrap_port: None,
        ..mk_worker("w", component, Some("a"))
    };
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (worker, asked)
}

#[tokio::test]
async fn a_token_of_vllms_counts_once_decode_has_fetched_bytes() {
    let params = json!({"do_remote_prefill": true, "remote_block_ids": [[1]]});
    let prefilled = json!({"kv_transfer_params": params});
    let (prefill, of_prefill) = serve_vllm(Prefill, prefilled, 0).await;
    let (decode, of_decode) = serve_vllm(Decode, json!({}), 4096).await;
    assert_eq!(see_kv_move(&mk_client(), &decode, &prefill).await, Ok(()));
    let asked = |by: &Mutex<Vec<Value>>| by.lock()[0].clone();
    assert_eq!(
        asked(&of_prefill)["kv_transfer_params"]["do_remote_decode"],
        true
    );
    assert_eq!(asked(&of_decode)["kv_transfer_params"], params);

    let (lacking, _) = serve_vllm(Prefill, json!({}), 0).await;
    let (fresh, _) = serve_vllm(Decode, json!({}), 4096).await;
    let error = see_kv_move(&mk_client(), &fresh, &lacking)
        .await
        .unwrap_err();
    assert!(error.contains("no kv_transfer_params"), "{error}");
}

#[tokio::test]
async fn a_decode_that_computes_the_prompt_itself_shows_nothing() {
    let prefilled = json!({"kv_transfer_params": {"do_remote_prefill": true}});
    let (prefill, _) = serve_vllm(Prefill, prefilled, 0).await;
    let (decode, _) = serve_vllm(Decode, json!({}), 0).await;
    let limit = Duration::from_millis(300);
    let error = token::fetch(&mk_client(), &prefill, &decode, limit).await;
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "decode answered, and has fetched no KV");
}

#[tokio::test]
async fn a_decode_without_figures_shows_nothing() {
    let prefilled = json!({"kv_transfer_params": {"do_remote_prefill": true}});
    let (prefill, _) = serve_vllm(Prefill, prefilled, 0).await;
    let silent = mk_worker("d-0", Decode, Some("a"));
    let error = token::send(&mk_client(), &prefill, &silent).await;
    assert!(
        matches!(error, Err(token::TokenError::NoFigures)),
        "{error:?}"
    );
}
