//! Files of observations, written and read again.

use super::*;
use pd_engine::grammar::{Arguments, Around, Calls, GrammarSource, Thought, ToolCall};
use pd_engine::observe::{Admitted, Payload, Point, RecordedGrammar};
use pd_engine::sample::params::SamplingParams;

fn mk_engine() -> ObservedEngine {
    ObservedEngine {
        role: Role::Decode,
        model_path: "/models/tiny".to_owned(),
        dtype: "float32".to_owned(),
        kv_cache_dtype: "float32".to_owned(),
        page_size: 16,
        context_length: 512,
        kv_compat: "0123".to_owned(),
    }
}

fn mk_observation(point: Point) -> Observation {
    Observation {
        request: 1,
        rid: "r".to_owned(),
        room: Some(u64::MAX),
        point,
    }
}

/// Calls behind a thought, whose schema has its own order and numbers.
fn mk_calls() -> GrammarSource {
    let text = str::to_owned;
    let thought = Thought {
        open: None,
        close: text("</think>"),
        lead: text("\n\n"),
    };
    let schema = serde_json::json!({"properties": {"b": {"minimum": 0.1}, "a": {"maximum": 1e20}}});
    let calls = GrammarSource::Calls(Calls {
        tools: vec![ToolCall {
            begin: text("<call>f"),
            behind_number: None,
            arguments: Arguments::Json(schema),
            end: text("</call>"),
        }],
        around: Around::Text {
            trigger: text("<call>"),
        },
    });
    GrammarSource::BehindThought(thought, Box::new(calls))
}

fn mk_points() -> Vec<Point> {
    vec![
        Point::Admitted(Admitted {
            input_ids: vec![1, 2, 3],
            sampling: SamplingParams {
                temperature: 0.3,
                logit_bias: vec![(4, -0.1)],
                ..SamplingParams::default()
            },
            choice: 1,
            seed: u64::MAX,
            grammar: Some(RecordedGrammar::of(&mk_calls())),
        }),
        Point::AfterRestore(Payload::default()),
        Point::Sent {
            bytes: 1,
            duration_ns: u64::MAX,
        },
    ]
}

#[test]
fn what_is_written_is_read_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    let file = ObservationFile::create(&folder, Role::Decode).unwrap();
    file.started(mk_engine());
    let seen: Vec<Observation> = mk_points().into_iter().map(mk_observation).collect();
    for observation in seen.clone() {
        file.observe(observation);
    }
    let mode = fs::metadata(&file.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let read = Observations::read(&file.path).unwrap().unwrap();
    assert_eq!(read.engine, mk_engine());
    assert_eq!(read.seen, seen);
    let Point::Admitted(admitted) = &read.seen[0].point else {
        unreachable!("it is the first")
    };
    let grammar = admitted.grammar.as_ref().unwrap();
    assert_eq!(grammar.source().unwrap(), mk_calls());
}

#[test]
fn half_a_last_line_is_left_out_and_any_other_refuses_the_file() {
    let engine = serde_json::to_string(&Line::Engine(mk_engine())).unwrap();
    let seen = mk_observation(Point::AfterRestore(Payload::default()));
    let seen = serde_json::to_string(&Line::Seen(Box::new(seen))).unwrap();
    let cut = &seen[..seen.len() / 2];
    let parse = |text: &str| Observations::parse(text.as_bytes());
    let read = parse(&format!("{engine}\n{seen}\n{cut}")).unwrap().unwrap();
    assert_eq!(read.seen.len(), 1);
    // Within a character, too.
    let whole = format!("{engine}\n{seen}\n");
    let in_character = [whole.as_bytes(), &"\u{3002}".as_bytes()[..1]].concat();
    let read = Observations::parse(&in_character).unwrap().unwrap();
    assert_eq!(read.seen.len(), 1);
    // Of an engine that has not started.
    assert!(parse("").unwrap().is_none() && parse(&engine[..9]).unwrap().is_none());
    let no_pages = engine.replace("\"page_size\":16", "\"page_size\":0");
    let hash = seen.replace("\"pages\":[]", "\"pages\":[\"12\"]");
    for (text, why) in [
        (format!("{engine}\n{cut}\n{seen}\n"), "line 2"),
        (format!("{engine}\n{engine}\n"), "line 2: a second engine"),
        (format!("{seen}\n"), "no line names its engine"),
        (format!("{engine}\n{hash}\n"), "no hash of 32 hex digits"),
        (format!("{no_pages}\n"), "pages of no tokens"),
    ] {
        let error = format!("{:#}", parse(&text).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_with_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ObservationFile::create(&file.join("in"), Role::Prefill).unwrap_err();
    assert!(error.to_string().starts_with("--observe-kv /"), "{error}");
}
