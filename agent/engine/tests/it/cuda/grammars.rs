//! Grammars on the emulated device: a graph ends before the sampling of a step with masks.

use super::{MEMORY_BYTES, assert_alike, on_cuda};
use crate::grammar::{by, mk_free, people};
use crate::harness::{LLAMA, mk_config, mk_prompt, mk_unpenalised, start};
use crate::harness::{alone, assert_nothing_held, assert_same, collect, generate, metric};
use pd_compute::dtype::ComputeDtype;
use pd_compute_proof::EmulatedDriver;
use pd_engine::engine::{Device, EngineConfig};
use std::sync::Arc;

#[test]
fn grammars_have_the_cpus_tokens() {
    let engine = start(on_cuda(ComputeDtype::F32, false));
    let cpu = start(mk_config(LLAMA));
    let request = mk_free(5, 40);
    let expected = generate(&cpu, by(&cpu, &people(), &request));
    let answer = generate(&engine, by(&engine, &people(), &request));
    assert_alike(&answer, &expected);
    let mate = mk_unpenalised(&mk_prompt(2, 30), 20);
    let expected = alone(&mate);
    let streams = [by(&engine, &people(), &request), mate]
        .map(|request| engine.submit(request).expect("a valid request"));
    let [_, beside] = streams.map(collect);
    assert_alike(&beside, &expected);
    assert_nothing_held(&engine);
}

#[test]
fn replayed_steps_with_masks_yield_what_launched_ones_do() {
    let answers = [0, 8].map(|cuda_graph_max_bs| {
        let engine = start(EngineConfig {
            device: Device::Cuda {
                driver: Arc::new(EmulatedDriver::new(MEMORY_BYTES)),
                mem_fraction_static: 0.9,
                // Otherwise rows added to a step take another kernel, and round differently.
                deterministic: true,
                cuda_graph_max_bs,
            },
            ..on_cuda(ComputeDtype::BF16, true)
        });
        let requests = [
            by(&engine, &people(), &mk_free(1, 30)),
            mk_unpenalised(&mk_prompt(2, 30), 20),
            by(&engine, &people(), &mk_free(2, 40)),
        ];
        let streams = requests.map(|request| engine.submit(request).expect("a valid request"));
        let all = streams.map(collect);
        let replays = metric(&engine, "pdserve_num_graph_replays_total");
        assert_eq!(replays > 20.0, cuda_graph_max_bs > 0, "{replays}");
        assert_nothing_held(&engine);
        all
    });
    let [launched, replayed] = answers;
    for (answer, launched) in replayed.iter().zip(&launched) {
        assert_same(answer, launched);
    }
}
