//! Observation points: what prefill sends is what decode has, and both are what a unified engine computes.

use crate::harness::{
    GEMMA3, LLAMA, QWEN3_5, collect, generate, metric, mk_config, mk_prompt, mk_repeating,
    mk_sampled, mk_unpenalised, ngram, repeated, start,
};
use crate::pair::Pair;
use parking_lot::Mutex;
use pd_engine::engine::{EngineConfig, EngineHandle, SpeculativeConfig};
use pd_engine::observe::{
    Observation, ObservedEngine, Observer, Payload, PayloadHash, Point, compare,
};
use pd_kv_transfer::TransportChoice;
use pd_protocol::timeline::Stage;
use pd_protocol::{BootstrapRoom, Transport};
use std::sync::Arc;

const ROOM: u64 = 7;

#[derive(Debug, Default)]
struct Collector(Mutex<Vec<Point>>);

impl Observer for Collector {
    fn started(&self, engine: ObservedEngine) {
        assert_eq!(engine.page_size, 16);
    }

    fn observe(&self, observation: Observation) {
        self.0.lock().push(observation.point);
    }
}

/// Hashes of the whole prompt's pages at one kind of point.
fn pages(points: &[Point], of: fn(&Point) -> Option<&Payload>) -> Vec<PayloadHash> {
    let mut pages = Vec::new();
    for payload in points.iter().filter_map(of) {
        assert_eq!(payload.first_page, pages.len(), "each page once, in order");
        pages.extend(&payload.pages);
    }
    pages
}

fn computed(point: &Point) -> Option<&Payload> {
    if let Point::Computed(payload) = point {
        Some(payload)
    } else {
        None
    }
}

fn before_send(point: &Point) -> Option<&Payload> {
    if let Point::BeforeSend(payload) = point {
        Some(payload)
    } else {
        None
    }
}

fn after_restore(point: &Point) -> Option<&Payload> {
    if let Point::AfterRestore(payload) = point {
        Some(payload)
    } else {
        None
    }
}

/// Position, its KV, states behind it, token.
type Step = (usize, PayloadHash, Vec<PayloadHash>, u32);

fn steps(points: &[Point]) -> Vec<Step> {
    let step = |point: &Point| match point {
        Point::Step {
            position,
            kv,
            states,
            token,
        } => Some((*position, *kv, states.clone(), *token)),
        Point::Admitted(_)
        | Point::Computed(_)
        | Point::BeforeSend(_)
        | Point::Sent { .. }
        | Point::AfterRestore(_) => None,
    };
    points.iter().filter_map(step).collect()
}

/// Hashes of the state after the prompt.
fn states(points: &[Point], of: fn(&Point) -> Option<&Payload>) -> Vec<PayloadHash> {
    let last = points.iter().filter_map(of).next_back();
    last.expect("a payload").states.clone()
}

#[test]
fn what_is_sent_is_what_arrives_and_what_one_engine_computes() {
    assert_same_points(LLAMA, 0, None);
    assert_same_points(GEMMA3, 0, None);
    // Six layers, each with 3 × (2 × 2 + 4) × 16 inputs of its convolution and 4 × 16 × 16 elements, of 4 bytes.
    assert_same_points(QWEN3_5, 2, Some(6 * (3 * 8 * 16 + 4 * 16 * 16) * 4));
}

/// Bytes of recurrent state that the room of the test moved, of which one event of the stage speaks.
fn state_bytes(engine: &EngineHandle, stage: Stage) -> Option<u64> {
    let room = BootstrapRoom::new(ROOM).expect("a room");
    let timeline = engine.timeline(room).expect("the room is remembered");
    let events = timeline.events.iter().filter(|event| event.stage == stage);
    let of_states: Vec<u64> = events.filter_map(|event| event.state_bytes).collect();
    assert!(of_states.len() <= 1, "{of_states:?}");
    of_states.first().copied()
}

fn assert_same_points(model: &str, num_states: usize, moved_state: Option<u64>) {
    let request = mk_unpenalised(&mk_prompt(5, 150), 12);
    let observed = |config: EngineConfig| {
        let collector = Arc::new(Collector::default());
        let config = EngineConfig {
            observer: Some(collector.clone()),
            model_path: mk_config(model).model_path,
            page_size: 16,
            chunked_prefill_size: Some(64),
            ..config
        };
        (config, collector)
    };
    let (config, alone) = observed(mk_config(model));
    generate(&start(config), request.clone());
    let collectors = Mutex::new(Vec::new());
    let pair = Pair::start(TransportChoice::Only(Transport::Tcp), |config| {
        let (config, collector) = observed(config);
        collectors.lock().push(collector);
        config
    });
    let (prefill, decode) = pair.submit(&request, ROOM);
    collect(prefill);
    collect(decode);
    assert_eq!(state_bytes(&pair.prefill, Stage::ChunkSent), moved_state);
    assert_eq!(state_bytes(&pair.decode, Stage::TransferDone), moved_state);
    let alone = alone.0.lock().clone();
    let both: Vec<Point> = collectors
        .lock()
        .iter()
        .flat_map(|collector| collector.0.lock().clone())
        .collect();
    let computed = pages(&alone, computed);
    assert_eq!(computed.len(), 10);
    assert_eq!(pages(&both, before_send), computed);
    assert_eq!(pages(&both, after_restore), computed);
    let computed = states(&alone, self::computed);
    assert_eq!(computed.len(), num_states);
    assert_eq!(states(&both, before_send), computed);
    assert_eq!(states(&both, after_restore), computed);
    let found = compare(&both, &alone, 16).expect("a prompt was computed");
    assert_eq!(found.difference, None);
    assert_eq!((found.pages, found.steps), (20, 12));
    assert_eq!(found.states, num_states * (2 + 12));
    let mut steps_of_both = steps(&both);
    steps_of_both.sort_by_key(|(position, ..)| *position);
    assert_eq!(steps_of_both, steps(&alone));
    assert_eq!(steps_of_both.len(), 12);
    let bytes: u64 = both
        .iter()
        .map(|point| {
            if let Point::Sent { bytes, .. } = point {
                *bytes
            } else {
                0
            }
        })
        .sum();
    assert!(bytes > 0);
    assert!(matches!(&both[0], Point::Admitted(admitted) if admitted.input_ids.len() == 150));
}

#[test]
fn a_record_with_drafts_is_what_one_without_computes() {
    let observe = |speculative: Option<SpeculativeConfig>| {
        let is_drafted = speculative.is_some();
        let collector = Arc::new(Collector::default());
        let engine = start(EngineConfig {
            observer: Some(collector.clone()),
            speculative,
            page_size: 16,
            ..mk_config(QWEN3_5)
        });
        let mut request = mk_repeating(mk_sampled(&repeated(9, 40), 40));
        // It ends there, behind drafts of which some were right.
        request.sampling.min_new_tokens = 10;
        request.sampling.stop_token_ids = vec![6];
        assert_eq!(generate(&engine, request).token_ids.len(), 21);
        if is_drafted {
            assert!(metric(&engine, "pdserve_spec_accepted_tokens_total") > 0.5);
        }
        collector.0.lock().clone()
    };
    let (without, with) = (observe(None), observe(ngram(4)));
    let found = compare(&with, &without, 16).expect("a prompt was computed");
    assert_eq!((found.difference, found.steps), (None, 21));
    // States behind all steps, and with drafts behind the last row of each.
    let in_all = compare(&without, &without, 16).expect("a prompt was computed");
    assert!(found.states > 0 && found.states < in_all.states);
    let last = |points: &[Point]| steps(points).pop().expect("steps").2;
    assert_eq!(last(&with), last(&without));
}
