//! Facts about what a mixture of experts adds.

use crate::cpu::backend::tests::{floats, isas, mk_backend, noise_floats, read_floats};
use crate::cpu::isa::Isa;
use crate::ops::{Backend, MoeFinish, SharedRows};

#[test]
fn sums_and_a_gated_shared_expert_are_added_to_the_residual() {
    let (rows, hidden) = (5, 19);
    let [x, sums, shared] = [1, 2, 3].map(|seed| noise_floats(seed, rows * hidden));
    let gate = noise_floats(4, rows);
    let backend = mk_backend(2, Isa::detect());
    for (has_shared, has_gate) in [(false, false), (true, false), (true, true)] {
        let x_buffer = floats(&backend, &x);
        let (shared_buffer, gate_buffer) = (floats(&backend, &shared), floats(&backend, &gate));
        backend.moe_finish(MoeFinish {
            sums: &floats(&backend, &sums),
            shared: has_shared.then_some(SharedRows {
                values: &shared_buffer,
                gate: has_gate.then_some(&gate_buffer),
            }),
            x: &x_buffer,
            hidden,
            rows,
        });
        for (i, y) in read_floats(&backend, &x_buffer).into_iter().enumerate() {
            let gate = f64::from(gate[i / hidden]);
            let factor = match (has_shared, has_gate) {
                (false, _) => 0.0,
                (true, false) => 1.0,
                (true, true) => 1.0 / (1.0 + (-gate).exp()),
            };
            let expected = f64::from(x[i]) + f64::from(sums[i]) + factor * f64::from(shared[i]);
            assert!(
                (f64::from(y) - expected).abs() < 1e-6,
                "{y} beside {expected}"
            );
        }
    }
    assert!(isas().count() > 0);
}
