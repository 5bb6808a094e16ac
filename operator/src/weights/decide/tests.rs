//! The life of a change of weights, step by step, and what holds it up.

use super::*;
use pd_protocol::weights::FailedWeights;

const LIMIT: Duration = Duration::from_secs(60);

fn checkpoint(version: &str) -> Checkpoint {
    Checkpoint {
        model_path: format!("/model/{version}"),
        weight_version: version.to_owned(),
    }
}

fn status(phase: WeightsPhase) -> WeightsStatus {
    WeightsStatus {
        serving: checkpoint("v1"),
        phase,
        prepared: None,
        failed: None,
        waiting: 0,
    }
}

fn prepared(phase: WeightsPhase) -> Reported {
    Reported::Other(WeightsStatus {
        prepared: Some(checkpoint("v2")),
        ..status(phase)
    })
}

fn refused(age_secs: u64) -> Reported {
    Reported::Other(WeightsStatus {
        failed: Some(FailedWeights {
            checkpoint: checkpoint("v2"),
            reason: "truncated".to_owned(),
            was_loaded: false,
            age_secs,
        }),
        ..status(WeightsPhase::Serving)
    })
}

/// A prefill and a decode worker behind one router.
fn pair(prefill: Reported, decode: Reported, dispatch: DispatchStatus) -> Seen {
    let worker = |name: &str, role, reported| SeenWorker {
        name: name.to_owned(),
        role,
        reported,
    };
    Seen {
        routers: vec![SeenRouter {
            name: "r".to_owned(),
            dispatch: Some(dispatch),
        }],
        workers: vec![
            worker("p", Role::Prefill, prefill),
            worker("d", Role::Decode, decode),
        ],
    }
}

fn open() -> DispatchStatus {
    DispatchStatus::default()
}

fn held(ms: u64, in_flight: u64) -> DispatchStatus {
    DispatchStatus {
        paused_ms: Some(ms),
        in_flight,
        waiting: 5,
    }
}

fn due(seen: &Seen) -> (Vec<Step>, Progress) {
    decide(&checkpoint("v2"), seen, LIMIT)
}

fn prepare(name: &str) -> Step {
    Step::Prepare(name.to_owned())
}

fn pause() -> Step {
    Step::Pause("r".to_owned())
}

fn switch_of(name: &str, abort: bool) -> Step {
    Step::Switch {
        worker: name.to_owned(),
        abort,
    }
}

#[test]
fn nothing_is_due_where_all_serve_what_is_wanted() {
    let seen = pair(Reported::Serves, Reported::Serves, open());
    let (steps, progress) = due(&seen);
    assert_eq!(steps, []);
    let said = "2 workers serve weights v2".to_owned();
    assert_eq!(progress, Progress::Served(said));
}

#[test]
fn all_read_first_then_requests_end_then_all_load_then_requests_go_on() {
    let old = || Reported::Other(status(WeightsPhase::Serving));
    let reads = || Reported::Other(status(WeightsPhase::Preparing));
    let ready = || prepared(WeightsPhase::Serving);
    let loads = || prepared(WeightsPhase::Loading);
    let serves = || Reported::Serves;
    let life = [
        (pair(old(), old(), open()), vec![prepare("p"), prepare("d")]),
        (pair(reads(), old(), open()), vec![prepare("d")]),
        (pair(ready(), reads(), open()), vec![]),
        (pair(ready(), ready(), open()), vec![pause()]),
        (pair(ready(), ready(), held(10, 3)), vec![pause()]),
        (
            pair(ready(), ready(), held(900, 0)),
            vec![pause(), switch_of("p", false), switch_of("d", false)],
        ),
        (
            pair(loads(), ready(), held(999, 0)),
            vec![pause(), switch_of("d", false)],
        ),
        (pair(loads(), loads(), held(2000, 0)), vec![pause()]),
        (pair(serves(), loads(), held(3000, 0)), vec![pause()]),
        (
            pair(serves(), serves(), held(4000, 0)),
            vec![Step::Resume("r".to_owned())],
        ),
    ];
    for (nr, (seen, steps)) in life.iter().enumerate() {
        assert_eq!(due(seen).0, *steps, "{nr}");
    }
}

#[test]
fn requests_that_take_too_long_end_with_the_old_weights() {
    let ready = || prepared(WeightsPhase::Serving);
    let (steps, _) = due(&pair(ready(), ready(), held(59_999, 1)));
    assert_eq!(steps, [pause()]);
    let (steps, _) = due(&pair(ready(), ready(), held(60_000, 1)));
    let both = [pause(), switch_of("p", true), switch_of("d", true)];
    assert_eq!(steps, both);
}

#[test]
fn a_worker_that_cannot_take_them_keeps_all_as_they_are_and_is_asked_again_later() {
    let ready = || prepared(WeightsPhase::Serving);
    for (age, again) in [(3, vec![]), (30, vec![prepare("d")])] {
        let (steps, progress) = due(&pair(ready(), refused(age), open()));
        assert_eq!(steps, again);
        let Progress::Refused(said) = progress else {
            panic!("{progress:?}");
        };
        assert!(said.contains("d: truncated"), "{said}");
    }
    // One that failed to load them lets requests go on.
    let (steps, _) = due(&pair(Reported::Serves, refused(3), held(5000, 0)));
    assert_eq!(steps, [Step::Resume("r".to_owned())]);
    // What failed before is no matter.
    let (steps, progress) = decide(
        &checkpoint("v3"),
        &pair(refused(3), refused(3), open()),
        LIMIT,
    );
    assert_eq!(steps, [prepare("p"), prepare("d")]);
    assert!(matches!(progress, Progress::UnderWay(_)));
}

#[test]
fn one_that_restarted_with_old_weights_loads_the_new_ones_alone() {
    let ready = || prepared(WeightsPhase::Serving);
    let (steps, _) = due(&pair(Reported::Serves, ready(), open()));
    assert_eq!(steps, [switch_of("d", false)]);
    let (steps, _) = due(&pair(
        Reported::Serves,
        prepared(WeightsPhase::Loading),
        open(),
    ));
    assert_eq!(steps, []);
}

#[test]
fn nothing_begins_while_a_process_does_not_answer() {
    let silent = || Reported::Silent("no answer".to_owned());
    let (steps, progress) = due(&pair(
        Reported::Other(status(WeightsPhase::Serving)),
        silent(),
        open(),
    ));
    assert_eq!(steps, []);
    let said = "d cannot be asked: no answer".to_owned();
    assert_eq!(progress, Progress::UnderWay(said));

    let ready = || prepared(WeightsPhase::Serving);
    let with_other = |ms, dispatch| {
        let mut seen = pair(ready(), ready(), held(ms, 0));
        seen.routers.push(SeenRouter {
            name: "other".to_owned(),
            dispatch,
        });
        seen
    };
    let (steps, progress) = due(&with_other(10, None));
    assert_eq!(steps, [Step::Resume("r".to_owned())]);
    let said = "weights v2 wait for routers that cannot be asked: other".to_owned();
    assert_eq!(progress, Progress::UnderWay(said));
    // One that answers, and does not hold back.
    let (steps, progress) = due(&with_other(10, Some(open())));
    assert_eq!(steps, [pause(), Step::Pause("other".to_owned())]);
    let said = "routers hold requests back for weights v2: other not yet".to_owned();
    assert_eq!(progress, Progress::UnderWay(said));
    let (steps, _) = due(&with_other(60_000, Some(open())));
    assert_eq!(steps, [Step::Resume("r".to_owned())]);
}

#[test]
fn what_could_not_be_loaded_is_not_loaded_again() {
    let fell_back = || {
        let Reported::Other(mut status) = refused(3600) else {
            panic!("it serves other weights");
        };
        status.failed.as_mut().expect("a failure").was_loaded = true;
        Reported::Other(status)
    };
    let (steps, progress) = due(&pair(fell_back(), fell_back(), open()));
    assert_eq!(steps, []);
    assert!(matches!(progress, Progress::Refused(_)), "{progress:?}");
    let (_, progress) = due(&pair(Reported::Serves, fell_back(), open()));
    let Progress::Refused(said) = progress else {
        panic!("{progress:?}");
    };
    assert!(
        said.contains("make no pair: take the change back"),
        "{said}"
    );
    // Taken back, the one that loaded it loads what it had, alone.
    let back = checkpoint("v1");
    let loaded = Reported::Other(WeightsStatus {
        serving: checkpoint("v2"),
        prepared: Some(back.clone()),
        ..status(WeightsPhase::Serving)
    });
    let (steps, _) = decide(&back, &pair(loaded, Reported::Serves, open()), LIMIT);
    assert_eq!(steps, [switch_of("p", false)]);
}

#[test]
fn pauses_are_renewed_while_some_load_and_others_still_read() {
    let old = Reported::Other(status(WeightsPhase::Serving));
    let seen = pair(prepared(WeightsPhase::Loading), old, held(9000, 0));
    assert_eq!(due(&seen).0, [prepare("d"), pause()]);
}

#[test]
fn a_message_names_a_few_and_counts_the_rest() {
    let names = |count: usize| listed((0..count).map(|nr| format!("p{nr}")));
    assert_eq!(names(0), None);
    assert_eq!(names(3).as_deref(), Some("p0, p1, p2"));
    assert_eq!(names(5).as_deref(), Some("p0, p1, p2 and 2 more"));
}
