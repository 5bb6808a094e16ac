//! Facts about the load of a deployment.

use super::*;
use crate::cluster::fake::mk_deployment;
use crate::cluster::snapshot::fixture::{mk_effective, mk_with, mk_workers};
use axum::Router;
use pd_identity::Peers;
use pd_protocol::labels;
use tokio::net::TcpListener;

#[tokio::test]
async fn a_node_that_comes_while_agents_are_asked_is_newer_than_the_load() {
    let nodes = Nodes::default();
    let comes = nodes.clone();
    let app = Router::new().fallback(move || async move {
        comes.come("n");
        "no metrics"
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(axum::serve(listener, app).into_future());

    let effective = mk_effective(&mk_deployment("a", "ns"));
    let mut workers = mk_workers(&effective, 0, true);
    let first = workers.first_mut().expect("a worker");
    first.metadata.uid = Some("u".to_owned());
    let annotations = first.annotations_mut();
    annotations.insert(labels::FIRST_PORT.to_owned(), port.to_string());
    annotations.insert(labels::SCHEME.to_owned(), "http".to_owned());
    first.status.get_or_insert_default().pod_ip = Some("127.0.0.1".to_owned());
    let snapshot = mk_with(&effective, workers);
    let mut scaler = Scaler::new(INTERVAL, Vec::new());
    let http = HttpClient::new(String::new(), Peers::Plain);
    let load = observe_load(&snapshot, &http, &nodes, &mut scaler).await;
    let load = load.expect("it is time");
    assert!(load.room_came.is_some_and(|at| at > load.at), "{load:?}");
}
