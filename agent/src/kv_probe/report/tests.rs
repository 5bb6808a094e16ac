//! The figures of a probe and their format.

use super::*;
use pd_protocol::Transport;

fn mk_round(prefill: &str, decode: &str) -> Round {
    Round {
        bytes: 1 << 30,
        prefill: serde_json::from_str(prefill).unwrap(),
        decode: serde_json::from_str(decode).unwrap(),
    }
}

/// Rounds that took these milliseconds, with prefill's processor half busy and decode's fully busy.
fn mk_rounds(took_ms: &[u64]) -> Vec<Round> {
    let span = |ms: u64, cpu_ms: u64| {
        format!(
            r#"{{"started": {{"at_ns": 7, "cpu_ns": 9}},
                "ended": {{"at_ns": {}, "cpu_ns": {}}}}}"#,
            ms * 1_000_000 + 7,
            cpu_ms * 1_000_000 + 9
        )
    };
    let round = |&ms: &u64| mk_round(&span(ms, ms / 2), &span(ms + 1, ms));
    took_ms.iter().map(round).collect()
}

fn mk_report() -> Report {
    let shape = Shape {
        pieces: 1024,
        piece_pages: 16,
    };
    Report {
        peer: "10.0.0.1:8998".to_owned(),
        link: PeerTransport {
            transport: Transport::Rdma,
            fallback_reason: "shm does not work: prefill runs on another host".to_owned(),
            nics: vec!["mlx5_0".to_owned(), "mlx5_1".to_owned()],
        },
        sessions: 1,
        rounds: 3,
        rows: vec![Row::new(shape, &mk_rounds(&[400, 100, 200]))],
        latency: Latency::new(&mk_rounds(&[1, 2, 3])),
    }
}

#[test]
fn figures_are_the_median_and_the_extremes() {
    let json = serde_json::to_value(mk_report()).unwrap();
    let row = &json["rows"][0];
    let near = |value: &serde_json::Value, expected: f64| {
        assert!((value.as_f64().unwrap() - expected).abs() < 0.001, "{json}");
    };
    near(&row["gb_per_s"]["median"], 5.369);
    near(&row["gb_per_s"]["min"], 2.684);
    near(&row["gb_per_s"]["max"], 10.737);
    near(&row["cpu_s_per_gb"]["prefill"], 0.093);
    near(&row["cpu_s_per_gb"]["decode"], 0.186);
    near(&json["latency"]["p50_us"], 2000.0);
    near(&json["latency"]["p99_us"], 3000.0);
    assert_eq!(json["transport"], "rdma");
    assert_eq!(json["nics"][1], "mlx5_1");
}

#[test]
fn the_text_names_the_transport_and_why_no_faster_one_is_used() {
    let text = mk_report().to_string();
    for line in [
        "10.0.0.1:8998 over rdma: 1 session, 3 rounds a row, every byte compared",
        "nothing better: shm does not work: prefill runs on another host",
        "NICs here: mlx5_0, mlx5_1",
        "      1024 x 1 MiB     1 GiB    5.37    2.68-10.74     0.093     0.186",
        "one write of 64 KiB until prefill knows of it: p50 2000 us, p99 3000 us (3 writes)",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
}

#[test]
fn sizes_are_whole_where_they_can_be() {
    let shown = [512, 64 << 10, 1 << 20, 3 << 29, 1 << 30].map(size);
    assert_eq!(shown, ["512 B", "64 KiB", "1 MiB", "1.5 GiB", "1 GiB"]);
}

#[test]
fn a_quantile_is_one_of_the_figures() {
    let figures: Vec<f64> = (0..200).map(f64::from).collect();
    assert!(quantile(&figures, 0) == 0.0 && quantile(&figures, 100) == 199.0);
    assert!(quantile(&figures, 50) == 100.0 && quantile(&figures, 99) == 197.0);
    assert!(quantile(&[], 50).is_nan());
}
