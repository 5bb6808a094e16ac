//! Ops of gated delta layers beside the CPU backend's, where a backend has them.

use super::forms::has;
use super::{DTYPES, Device, assert_close};
use crate::cases::Subject;
use crate::cases::delta::{self, DeltaShape};
use crate::cases::reference;
use pd_compute::{DType, OpFeature};

const SHAPES: [DeltaShape; 3] = [
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
];

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
    with_each(device, |subject, shape, dtype| {
        let (out, states) = delta::causal_conv(subject, shape, dtype);
        let (expected, expected_states) = delta::causal_conv(&reference(), shape, dtype);
        let what = (dtype, shape);
        assert_close(&out, &expected, subject.rounding(), &what);
        assert_eq!(states, expected_states, "{what:?}");
    });
}

pub(super) fn the_delta_rule_goes_on_from_states<D: Device>(device: &D) {
    with_each(device, |subject, shape, dtype| {
        let (out, states) = delta::gdn_scan(subject, shape, dtype);
        let (expected, expected_states) = delta::gdn_scan(&reference(), shape, dtype);
        let what = (dtype, shape);
        assert_close(&out, &expected, 2.0 * subject.rounding(), &what);
        // States are f32 on every backend.
        assert_close(&states, &expected_states, 1e-5, &what);
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
            for (pieces, mates) in [(&[1, 69][..], 3), (&[2, 1, 1, 1, 65], 1), (&[66, 4], 0)] {
                let is_same = bits(pieces, mates) == whole;
                assert!(is_same, "{dtype:?} {shape:?} {pieces:?} differ");
            }
        }
    }
}
