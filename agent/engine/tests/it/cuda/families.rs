//! Families with experts, recurrent states and latents on CUDA's kernels: an answer's bits depend neither on graphs nor on
//! chunks, pages and company, nor on drafts of the model's own layer, nor on being disaggregated.

use super::MEMORY_BYTES;
use crate::draft_layer::{drafted, nextn};
use crate::harness::{assert_nothing_held, assert_same, collect, generate, metric, mk_config};
use crate::harness::{mk_prompt, mk_request, mk_unpenalised, start};
use crate::pair::Pair;
use pd_compute::dtype::ComputeDtype;
use pd_compute_proof::EmulatedDriver;
use pd_engine::engine::{Device, EngineConfig, SpeculativeConfig};
use pd_kv_transfer::TransportChoice;
use std::sync::Arc;

/// Engines of a checkpoint in deterministic mode.
struct Family {
    model: &'static str,
    /// It has a draft layer.
    drafts: bool,
}

// === impl Family ===

impl Family {
    fn on(&self, driver: EmulatedDriver, graphs: u32, config: EngineConfig) -> EngineConfig {
        EngineConfig {
            model_path: mk_config(self.model).model_path,
            dtype: Some(ComputeDtype::BF16),
            device: Device::Cuda {
                driver: Arc::new(driver),
                mem_fraction_static: 0.9,
                deterministic: true,
                cuda_graph_max_bs: graphs,
            },
            max_running_requests: 4,
            ..config
        }
    }

    fn speculative(&self) -> Option<SpeculativeConfig> {
        self.drafts.then(|| nextn(2)).flatten()
    }
}

fn assert_an_answer_is_one(family: &Family) {
    let mut request = mk_unpenalised(&mk_prompt(9, 21), 8);
    // Of two tokens, so that drafts are now right and now wrong.
    request.sampling.logit_bias = vec![(5, 50.0), (6, 50.0)];
    let driver = || EmulatedDriver::new(MEMORY_BYTES);
    let alone = family.on(driver(), 0, mk_config(family.model));
    let expected = generate(
        &start(EngineConfig {
            page_size: 1,
            overlap_schedule: Some(false),
            ..alone
        }),
        request.clone(),
    );

    // Chunks, company, steps ahead and graphs.
    let engine = start(EngineConfig {
        chunked_prefill_size: Some(16),
        ..family.on(driver(), 4, mk_config(family.model))
    });
    let mate = engine.submit(mk_request(&mk_prompt(1, 9), 9));
    assert_same(&generate(&engine, request.clone()), &expected);
    assert_eq!(collect(mate.expect("a valid request")).token_ids.len(), 9);
    assert!(metric(&engine, "pdserve_num_graph_replays_total") > 0.5);
    assert_nothing_held(&engine);

    // Over the boundary; decode drafts, if the model has a layer for that.
    let pair = Pair::start(TransportChoice::Auto, |config| EngineConfig {
        speculative: family.speculative(),
        ..family.on(driver(), 4, config)
    });
    let (prefill, decode) = pair.submit(&request, 1);
    let (prefill, decode) = (collect(prefill), collect(decode));
    assert_eq!(prefill.prompt_logprobs, expected.prompt_logprobs);
    assert_same(&decode, &expected.without_prompt());
    if family.drafts {
        let (drafts, accepted) = drafted(&pair.decode);
        assert!(
            accepted > 0.5 && drafts > accepted,
            "{accepted} of {drafts}"
        );
    }
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

macro_rules! families {
    ($($name:ident $model:literal $drafts:literal)*) => {
        $(#[test]
        fn $name() {
            assert_an_answer_is_one(&Family { model: $model, drafts: $drafts });
        })*
    };
}

families! {
    answers_of_qwen3_moe_are_one "tiny-qwen3-moe" false
    answers_of_qwen3_5_are_one "tiny-qwen3-5" true
    answers_of_qwen3_5_moe_are_one "tiny-qwen3-5-moe" true
    answers_of_qwen3_next_are_one "tiny-qwen3-next" false
    answers_of_gpt_oss_are_one "tiny-gpt-oss-mxfp4" false
    answers_of_deepseek_v2_are_one "tiny-deepseek-v2" false
    answers_of_deepseek_v3_are_one "tiny-deepseek-v3" true
}
