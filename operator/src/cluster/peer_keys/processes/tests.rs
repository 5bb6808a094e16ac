//! Facts about whom a rotation asks, and what it takes from their answers.

use super::*;
use crate::cluster::fake::mk_deployment;
use crate::cluster::snapshot::fixture::{mk_effective, mk_there};
use pd_identity::Peers;
use serde_json::{Value, json};
use std::sync::Arc;

/// The pod of a prefill worker that runs on a node, after a change.
fn mk_facts(change: impl Fn(&mut Value)) -> PodFacts {
    let effective = mk_effective(&mk_deployment("a", "ns"));
    let mut facts = mk_there(&effective, true).pods.swap_remove(0);
    let mut pod = json!(*facts.pod);
    pod["spec"]["nodeName"] = json!("node-1");
    change(&mut pod);
    facts.pod = Arc::new(serde_json::from_value(pod).expect("a Pod"));
    facts
}

/// Its program runs no more.
fn ended(pod: &mut Value) {
    let ended = json!({"terminated": {"exitCode": 0}});
    pod["status"]["containerStatuses"] = json!([{"name": "agent", "state": ended}]);
}

fn deleted(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
}

async fn report_of(facts: &PodFacts) -> Reported {
    let http = HttpClient::new(String::new(), Peers::Plain);
    ask_one(facts, 8000, &http).await
}

#[test]
fn those_are_asked_that_may_have_the_keys() {
    assert!(mk_facts(|_| ()).may_have_keys());
    assert!(
        mk_facts(deleted).may_have_keys(),
        "it finishes its requests"
    );
    assert!(mk_facts(ended).may_have_keys(), "it is started again");
    let unplaced = mk_facts(|pod| pod["spec"]["nodeName"] = json!(null));
    assert!(!unplaced.may_have_keys());
    let plain = mk_facts(|pod| pod["metadata"]["annotations"][labels::SCHEME] = json!("http"));
    assert!(!plain.may_have_keys());
    assert!(!mk_facts(|pod| pod["status"]["phase"] = json!("Failed")).may_have_keys());
    let gone = mk_facts(|pod| {
        deleted(pod);
        ended(pod);
    });
    assert!(!gone.may_have_keys());
}

#[tokio::test]
async fn one_that_does_not_answer_starts_or_is_silent() {
    let starting = |why: &str| Reported::Starting(why.to_owned());
    let facts = mk_facts(ended);
    assert_eq!(
        report_of(&facts).await,
        starting("its program does not run yet")
    );
    let facts = mk_facts(|_| ());
    assert_eq!(report_of(&facts).await, starting("it has no address yet"));
    // Nothing listens on a port that no one may bind.
    let unready = |pod: &mut Value| {
        pod["status"]["podIP"] = json!("127.0.0.1");
        pod["metadata"]["annotations"][labels::SCHEME] = json!("https");
        pod["status"]["conditions"] = json!([]);
    };
    assert!(matches!(
        report_of(&mk_facts(unready)).await,
        Reported::Starting(_)
    ));
    let ready = mk_facts(|pod| pod["status"]["podIP"] = json!("127.0.0.1"));
    let Reported::Silent(why) = report_of(&ready).await else {
        panic!("it is ready and ought to answer");
    };
    assert!(why.contains("/metrics: "), "{why}");
    let mut lost = ready;
    lost.disposition = NodeDisposition::Lost;
    assert_eq!(
        report_of(&lost).await,
        Reported::Silent("its node is lost".to_owned())
    );
}

#[test]
fn keys_are_read_from_the_metrics_of_routers_and_agents() {
    let text = "# TYPE x gauge\nx 1\nNAME_peer_key_info{key_id=\"0b\",use=\"verifies\"} 1\n\
                NAME_peer_key_info{key_id=\"0a\",use=\"signs\"} 1\n";
    for name in ["pd_router", "pdserve"] {
        let keys = vec![
            ("0b".to_owned(), KeyUse::Verifies),
            ("0a".to_owned(), KeyUse::Signs),
        ];
        assert_eq!(read(&text.replace("NAME", name)), Reported::Keys(keys));
    }
    assert!(matches!(read("x 1\n"), Reported::Silent(why) if why.contains("earlier versions")));
}
