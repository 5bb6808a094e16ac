//! Ops of gated delta layers beside the CPU backend's, where a backend has them.

use super::forms::has;
use super::{DTYPES, Device, assert_close};
use crate::cases::Subject;
use crate::cases::delta::{self, DeltaShape, DeltaStep};
use crate::cases::reference;
use pd_compute::{DType, OpFeature};

const SHAPES: [DeltaShape; 5] = [
    DeltaShape {
        num_k_heads: 2,
        num_v_heads: 4,
        k_dim: 32,
        v_dim: 32,
        taps: 4,
    },
    DeltaShape {
        num_k_heads: 1,
        num_v_heads: 1,
        k_dim: 128,
        v_dim: 128,
        taps: 4,
    },
    // Long k heads, and v heads that end within a warp's columns.
    DeltaShape {
        num_k_heads: 1,
        num_v_heads: 1,
        k_dim: 136,
        v_dim: 20,
        taps: 3,
    },
    DeltaShape {
        num_k_heads: 1,
        num_v_heads: 1,
        k_dim: 256,
        v_dim: 16,
        taps: 4,
    },
    // Heads that no loads of several elements fit, and columns of several blocks.
    DeltaShape {
        num_k_heads: 1,
        num_v_heads: 2,
        k_dim: 30,
        v_dim: 37,
        taps: 2,
    },
];

/// Rows that end within and at the ends of the tokens that the scan prepares at once, 16, and of the convolution's
/// chunks, 32; the second has a row of each.
fn steps() -> [DeltaStep; 3] {
    let ragged = [1, 16, 15, 17, 33, 2, 70, 1, 32];
    [
        DeltaStep::of_two(),
        DeltaStep::of(&ragged, &[69, 0, 14, 15, 16, 30, 31, 32]),
        DeltaStep::of(&[1; 5], &[0]),
    ]
}

/// Calls `check` with every shape on a backend of each dtype, if it has the ops.
fn with_each<D: Device>(device: &D, check: impl Fn(&Subject<D::Backend>, &DeltaShape, DType)) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        if has(&subject, &[OpFeature::GatedDelta]) {
            SHAPES
                .iter()
                .for_each(|shape| check(&subject, shape, dtype));
        }
    }
}

pub(super) fn convolutions_go_on_from_states<D: Device>(device: &D) {
    // Beyond the rows that a block asks for snapshots at once, and more sequences than a block has threads.
    let long = DeltaStep::of(&[700], &[127, 128, 639, 640, 699]);
    let many = DeltaStep::of(&[3; 131], &[1]);
    with_each(device, |subject, shape, dtype| {
        for step in steps().iter().chain([&long, &many]) {
            let (out, states) = delta::causal_conv(subject, shape, dtype, step);
            let (expected, expected_states) = delta::causal_conv(&reference(), shape, dtype, step);
            let what = (dtype, shape, step);
            assert_close(&out, &expected, subject.rounding(), &what);
            assert!(states == expected_states, "{what:?}");
        }
    });
}

pub(super) fn the_delta_rule_goes_on_from_states<D: Device>(device: &D) {
    with_each(device, |subject, shape, dtype| {
        for step in &steps() {
            let (out, states) = delta::gdn_scan(subject, shape, dtype, step);
            let (expected, expected_states) = delta::gdn_scan(&reference(), shape, dtype, step);
            let what = (dtype, shape, step);
            assert_close(&out, &expected, 2.0 * subject.rounding(), &what);
            // States are f32 on every backend.
            assert_close(&states, &expected_states, 1e-5, &what);
        }
    });
}

pub(super) fn heads_are_normed_and_gated<D: Device>(device: &D) {
    with_each(device, |subject, shape, dtype| {
        let actual = delta::gated_norm(subject, shape, dtype);
        let expected = delta::gated_norm(&reference(), shape, dtype);
        assert_close(&actual, &expected, subject.rounding(), &(dtype, shape));
    });
}

pub(super) fn states_come_back_from_the_host_as_they_went<D: Device>(device: &D) {
    with_each(device, |subject, shape, dtype| {
        let expected = delta::there_and_back(&reference(), shape, dtype);
        assert_eq!(delta::there_and_back(subject, shape, dtype), expected);
    });
}

pub(super) fn a_sequences_bits_do_not_depend_on_how_it_is_cut<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        if !has(&subject, &[OpFeature::GatedDelta]) {
            continue;
        }
        for shape in &SHAPES {
            let bits = |pieces: &[usize], mates| {
                let out = delta::in_pieces(&subject, shape, dtype, pieces, mates);
                out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            let whole = bits(&[70], 0);
            let cuts = [
                (&[1, 69][..], 3),
                (&[2, 1, 1, 1, 65], 1),
                (&[66, 4], 0),
                (&[15, 1, 16, 38], 0),
            ];
            for (pieces, mates) in cuts {
                let is_same = bits(pieces, mates) == whole;
                assert!(is_same, "{dtype:?} {shape:?} {pieces:?} differ");
            }
        }
    }
}
