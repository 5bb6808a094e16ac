//! What is read of an agent, and what is not believed.

use super::super::exposition::{ExpositionError, parse};
use super::super::sample::{Counters, Gauges, Sample, SampleError, StateSlots};
use super::seconds;
use pd_protocol::exposition::MalformedLine;

/// `/metrics` of an agent that prefills.
const PREFILL: &str = include_str!("prefill.prom");
/// What SGLang 0.5.23 and vLLM 0.32 said after a few requests on CPUs, without buckets.
const OTHERS: [(&str, &str); 4] = [
    ("sglang-prefill", include_str!("sglang-prefill.prom")),
    ("sglang-decode", include_str!("sglang-decode.prom")),
    ("vllm-prefill", include_str!("vllm-prefill.prom")),
    ("vllm-decode", include_str!("vllm-decode.prom")),
];

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
fn what_other_engines_say_are_samples() {
    for (name, text) in OTHERS {
        let sample = Sample::read(text, seconds(7)).unwrap();
        insta::assert_debug_snapshot!(name, sample);
    }
}

#[test]
fn of_several_ranks_counts_add_up_and_time_is_that_of_one() {
    let (_, text) = OTHERS[0];
    let one = Sample::read(text, seconds(7)).unwrap();
    let of_rank = text.lines().filter(|line| line.contains("tp_rank"));
    let second: String = of_rank
        .map(|line| line.replace("tp_rank", "dp_rank=\"1\",tp_rank") + "\n")
        .collect();
    let two = Sample::read(&format!("{text}{second}"), seconds(7)).unwrap();
    let (one, two) = ((one.counters, one.gauges), (two.counters, two.gauges));
    assert_eq!(two.0.prefill_tokens, 2.0 * one.0.prefill_tokens);
    assert_eq!(two.1.capacity_tokens, 2.0 * one.1.capacity_tokens);
    assert_eq!(two.0.busy_s, one.0.busy_s);
}

#[test]
fn what_waits_counts_as_much_as_earlier_prompts() {
    let mk = |series: &str, value: f64| {
        let (_, text) = OTHERS[3];
        let lines = text.lines().map(|line| match line.split_once(' ') {
            Some((name, _)) if name.starts_with(series) => format!("{name} {value}\n"),
            Some(_) | None => format!("{line}\n"),
        });
        Sample::read(&lines.collect::<String>(), seconds(7)).unwrap()
    };
    let idle = mk("vllm:none", 0.0);
    let prompt = idle.counters.prompt_tokens / idle.counters.prompts;
    let waiting = mk("vllm:num_requests_waiting{", 3.0);
    assert!((waiting.gauges.queue_tokens - 3.0 * prompt).abs() < 1e-9);
    let half = mk("vllm:kv_cache_usage_perc", 0.5);
    assert_eq!(half.gauges.used_tokens, 46592.0 / 2.0);
}

#[test]
fn a_replica_that_runs_at_both_ends_was_busy_between() {
    let mk = |at, running, busy_s| Sample {
        at: seconds(at),
        counters: Counters {
            busy_s,
            ..Counters::default()
        },
        gauges: Gauges {
            running,
            ..Gauges::default()
        },
        busy_overlaps: true,
        ..Sample::default()
    };
    let busy_s = |from: Sample, to: Sample| to.since(&from).unwrap().grown.busy_s;
    assert_eq!(busy_s(mk(1, 2.0, 0.0), mk(6, 1.0, 0.5)), 5.0);
    assert_eq!(busy_s(mk(1, 0.0, 0.0), mk(6, 1.0, 0.5)), 0.5);
    assert_eq!(busy_s(mk(1, 0.0, 0.0), mk(6, 0.0, 50.0)), 5.0);
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
fn slots_in_use_are_those_that_no_request_could_have() {
    let slots = |text: &str| Sample::read(text, seconds(7)).map(|sample| sample.gauges.slots);
    assert_eq!(slots(PREFILL), Ok(None));
    let by_state = [
        ("free", "3"),
        ("cached", "2"),
        ("locked", "1"),
        ("held", "4"),
    ];
    let lines = by_state
        .map(|(state, count)| format!("pdserve_state_slots{{state=\"{state}\"}} {count}\n"));
    let text = format!("{PREFILL}{}", lines.concat());
    let expected = StateSlots {
        used: 5.0,
        total: 10.0,
    };
    assert_eq!(slots(&text), Ok(Some(expected)));
    let nonsense = text.replace("} 4", "} -4");
    assert!(matches!(
        slots(&nonsense),
        Err(SampleError::Nonsense { .. })
    ));
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
    let [labelled] = said.labelled[..] else {
        panic!("{said:?}");
    };
    assert_eq!((labelled.name, labelled.value), ("a", 4.0));
    assert_eq!(labelled.label("c").as_deref(), Some("d"));
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
