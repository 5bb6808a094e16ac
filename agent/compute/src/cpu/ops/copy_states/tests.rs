//! Proves that copied states are the right ones, in both directions.

use crate::cpu::backend::tests::{floats, mk_backend, noise_floats, read_floats, words, zeros};
use crate::cpu::{CpuBackend, Isa};
use crate::ops::{Backend, CopyDirection, CopyStates};
use crate::states::{StateTensorView, StateView};

#[test]
fn states_leave_and_come_back_to_other_slots() {
    let backend = mk_backend(2, Isa::detect());
    let tensor = |heads, elements| StateTensorView { heads, elements };
    let mut states = StateView {
        region: zeros(&backend, 0),
        num_slots: 5,
        num_layers: 3,
        tensors: vec![tensor(2, 4), tensor(1, 6)].into(),
    };
    let item_len = states.item_len();
    assert_eq!(item_len, 3 * (2 * 4 + 6));
    let before = noise_floats(1, 5 * item_len);
    states.region = floats(&backend, &before);
    let host = zeros(&backend, 2 * item_len);
    let copy = |slots: [u32; 2], direction| {
        backend.copy_states(CopyStates {
            states: &states,
            slots: &words(&backend, &slots),
            num_slots: 2,
            host: &host,
            direction,
        });
    };
    let item = |slot: usize| &before[slot * item_len..(slot + 1) * item_len];
    copy([4, 1], CopyDirection::PoolToHost);
    assert_eq!(read_floats(&backend, &host), [item(4), item(1)].concat());
    copy([0, 4], CopyDirection::HostToPool);
    let expected = [item(4), item(1), item(2), item(3), item(1)].concat();
    assert_eq!(read_floats(&backend, &states.region), expected);
}

#[test]
fn the_heads_of_a_layer_lie_as_the_transfer_cuts_them() {
    let backend = mk_backend(1, Isa::detect());
    let tensor = |heads, elements| StateTensorView { heads, elements };
    let states: StateView<CpuBackend> = StateView {
        region: zeros(&backend, 0),
        num_slots: 1,
        num_layers: 3,
        tensors: vec![tensor(2, 4), tensor(1, 6)].into(),
    };
    // [tensor][head][layer][elements]
    let heads: Vec<_> = states.heads(1).collect();
    assert_eq!(heads, [4..8, 16..20, 30..36]);
}

#[test]
fn a_slot_that_would_be_written_twice_is_a_fault_and_may_be_read_twice() {
    let backend = mk_backend(2, Isa::detect());
    let states = StateView {
        region: zeros(&backend, 5 * 4),
        num_slots: 5,
        num_layers: 1,
        tensors: [StateTensorView {
            heads: 1,
            elements: 4,
        }]
        .into(),
    };
    let host = zeros(&backend, 2 * 4);
    let copy = |direction| {
        backend.copy_states(CopyStates {
            states: &states,
            slots: &words(&backend, &[3, 3]),
            num_slots: 2,
            host: &host,
            direction,
        });
        crate::Ticket::wait(backend.read(&host))
    };
    assert!(copy(CopyDirection::PoolToHost).is_ok());
    let fault = copy(CopyDirection::HostToPool).unwrap_err().to_string();
    assert!(fault.contains("state slot 3 is written twice"), "{fault}");
}
