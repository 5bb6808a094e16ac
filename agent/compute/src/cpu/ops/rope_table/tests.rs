//! Facts about rotary embedding.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use super::{RotateHead, sin_cos};
use crate::cpu::backend::tests::{
    floats, isas, mk_backend, noise_floats, read_floats, words, zeros,
};
use crate::ops::{Backend, RopeTable};

#[test]
fn sine_and_cosine_agree_with_the_library_up_to_a_million() {
    for i in 0..200_000u32 {
        let x = f64::from(i) * 5.000_317 + f64::from(i % 97) * 1e-3;
        let (sin, cos) = sin_cos(x);
        assert!((sin - x.sin()).abs() < 4e-16, "sin({x}) = {sin}");
        assert!((cos - x.cos()).abs() < 4e-16, "cos({x}) = {cos}");
    }
}

#[test]
fn a_table_row_is_cosines_then_sines_times_the_factor() {
    let backend = mk_backend(2, crate::cpu::Isa::detect());
    let (positions, inv_freq) = (words(&backend, &[0, 500]), floats(&backend, &[1.0, 0.25]));
    let out = zeros(&backend, 8);
    backend.rope_table(RopeTable {
        positions: &positions,
        inv_freq: &inv_freq,
        factor: 2.0,
        out: &out,
        rows: 2,
    });
    let [c1, c2] = [500f64, 125.0].map(|x| x.cos() as f32 * 2.0);
    let [s1, s2] = [500f64, 125.0].map(|x| x.sin() as f32 * 2.0);
    assert_eq!(
        read_floats(&backend, &out),
        [2.0, 2.0, 0.0, 0.0, c1, c2, s1, s2]
    );
}

#[test]
fn halves_of_a_head_are_rotated_against_each_other_and_the_rest_is_left() {
    let half = 24;
    let head = noise_floats(1, 2 * half + 5);
    let angles = noise_floats(2, half);
    let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
    for isa in isas() {
        let mut rotated = head.clone();
        // SAFETY: the kernel has no needs of its own.
        unsafe {
            isa.dispatch(RotateHead {
                head: &mut rotated,
                cos: &cos,
                sin: &sin,
            })
        };
        for i in 0..half {
            assert_eq!(rotated[i], head[i] * cos[i] - head[half + i] * sin[i]);
            assert_eq!(
                rotated[half + i],
                head[half + i] * cos[i] + head[i] * sin[i]
            );
        }
        assert_eq!(rotated[2 * half..], head[2 * half..]);
    }
}
