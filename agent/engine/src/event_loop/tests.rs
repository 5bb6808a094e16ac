//! The loop over a device that computes no logits but checks everything: requests come, go and run out of memory in
//! random order, with one step or two in flight, and every answer is what the request would have got by itself.

mod asked;
mod device;
mod drafts;

use super::*;
use crate::answer::{AnswerReceiver, answer};
use crate::command::{RequestId, Submission, queue};
use crate::in_flight::InFlightRequests;
use crate::info::EngineInfo;
use crate::kvcache::pool::{KvCache, KvCacheSizes, Prefixes};
use crate::kvcache::spaces::Spaces;
use crate::mode::unified::Unified;
use crate::model::config::SamplingDefaults;
use crate::recorder::Recorder;
use crate::schedule::ScheduleLimits;
use crate::speculate::layer::DraftLayer;
use crate::speculate::model::DraftModel;
use crate::step::{Drafting, Padding, StepBuilder};
use crate::text::Tokenizer;
use asked::Asked;
use device::{Device, VOCAB};
use drafts::{Drafts, Kind, drafted};
use pd_protocol::Role;
use proptest::prelude::*;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let folder = crate::text::tests::golden("tiny-llama");
    Arc::new(Tokenizer::from_folder(&folder).expect("the tiny tokenizer is read"))
});

/// The smallest pool holds it and its answer's first token.
const PROMPT_LEN_MAX: usize = 39;
/// Of a draft model's step: it takes several to follow a prompt.
const DRAFT_STEP_TOKENS: usize = 24;

#[derive(Clone, Debug)]
struct Sizes {
    overlaps: bool,
    /// The device executes a step when it is waited for, not when it is launched.
    is_late: bool,
    page_size: usize,
    num_pages: usize,
    max_running_requests: usize,
    chunk: Option<usize>,
    radix: bool,
    graphs: bool,
    /// Of a model with recurrent state.
    num_slots: Option<usize>,
    /// Keys that layers of the window space see, and their pages, of a model that has such.
    window: Option<usize>,
    num_window_pages: usize,
    /// Now and then no logit is finite.
    loses: bool,
    drafts: Option<Drafts>,
}

#[derive(Clone, Debug)]
enum Event {
    Submit(Asked),
    /// Of the requests so far, by index modulo their number.
    Abort(usize),
    Turns(usize),
}

struct Stand {
    event_loop: EventLoop,
    commands_tx: CommandSender,
    device: Device,
    in_flight: Arc<InFlightRequests>,
    asked: Vec<(Asked, AnswerReceiver)>,
    capacity: usize,
    loses: bool,
}

impl Stand {
    fn new(sizes: &Sizes) -> Self {
        let (commands_tx, commands_rx) = queue();
        let capacity = sizes.num_pages * sizes.page_size;
        let limits = ScheduleLimits {
            max_running_requests: sizes.max_running_requests,
            chunked_prefill_size: sizes.chunk,
            max_prefill_tokens: 64,
            prompt_logprob_rows: 32,
            draft_rows: sizes.drafts.map_or(0, |drafts| drafts.num_steps * 2),
        };
        let cache = KvCache::new(KvCacheSizes {
            num_pages: sizes.num_pages,
            spaces: Spaces {
                page_size: sizes.page_size,
                window: sizes.window,
            },
            num_window_pages: sizes.num_window_pages,
            num_slots: sizes.num_slots,
            max_running_requests: sizes.max_running_requests,
            pre_alloc_size: 0,
            prefixes: [Prefixes::Off, Prefixes::Computed][usize::from(sizes.radix)],
        });
        let device = Device::new(sizes);
        let speculation = sizes
            .drafts
            .map(|drafts| drafts.speculation(sizes.overlaps));
        let (info, tokenizer) = (mk_info(capacity), TOKENIZER.clone());
        let draft_model = sizes.drafts.and_then(|drafts| drafts.model(sizes));
        let has_layer = sizes.drafts.is_some_and(Drafts::are_of_layer);
        // No state comes from elsewhere.
        let draft_layer = has_layer.then(|| DraftLayer::new(0, 0));
        let drafting = if has_layer {
            Drafting::Entries {
                reads_states: false,
            }
        } else {
            Drafting::Off
        };
        let padding = Padding {
            graph_max_seqs: if sizes.graphs { 4 } else { 0 },
            max_seqs: sizes.max_running_requests,
        };
        let recorder = Recorder::new(0);
        let resources = Resources::new(
            Box::new(device.clone()),
            cache,
            StepBuilder::new(padding, &recorder.metrics).with_drafting(drafting),
            recorder,
            None,
        )
        .with_draft_model(draft_model)
        .with_draft_layer(draft_layer);
        let event_loop = EventLoop::new(EventLoopParts {
            commands_rx,
            waker: LoopWaker::new(commands_tx.clone()),
            resources,
            mode: Box::new(Unified::new(limits, 1.0)),
            req_factory: ReqFactory::new(&info, 0, tokenizer, speculation, None),
            overlaps: sizes.overlaps,
            clock: PhaseClock::new(Arc::default()),
            stopped: SetOnDrop(Arc::default()),
        });
        Self {
            event_loop,
            commands_tx,
            device,
            in_flight: Arc::new(InFlightRequests::new(u64::MAX)),
            asked: Vec::new(),
            capacity,
            loses: sizes.loses,
        }
    }

    fn submit(&mut self, asked: Asked) {
        let id = RequestId(self.asked.len() as u64);
        let (answer, receiver) = answer(id, self.commands_tx.clone());
        let submission = Submission {
            id,
            request: asked.request(),
            answer,
            in_flight: self.in_flight.enter(None).unwrap(),
        };
        let command = Command::Generate(Box::new(submission));
        self.commands_tx.send(command).unwrap();
        self.asked.push((asked, receiver));
    }

    fn abort(&mut self, index: usize) {
        if !self.asked.is_empty() {
            let id = RequestId((index % self.asked.len()) as u64);
            self.commands_tx.send(Command::Abort(id)).unwrap();
        }
    }

    fn turn(&mut self) -> Turn {
        let turn = self.event_loop.turn();
        let cache = &self.event_loop.resources.cache;
        self.device.assert_uses_none_of(
            &cache.free_pages(),
            &cache.free_window_pages(),
            &cache.free_slots(),
        );
        turn
    }

    fn finish(&mut self) {
        let turns = (0..100_000).take_while(|_| self.turn() == Turn::Worked);
        assert!(turns.count() < 100_000, "the loop does not come to an end");
    }
}

fn mk_info(capacity: usize) -> EngineInfo {
    EngineInfo {
        role: Role::Unified,
        model_path: String::new(),
        tokenizer_path: String::new(),
        sampling_defaults: SamplingDefaults::default(),
        served_model_name: String::new(),
        weight_version: String::new(),
        model_type: String::new(),
        context_length: 4096,
        max_total_tokens: u32::try_from(capacity).unwrap(),
        max_window_tokens: 0,
        page_size: 1,
        max_running_requests: 8,
        vocab_size: VOCAB,
        eos_token_ids: Vec::new(),
        dtype: String::new(),
        kv_cache_dtype: String::new(),
        kv_compat: String::new(),
        boot_id: String::new(),
    }
}

prop_compose! {
    fn sizes()(
        [overlaps, is_late, radix, graphs, loses] in any::<[bool; 5]>(),
        page_size in prop::sample::select(vec![1usize, 4, 16]),
        positions in 60..200usize,
        max_running_requests in 1..6usize,
        chunk in prop::option::of(prop::sample::select(vec![16usize, 32])),
        spare_slots in prop::option::of(0..6usize),
        drafts in prop::option::of(drafts()),
        window in prop::option::of(prop::sample::select(vec![1usize, 5, 16, 24, 40])),
        spare_window_pages in 0..8usize,
    ) -> Sizes {
        let num_pages = positions / page_size;
        // Models have a window space, or recurrent state or a draft layer, or neither.
        let parts = spare_slots.is_none() && !drafts.is_some_and(Drafts::are_of_layer);
        let window = window.filter(|_| parts);
        let num_steps = drafts.map_or(0, |drafts| drafts.num_steps);
        let least = |window: usize| match chunk {
            Some(chunk) => (window + chunk + num_steps).div_ceil(page_size) + 2,
            None => num_pages,
        };
        let num_window_pages = window.map_or(0, |window| least(window) + spare_window_pages);
        Sizes {
            overlaps,
            is_late,
            page_size,
            num_pages,
            max_running_requests,
            chunk,
            radix,
            graphs,
            window,
            num_window_pages: num_window_pages.min(num_pages),
            num_slots: spare_slots.map(|spare| max_running_requests + spare),
            loses,
            drafts,
        }
    }
}

fn drafts() -> impl Strategy<Value = Drafts> {
    let kinds = [
        Kind::Right,
        Kind::Wrong,
        Kind::Mixed,
        Kind::Ngram,
        Kind::Model,
        Kind::MistakenModel,
        Kind::WrongModel,
        Kind::Layer,
    ];
    let kind = prop::sample::select(kinds.to_vec());
    (1..5usize, kind).prop_map(|(num_steps, kind)| Drafts { num_steps, kind })
}

fn event() -> impl Strategy<Value = Event> {
    let asked_len = prop_oneof![1..=PROMPT_LEN_MAX, Just(4), Just(17)];
    let answered = prop_oneof![Just(0), 1..20usize];
    let asked = (0..3u32, asked_len, answered, 1..30u32, 0..8u8).prop_map(
        |(family, asked_len, answered, max_new_tokens, kind)| Asked {
            family,
            prompt_len: (asked_len + answered).min(PROMPT_LEN_MAX),
            answered: answered.min(PROMPT_LEN_MAX - asked_len),
            max_new_tokens,
            penalised: kind == 0,
            prompt_logprobs: kind == 1,
            stops: true,
        },
    );
    prop_oneof![
        4 => asked.prop_map(Event::Submit),
        1 => any::<usize>().prop_map(Event::Abort),
        6 => (1..6usize).prop_map(Event::Turns),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn every_answer_is_what_the_request_would_have_got_alone(
        sizes in sizes(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut stand = Stand::new(&sizes);
        let mut aborted = Vec::new();
        for event in events {
            match event {
                Event::Submit(asked) => stand.submit(asked),
                Event::Abort(index) => {
                    stand.abort(index);
                    aborted.push(index % stand.asked.len().max(1));
                }
                Event::Turns(turns) => {
                    for _ in 0..turns {
                        stand.turn();
                    }
                }
            }
        }
        stand.finish();
        let usage = stand.event_loop.resources.cache.usage();
        prop_assert!(usage.is_conserved_when_idle(), "{usage:?}");
        if sizes.drafts.is_some_and(Drafts::are_always_right) && !sizes.loses {
            let (drafts, accepted) = drafted(&stand);
            prop_assert_eq!(accepted, drafts, "drafts are right");
        }
        for (index, (asked, answer)) in std::mem::take(&mut stand.asked).into_iter().enumerate() {
            asked.check(answer, aborted.contains(&index), &stand);
        }
    }
}

const ROOMY: Sizes = Sizes {
    overlaps: true,
    is_late: true,
    page_size: 16,
    num_pages: 64,
    max_running_requests: 4,
    chunk: Some(16),
    radix: false,
    graphs: false,
    num_slots: None,
    window: None,
    num_window_pages: 0,
    loses: false,
    drafts: None,
};

fn mk_asked(prompt_len: usize, max_new_tokens: u32) -> Asked {
    Asked {
        family: 1,
        prompt_len,
        answered: 0,
        max_new_tokens,
        penalised: false,
        prompt_logprobs: false,
        stops: true,
    }
}

/// How many steps were launched, and how many of them with another in flight.
fn steps(stand: &Stand) -> (u64, u64) {
    let counters = &stand.event_loop.resources.recorder.metrics.counters;
    (counters.steps.get(), counters.overlapped_steps.get())
}

#[test]
fn chunks_of_a_prompt_overlap_and_so_do_the_tokens_after_them() {
    let mut stand = Stand::new(&ROOMY);
    stand.submit(mk_asked(8 * 16, 1));
    stand.finish();
    assert_eq!(steps(&stand), (8, 7), "eight chunks");
    stand.submit(mk_asked(16, 10));
    stand.finish();
    let (asked, answer) = stand.asked.pop().unwrap();
    let (tokens, _) = asked.expected(&stand);
    asked.check(answer, false, &stand);
    let (all, overlapped) = steps(&stand);
    assert!(
        overlapped >= 7 + tokens.len() as u64 - 1,
        "{overlapped} of {all}"
    );
}

#[test]
fn a_penalised_request_waits_for_each_of_its_tokens() {
    let mut stand = Stand::new(&ROOMY);
    stand.submit(Asked {
        penalised: true,
        ..mk_asked(16, 10)
    });
    stand.finish();
    let (asked, answer) = stand.asked.pop().unwrap();
    asked.check(answer, false, &stand);
    assert_eq!(steps(&stand).1, 0);
}

#[test]
fn without_overlap_one_step_is_in_flight_at_a_time() {
    let mut stand = Stand::new(&Sizes {
        overlaps: false,
        ..ROOMY
    });
    stand.submit(mk_asked(8 * 16, 10));
    stand.finish();
    assert_eq!(steps(&stand).1, 0);
}
