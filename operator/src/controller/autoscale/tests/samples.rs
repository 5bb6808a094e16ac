//! What is read of an agent, and what is not believed.

use super::super::exposition::{ExpositionError, parse};
use super::super::sample::{Counters, Sample, SampleError};
use super::seconds;
use pd_protocol::exposition::MalformedLine;

/// `/metrics` of an agent that prefills.
const PREFILL: &str = include_str!("prefill.prom");

fn mk_text(series: &str, value: &str) -> String {
    let lines = PREFILL.lines().map(|line| match line.split_once(' ') {
        Some((name, _)) if name == series => format!("{series} {value}\n"),
        Some(_) | None => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn an_agents_metrics_are_a_sample() {
    insta::assert_debug_snapshot!(Sample::read(PREFILL, seconds(7)).unwrap());
}

#[test]
fn what_is_not_a_count_refuses_the_sample() {
    let name = "pdserve_prompt_tokens_total";
    for value in ["NaN", "-1", "+Inf", "1e21"] {
        let error = Sample::read(&mk_text(name, value), seconds(7)).unwrap_err();
        assert!(
            matches!(error, SampleError::Nonsense { name: n, .. } if n == name),
            "{error}"
        );
    }
    let missing = PREFILL.replace(name, "renamed");
    let error = Sample::read(&missing, seconds(7)).unwrap_err();
    assert_eq!(error.to_string(), "pdserve_prompt_tokens_total is missing");
}

#[test]
fn more_tokens_than_there_are_slots_refuse_the_sample() {
    let text = mk_text("pdserve_num_used_tokens", "99999999");
    let error = Sample::read(&text, seconds(7)).unwrap_err();
    assert!(
        matches!(error, SampleError::BeyondCapacity { .. }),
        "{error}"
    );
}

#[test]
fn a_replica_is_degraded_if_one_of_its_gpus_is() {
    let sample = |series: &str| Sample::read(&format!("{PREFILL}{series}\n"), seconds(7)).unwrap();
    let one = |gpu: u32, value: &str| {
        format!("pdserve_gpu_degraded{{gpu=\"{gpu}\",reason=\"hw_thermal\"}} {value}\n")
    };
    assert!(!sample("").degraded);
    assert!(!sample(&(one(0, "0") + &one(1, "0"))).degraded);
    assert!(sample(&(one(0, "0") + &one(1, "1"))).degraded);
    for nonsense in ["NaN", "-1", "+Inf", "0.5", "100"] {
        assert!(!sample(&one(0, nonsense)).degraded, "{nonsense}");
    }
}

#[test]
fn how_busy_a_gpu_is_says_nothing_of_demand() {
    let calm = Sample::read(PREFILL, seconds(7)).unwrap();
    for value in ["0", "100", "NaN", "-3", "4294967295"] {
        let text = format!("{PREFILL}DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\"}} {value}\n");
        assert_eq!(Sample::read(&text, seconds(7)).unwrap(), calm);
    }
}

#[test]
fn lines_out_of_the_format_refuse_the_text() {
    let malformed = |line| Err(ExpositionError::Malformed(MalformedLine { line }));
    assert_eq!(parse("a 1\nb\n"), malformed(2));
    assert_eq!(parse("a one"), malformed(1));
    assert_eq!(parse("1a 1"), malformed(1));
    assert_eq!(parse("a 1 2 3"), malformed(1));
    assert_eq!(parse("a{b=\"c\" 1"), malformed(1));
    assert_eq!(parse("<html>"), malformed(1));
    let twice = ExpositionError::Twice {
        name: "a".to_owned(),
    };
    assert_eq!(parse("a 1\na 2"), Err(twice));
}

#[test]
fn labels_may_hold_anything() {
    let text = "# HELP a x\na{b=\"}\\\" {\",c=\"d\"} 4 1700000000\n\n b_total 2.5e3\n";
    let said = parse(text).unwrap();
    assert_eq!(said.plain, [("b_total", 2500.0)].into());
    assert_eq!(said.labelled, [("a", 4.0)]);
}

#[test]
fn a_counter_that_went_back_is_not_a_step() {
    let mk = |at, requests| Sample {
        at: seconds(at),
        counters: Counters {
            requests,
            ..Counters::default()
        },
        ..Sample::default()
    };
    let step = mk(3, 30.0).since(&mk(1, 10.0)).unwrap();
    assert_eq!((step.seconds, step.grown.requests), (2.0, 20.0));
    let back = mk(3, 5.0).since(&mk(1, 10.0)).unwrap_err();
    assert_eq!(back.to_string(), "requests went from 10 back to 5");
    let absurd = mk(3, 1e15).since(&mk(1, 10.0)).unwrap_err();
    assert!(matches!(absurd, SampleError::TooFast { .. }), "{absurd}");
    assert_eq!(mk(1, 10.0).since(&mk(1, 10.0)), Err(SampleError::NotLater));
}
