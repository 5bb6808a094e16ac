//! Facts about the steps of a rotation, as a function of the Secret and of what processes report.

use super::*;

const NEW: &str = "n";

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// A Secret with these keys, in a rotation of `a` to `n` where one is under way.
fn mk_stored(ids: &[&str], finished: Option<&str>, rotating: Option<&str>) -> Stored {
    Stored {
        ids: owned(ids),
        finished: finished.map(str::to_owned),
        rotating: rotating.map(|request| Rotating {
            request: request.to_owned(),
            new: NEW.to_owned(),
            old: owned(&["a"]),
        }),
    }
}

/// A process with these keys, of which the first signs.
fn mk_process(name: &str, ids: &[&str]) -> Process {
    let uses = [KeyUse::Signs].into_iter();
    let uses = uses.chain([KeyUse::Verifies].into_iter().cycle());
    Process {
        name: name.to_owned(),
        reported: Reported::Keys(owned(ids).into_iter().zip(uses).collect()),
    }
}

fn mk_unknown(name: &str, reported: Reported) -> Process {
    Process {
        name: name.to_owned(),
        reported,
    }
}

/// What an operator decides that has just started.
fn at_once(wanted: Option<&str>, stored: &Stored, processes: &[Process]) -> Decision {
    decide(wanted, stored, processes, &mut None, Instant::now())
}

/// What one decides that has seen the same for long enough.
fn settled(wanted: Option<&str>, stored: &Stored, processes: &[Process]) -> Decision {
    let (mut agreement, began) = (None, Instant::now());
    decide(wanted, stored, processes, &mut agreement, began);
    let later = began + SETTLED;
    decide(wanted, stored, processes, &mut agreement, later)
}

fn message(decision: Decision) -> String {
    match decision {
        Decision::Wait(_, why) | Decision::Hold(why) => why,
        other @ (Decision::None | Decision::Rest | Decision::Take(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_value_is_carried_out_once() {
    let begins = |request: &str| {
        let request = request.to_owned();
        Decision::Take(Step::Begin { request })
    };
    for (wanted, finished, decision) in [
        (None, None, Decision::None),
        (None, Some("1"), Decision::None),
        (Some("1"), None, begins("1")),
        (Some("1"), Some("1"), Decision::Rest),
        (Some("2"), Some("1"), begins("2")),
        (Some(""), None, begins("")),
    ] {
        let stored = mk_stored(&["a"], finished, None);
        assert_eq!(at_once(wanted, &stored, &[]), decision, "{wanted:?}");
    }
}

#[test]
fn each_step_waits_for_every_process_and_then_for_handshakes_under_way() {
    for (secret, late, done, step) in [
        (
            ["a", "n"].as_slice(),
            ["a"].as_slice(),
            ["a", "n"].as_slice(),
            Step::MoveFirst,
        ),
        (&["n", "a"], &["a", "n"], &["n", "a"], Step::RemoveOld),
    ] {
        let stored = mk_stored(secret, None, Some("1"));
        let stage = stored.rotating.as_ref().unwrap().stage(&stored.ids);
        let all = |last| [mk_process("p", done), mk_process("q", last)];
        let waits = settled(Some("1"), &stored, &all(late));
        assert_eq!(
            waits,
            Decision::Wait(stage.unwrap(), "not yet: q".to_owned())
        );
        let agreed = at_once(Some("1"), &stored, &all(done));
        assert!(message(agreed).starts_with("all processes do"));
        assert_eq!(
            settled(Some("1"), &stored, &all(done)),
            Decision::Take(step)
        );
    }
    let stored = mk_stored(&["n"], None, Some("1"));
    let late = [mk_process("p", &["n"]), mk_process("q", &["n", "a"])];
    assert_eq!(message(settled(Some("1"), &stored, &late)), "not yet: q");
    let done = [mk_process("p", &["n"])];
    let finishes = Decision::Take(Step::Finish);
    assert_eq!(at_once(Some("1"), &stored, &done), finishes);
}

#[test]
fn a_process_ahead_of_the_secret_counts_as_far_enough() {
    let stored = mk_stored(&["a", "n"], None, Some("1"));
    let ahead = [mk_process("p", &["n", "a"])];
    let step = settled(Some("1"), &stored, &ahead);
    assert_eq!(step, Decision::Take(Step::MoveFirst));
}

#[test]
fn one_that_falls_back_or_comes_begins_the_wait_again() {
    let stored = mk_stored(&["a", "n"], None, Some("1"));
    let (done, old) = (mk_process("p", &["a", "n"]), mk_process("new", &["a"]));
    let (mut agreement, began) = (None, Instant::now());
    let mut at = |seconds, processes: &[Process]| {
        let now = began + Duration::from_secs(seconds);
        decide(Some("1"), &stored, processes, &mut agreement, now)
    };
    let both = [done.clone(), mk_process("new", &["a", "n"])];
    assert!(matches!(
        at(0, std::slice::from_ref(&done)),
        Decision::Wait(..)
    ));
    assert!(matches!(at(9, &[done, old]), Decision::Wait(..)));
    assert!(matches!(at(12, &both), Decision::Wait(..)));
    assert_eq!(at(22, &both), Decision::Take(Step::MoveFirst));
}

#[test]
fn what_all_agreed_on_in_one_stage_is_no_agreement_on_the_next() {
    let now = Instant::now();
    let verify = mk_stored(&["a", "n"], None, Some("1"));
    let sign = mk_stored(&["n", "a"], None, Some("1"));
    let ahead = [mk_process("p", &["n", "a"])];
    let mut agreement = None;
    decide(Some("1"), &verify, &ahead, &mut agreement, now);
    let at_once = decide(Some("1"), &sign, &ahead, &mut agreement, now + SETTLED);
    assert!(matches!(at_once, Decision::Wait(Stage::Sign, _)));
}

#[test]
fn an_operator_that_starts_in_the_middle_goes_on_where_the_secret_is() {
    let rotating = |ids: &[&str]| mk_stored(ids, Some("0"), Some("1"));
    let process = |ids: &[&str]| [mk_process("p", ids)];
    for (ids, step) in [
        (["a", "n"].as_slice(), Step::MoveFirst),
        (&["n", "a"], Step::RemoveOld),
        (&["n"], Step::Finish),
    ] {
        let decision = settled(Some("1"), &rotating(ids), &process(ids));
        assert_eq!(decision, Decision::Take(step));
    }
}

#[test]
fn one_that_cannot_be_asked_holds_every_step_and_is_named() {
    let refuses = || {
        mk_unknown(
            "smollm2-decode-0-1",
            Reported::Silent("no answer".to_owned()),
        )
    };
    for (ids, aim) in [
        (["a", "n"].as_slice(), "verify with key n (step 1 of 3)"),
        (&["n", "a"], "sign with key n (step 2 of 3)"),
        (&["n"], "have no key but n (step 3 of 3)"),
    ] {
        let stored = mk_stored(ids, None, Some("1"));
        let decision = settled(Some("1"), &stored, &[mk_process("p", ids), refuses()]);
        let held = format!(
            "waits until all processes {aim}; smollm2-decode-0-1 cannot be asked: no answer"
        );
        assert_eq!(decision, Decision::Hold(held));
    }
}

#[test]
fn one_that_starts_is_waited_for() {
    let stored = mk_stored(&["a", "n"], None, Some("1"));
    let starting = |nr: u32| mk_unknown(&format!("p{nr}"), Reported::Starting("starts".to_owned()));
    let decision = settled(Some("1"), &stored, &[starting(0)]);
    assert_eq!(message(decision), "not yet: p0 (starts)");
    let many: Vec<Process> = (0..5).map(starting).collect();
    let said = message(settled(Some("1"), &stored, &many));
    assert!(said.ends_with("p2 (starts), 2 more"), "{said}");
}

#[test]
fn without_processes_but_the_operator_a_rotation_ends_all_the_same() {
    let stored = mk_stored(&["a", "n"], None, Some("1"));
    let step = settled(Some("1"), &stored, &[]);
    assert_eq!(step, Decision::Take(Step::MoveFirst));
}

#[test]
fn another_value_or_none_lets_the_rotation_under_way_end_first() {
    let stored = mk_stored(&["n", "a"], Some("0"), Some("1"));
    let all = [mk_process("p", &["n", "a"])];
    for wanted in [Some("2"), Some("0"), None] {
        let step = settled(wanted, &stored, &all);
        assert_eq!(step, Decision::Take(Step::RemoveOld), "{wanted:?}");
    }
    let after = mk_stored(&["n"], Some("1"), None);
    let next = Decision::Take(Step::Begin {
        request: "2".to_owned(),
    });
    assert_eq!(at_once(Some("2"), &after, &all), next);
}

#[test]
fn keys_that_were_changed_by_hand_are_left_until_someone_decides() {
    let all = [mk_process("p", &["a", "n"])];
    for ids in [
        ["a"].as_slice(),
        &["b", "a", "n"],
        &["a", "n", "b"],
        &["b"],
        &[],
    ] {
        let stored = mk_stored(ids, None, Some("1"));
        let said = message(settled(Some("1"), &stored, &all));
        assert!(said.contains("changed by hand"), "{said}");
        let given_up = settled(None, &stored, &all);
        assert_eq!(given_up, Decision::Take(Step::GiveUp));
        if !ids.is_empty() {
            let begins = Decision::Take(Step::Begin {
                request: "2".to_owned(),
            });
            assert_eq!(settled(Some("2"), &stored, &all), begins);
        }
    }
}

#[test]
fn a_secret_that_is_full_or_has_no_keys_is_not_added_to() {
    let most = ["a", "b", "c", "d", "e", "f", "g", "h"];
    assert_eq!(most.len(), KEYS_MAX);
    let said = message(at_once(Some("1"), &mk_stored(&most, None, None), &[]));
    assert!(said.contains("holds 8 keys"), "{said}");
    let said = message(at_once(Some("1"), &mk_stored(&[], None, None), &[]));
    assert!(said.contains("no usable keys"), "{said}");
}
