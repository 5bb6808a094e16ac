//! Drafts in answers by grammars: what the grammar forces, and what others propose.

use super::{alone_by, by, mk_free, people};
use crate::harness::{LLAMA, QWEN3_5, assert_nothing_held, assert_same, collect, generate, metric};
use crate::harness::{mk_config, mk_prompt, mk_repeating, mk_request, ngram, start};
use pd_engine::engine::{EngineConfig, SpeculativeAlgorithm, SpeculativeConfig};
use pd_engine::grammar::GrammarSource;

#[test]
fn what_a_grammar_forces_comes_with_the_token_before_it() {
    let [jumping, walking] = [true, false].map(|jump_forward| {
        start(EngineConfig {
            jump_forward,
            ..mk_config(LLAMA)
        })
    });
    let request = mk_free(5, 200);
    let answers =
        [&jumping, &walking].map(|engine| generate(engine, by(engine, &people(), &request)));
    assert_same(&answers[0], &answers[1]);
    let [forced, accepted] = ["", "_accepted"].map(|kind| {
        metric(
            &jumping,
            &format!("pdserve_grammar_jump{kind}_tokens_total"),
        )
    });
    assert!(
        accepted > 5.0 && accepted <= forced,
        "{accepted} of {forced}"
    );
    let steps = [jumping, walking].map(|engine| metric(&engine, "pdserve_num_steps_total"));
    assert!(steps[0] < steps[1] - 5.0, "{steps:?}");
}

#[test]
fn drafts_change_no_token_of_a_grammar_nor_of_its_neighbours() {
    let standalone = |name| SpeculativeConfig {
        algorithm: SpeculativeAlgorithm::Standalone {
            draft_model_path: mk_config(name).model_path,
        },
        num_steps: 4,
    };
    for speculative in [
        ngram(4),
        Some(standalone(LLAMA)),
        Some(standalone("tiny-mistral")),
    ] {
        for jump_forward in [true, false] {
            let engine = start(EngineConfig {
                speculative: speculative.clone(),
                jump_forward,
                ..mk_config(LLAMA)
            });
            let request = mk_free(5, 60);
            let mate = mk_repeating(mk_request(&mk_prompt(4, 30), 60));
            let expected = (alone_by(&people(), &request), crate::harness::alone(&mate));
            let mate = engine.submit(mate).expect("a valid request");
            let answer = generate(&engine, by(&engine, &people(), &request));
            assert_same(&answer, &expected.0);
            assert_same(&collect(mate), &expected.1);
            let jumped = metric(&engine, "pdserve_grammar_jump_tokens_total");
            assert_eq!(jumped > 0.5, jump_forward);
            assert!(metric(&engine, "pdserve_spec_draft_tokens_total") > 0.5);
            assert_nothing_held(&engine);
        }
    }
}

#[test]
fn drafts_of_the_models_own_layer_change_no_token_of_a_grammar() {
    let request = mk_free(5, 60);
    let alone = start(EngineConfig {
        jump_forward: false,
        ..mk_config(QWEN3_5)
    });
    let engine = start(EngineConfig {
        speculative: Some(SpeculativeConfig {
            algorithm: SpeculativeAlgorithm::Nextn,
            num_steps: 3,
        }),
        ..mk_config(QWEN3_5)
    });
    // What this model drafts is hardly ever JSON.
    let nearly_free = GrammarSource::Regex("(?s)[^q]{40,}".to_owned());
    for (source, kind) in [(people(), "grammar_jump"), (nearly_free, "spec_draft")] {
        let expected = generate(&alone, by(&alone, &source, &request));
        assert_same(
            &generate(&engine, by(&engine, &source, &request)),
            &expected,
        );
        let tokens = metric(&engine, &format!("pdserve_{kind}_tokens_total"));
        assert!(tokens > 0.5, "{kind}");
    }
    assert_nothing_held(&engine);
}
