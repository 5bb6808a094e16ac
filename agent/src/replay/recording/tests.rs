//! Which points belong to one request, and how it is computed again.

use super::*;
use crate::observations::ObservationFile;
use pd_engine::observe::{Observation, Observer, Payload, PayloadHash, RecordedGrammar};
use pd_engine::sample::params::SamplingParams;

const PROMPT: [u32; 3] = [5, 6, 7];

fn mk_admitted(temperature: f32, seed: u64) -> Point {
    Point::Admitted(Admitted {
        input_ids: PROMPT.to_vec(),
        sampling: SamplingParams {
            temperature,
            min_new_tokens: 2,
            ..SamplingParams::default()
        },
        choice: 2,
        seed,
        grammar: None,
    })
}

fn mk_step(position: usize) -> Point {
    let kv: PayloadHash = serde_json::from_str("\"00000000000000000000000000000001\"").unwrap();
    Point::Step {
        position,
        kv,
        states: Vec::new(),
        token: 1,
    }
}

fn write(folder: &Path, role: Role, kv_compat: &str, points: Vec<(u64, Option<u64>, Point)>) {
    let file = ObservationFile::create(folder, role).unwrap();
    file.started(ObservedEngine {
        role,
        model_path: "/m".to_owned(),
        dtype: "float32".to_owned(),
        kv_cache_dtype: "float32".to_owned(),
        page_size: 16,
        context_length: 512,
        kv_compat: kv_compat.to_owned(),
    });
    for (request, room, point) in points {
        file.observe(Observation {
            request,
            rid: "r".to_owned(),
            room,
            point,
        });
    }
}

/// A request in both files, drawn from these seeds, and another that only decode saw.
fn both_legs(temperature: f32, seeds: [u64; 2]) -> Recordings {
    let folder = tempfile::tempdir().unwrap();
    let room = Some(9);
    let prefill = vec![
        (1, room, mk_admitted(temperature, seeds[0])),
        (1, room, mk_step(2)),
        (1, room, Point::BeforeSend(Payload::default())),
    ];
    let decode = vec![
        (4, room, mk_admitted(temperature, seeds[1])),
        (5, Some(10), mk_admitted(temperature, 3)),
        (4, room, Point::AfterRestore(Payload::default())),
        (4, room, mk_step(3)),
        (4, room, mk_step(4)),
        // Of a request that was admitted before its file began, as none is.
        (6, Some(11), mk_step(3)),
    ];
    write(folder.path(), Role::Prefill, "k", prefill);
    write(folder.path(), Role::Decode, "k", decode);
    Recordings::read(&[folder.path().to_owned()]).unwrap()
}

fn of_room(recordings: &Recordings, room: u64) -> &Recording {
    let mut requests = recordings.requests.iter();
    requests.find(|it| it.room == Some(room)).unwrap()
}

#[test]
fn legs_are_put_together_by_their_room() {
    let recordings = both_legs(0.0, [1, 2]);
    assert_eq!(recordings.requests.len(), 2);
    let recording = of_room(&recordings, 9);
    assert_eq!((recording.points.len(), recording.len()), (5, 6));
    assert!(!recording.drew_otherwise());
    let request = recording
        .request(|_| unreachable!("it has no grammar"))
        .unwrap();
    assert_eq!(request.input_ids, PROMPT);
    assert_eq!(request.sampling.max_new_tokens, Some(3));
    assert_eq!(request.sampling.min_new_tokens, 2);
    assert_eq!((request.sampling.seed, request.choice), (Some(1), 2));
}

#[test]
fn steps_of_another_seed_are_left_out() {
    let same = both_legs(0.7, [8, 8]);
    assert_eq!(of_room(&same, 9).points.len(), 5);
    // Of the other request, whose first token came from a seed that no file names, nothing follows from decode's.
    assert!(of_room(&same, 10).drew_otherwise());
    let other = both_legs(0.7, [8, 9]);
    let recording = of_room(&other, 9);
    assert!(recording.drew_otherwise());
    assert_eq!(recording.points.len(), 3);
    let request = recording
        .request(|_| unreachable!("it has no grammar"))
        .unwrap();
    assert_eq!(
        (request.sampling.seed, request.sampling.max_new_tokens),
        (Some(8), Some(1))
    );
    assert!(request.sampling.validate(512).is_ok());
}

#[test]
fn a_grammar_is_compiled_again_or_refuses_its_request_with_the_reason() {
    let source = GrammarSource::Regex("a+".to_owned());
    let text = "{\"regex\":\"a+\"}";
    for (recorded, why) in [
        (text, "its grammar cannot be compiled: too much"),
        (
            "{\"other\":1}",
            "its grammar cannot be read: unknown variant `other`",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let Point::Admitted(admitted) = mk_admitted(0.0, 1) else {
            unreachable!("it is one")
        };
        let grammar: RecordedGrammar = serde_json::from_value(recorded.into()).unwrap();
        assert_eq!(grammar == RecordedGrammar::of(&source), recorded == text);
        let constrained = Point::Admitted(Admitted {
            grammar: Some(grammar),
            ..admitted
        });
        write(
            folder.path(),
            Role::Unified,
            "k",
            vec![(1, None, constrained)],
        );
        let recordings = Recordings::read(&[folder.path().to_owned()]).unwrap();
        let refused = recordings.requests[0].request(|compiled| {
            assert_eq!(compiled, source);
            anyhow::bail!("too much")
        });
        let refused = format!("{:#}", refused.unwrap_err());
        assert!(refused.starts_with(why), "{refused}");
    }
}

#[test]
fn requests_without_a_room_are_those_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    for _file in 0..2 {
        let points = vec![
            (1, None, mk_admitted(0.0, 1)),
            (2, None, mk_admitted(0.0, 1)),
            (1, None, mk_step(2)),
        ];
        write(folder.path(), Role::Unified, "k", points);
    }
    let recordings = Recordings::read(&[folder.path().to_owned()]).unwrap();
    let points: Vec<usize> = recordings
        .requests
        .iter()
        .map(|it| it.points.len())
        .collect();
    assert_eq!(points, [1, 0, 1, 0]);
}

#[test]
fn files_of_two_models_and_folders_of_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().to_owned()];
    let error = Recordings::read(&paths).err().unwrap().to_string();
    assert!(error.contains("holds no file of observations"), "{error}");
    write(folder.path(), Role::Prefill, "k", Vec::new());
    write(folder.path(), Role::Decode, "other", Vec::new());
    let error = Recordings::read(&paths).err().unwrap().to_string();
    assert!(error.contains("with another model"), "{error}");
}
