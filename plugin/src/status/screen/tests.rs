//! Screens, as people see them.

use super::*;
use crate::fixture::{
    at, condition, crashing, leaving, loading, pool, serving, settled, settled_view, unschedulable,
    view,
};
use crate::metrics::Scrape;
use serde_json::{Value, json};

fn mk_scrape(pod: &str, text: &str) -> Scrape {
    Scrape {
        pod: pod.to_owned(),
        is_router: pod.contains("router"),
        text: Ok(text.to_owned()),
    }
}

/// Half of the observations up to each of two bounds.
fn histogram(name: &str, bounds: [&str; 2]) -> String {
    let bucket = |le: &str, count: u32| format!("{name}_bucket{{le=\"{le}\"}} {count}\n");
    let [low, high] = bounds;
    [bucket(low, 10), bucket(high, 20), bucket("+Inf", 20)].concat()
}

fn mk_figures() -> Figures {
    let router = format!(
        "pd_router_in_flight 3\npd_router_queue_waiting 0\n{}{}",
        "pd_router_worker_requests{role=\"decode\",worker=\"tiny-decode-0-0\"} 3\n",
        histogram("pd_router_ttft_seconds", ["0.1", "0.5"]),
    );
    let prefill = format!(
        "pdserve_num_queue_reqs 2\n{}",
        histogram("pdserve_time_to_first_token_seconds", ["0.1", "0.3"])
    );
    let decode = "pdserve_num_queue_reqs 0\n".to_owned()
        + &histogram("pdserve_inter_token_latency_seconds", ["0.01", "0.02"]);
    let silent = Scrape {
        pod: "tiny-decode-1-0".to_owned(),
        is_router: false,
        text: Err("pods \"tiny-decode-1-0\" is forbidden: cannot get pods/proxy".to_owned()),
    };
    Figures::of(&[
        mk_scrape("tiny-router-5d9f", &router),
        mk_scrape("tiny-prefill-0-0", &prefill),
        mk_scrape("tiny-decode-0-0", &decode),
        silent,
    ])
}

#[test]
fn a_settled_deployment() {
    let screen = draw(&settled_view(), &mk_figures(), at("12:00:00"));
    insta::assert_snapshot!(screen);
}

#[test]
fn a_rollout_with_pods_in_every_state() {
    let mut document = settled();
    document["spec"]["autoscaling"] = json!({"mode": "Auto"});
    document["spec"]["rollout"] = json!({"paused": true});
    let status = &mut document["status"];
    status["revision"]["update"] = json!("bbbbbbbbbb");
    status["pools"] = json!({"prefill": pool([2, 0, 0, 1]), "decode": pool([2, 1, 1, 1])});
    status["conditions"] = json!([
        condition(
            "Ready",
            "False",
            "PrefillNotRoutable",
            "no prefill worker is routable"
        ),
        condition(
            "Progressing",
            "True",
            "Unschedulable",
            "2 Insufficient nvidia.com/gpu."
        ),
    ]);
    status["decisions"] = json!([{
        "time": "2026-01-02T11:59:20Z",
        "from": {"prefill": 1, "decode": 2},
        "to": {"prefill": 2, "decode": 2},
        "reason": "PrefillTokens",
        "limitedBy": "Budget",
        "message": "prefill 1 → 2 (needs 2.6), decode 2 (needs 1.1) for 3.0 req/s; held at budget.maxGpus",
    }]);
    let pods = vec![
        leaving("tiny-decode-0-0", "decode", "11:59:00"),
        serving("tiny-decode-1-0", "decode"),
        loading("tiny-decode-2-0", "decode"),
        crashing("tiny-prefill-0-0", "prefill"),
        unschedulable("tiny-prefill-1-0", "prefill"),
    ];
    let screen = draw(&view(document, pods), &Figures::default(), at("12:00:00"));
    insta::assert_snapshot!(screen);
}

#[test]
fn a_deployment_that_no_operator_has_seen() {
    let mut document = settled();
    document["status"] = Value::Null;
    let screen = draw(
        &view(document, Vec::new()),
        &Figures::default(),
        at("12:00:00"),
    );
    insta::assert_snapshot!(screen);
}

#[test]
fn a_refused_edit_and_another_image_are_shown() {
    let mut document = settled();
    let conditions = document["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(condition("SpecValid", "False", "InvalidSpec", "spec.x: no"));
    conditions.push(condition("ImagesAlike", "False", "ImageDrift", "1 workers"));
    let screen = draw(
        &view(document, Vec::new()),
        &Figures::default(),
        at("12:00:00"),
    );
    for line in ["InvalidSpec: spec.x: no", "ImageDrift: 1 workers"] {
        assert!(screen.contains(line), "{line} is not in\n{screen}");
    }
}
