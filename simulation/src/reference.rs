//! Prompts and the only right answers to them.

use crate::engine::{self, EngineShape};
use crate::worker;
use pd_engine::engine::{DisaggregationMode, Engine, Turn};
use rand::RngExt;
use rand::rngs::StdRng;

/// A prompt, and as much of its answer as anyone asks for.
pub(crate) type Known = (Vec<u64>, Vec<u64>);

/// Tokens of an answer, at most.
const ANSWER_MAX: usize = 40;
const COMPUTED_ANSWER_MAX: usize = 40;

fn prompt(rng: &mut StdRng, len_max: usize) -> Vec<u64> {
    let len = rng.random_range(1..=len_max);
    (0..len).map(|_| rng.random_range(3..256)).collect()
}

/// For workers that count their answers out.
pub(crate) fn counted(rng: &mut StdRng) -> Vec<Known> {
    let known = [60, 60, 60, 1500].map(|len_max| {
        let prompt = prompt(rng, len_max);
        let answer = (0..ANSWER_MAX as u64).map(|nr| worker::token(&prompt, nr));
        let answer = answer.collect();
        (prompt, answer)
    });
    known.into()
}

/// For engines: as one alone answers, each prompt by itself.
pub(crate) fn computed(rng: &mut StdRng, shape: EngineShape) -> Vec<Known> {
    let config = shape.config(DisaggregationMode::Unified);
    let (engine, mut scheduler) = Engine::start_by_turns(config).expect("the tiny model is served");
    let prompts = shape.prompts_max().map(|len_max| prompt(rng, len_max));
    let known = prompts.map(|prompt| {
        let request = engine::request(&prompt, COMPUTED_ANSWER_MAX, None);
        let mut stream = engine.submit(request).expect("it fits");
        let mut answer = Vec::new();
        while answer.len() < COMPUTED_ANSWER_MAX {
            assert_ne!(scheduler.turn(), Turn::Last, "the reference ends");
            while let Some(event) = stream.try_recv() {
                answer.extend(event.token_ids.into_iter().map(u64::from));
            }
        }
        (prompt, answer)
    });
    known.into()
}
