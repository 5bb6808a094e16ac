//! Every code against the definition.

use super::*;

/// By the definition: `(−1)^s · 2^(e − 7) · (1 + m / 8)`, or `(−1)^s · 2^−6 · m / 8` where e is 0; NaN where all
/// seven bits are ones.
fn defined(code: u8) -> f64 {
    let (sign, exponent, mantissa) = (code >> 7, code >> 3 & 15, f64::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(i32::from(exponent) - 7),
    };
    if sign == 1 { -size } else { size }
}

#[test]
fn every_code_of_e4m3_has_the_value_of_its_definition() {
    for code in 0..=255 {
        let (ours, expected) = (f64::from(value(code)), defined(code));
        let same = ours.to_bits() == expected.to_bits() || (ours.is_nan() && expected.is_nan());
        assert!(same, "{code:#04x}: {ours}, not {expected}");
    }
    assert_eq!((value(0x7e), value(0x01)), (448.0, 2f32.powi(-9)));
}

/// By trying every code.
fn nearest(x: f64) -> u8 {
    let codes = (0..=255).filter(|code| !defined(*code).is_nan());
    let signed = codes.filter(|code| (code >> 7 == 1) == x.is_sign_negative());
    let off = |code: &u8| (defined(*code) - x).abs();
    let by_distance = signed.min_by(|a, b| {
        let parity = |code: &u8| code & 1;
        off(a).total_cmp(&off(b)).then(parity(a).cmp(&parity(b)))
    });
    by_distance.expect("there are codes of both signs")
}

#[test]
fn a_number_is_rounded_to_the_nearest_code_and_ties_to_even() {
    for code in 0..0x7e {
        let (low, high) = (value(code), value(code + 1));
        let middle = (low + high) / 2.0;
        for x in [low, middle.next_down(), middle, middle.next_up(), high] {
            for x in [x, -x] {
                assert_eq!(rounded(x), nearest(f64::from(x)), "{x:e}");
            }
        }
    }
    for x in [448.0, 449.0, 1e30, f32::INFINITY] {
        assert_eq!((rounded(x), rounded(-x)), (0x7e, 0xfe));
    }
    for x in [0.0, 1e-30, f32::MIN_POSITIVE] {
        assert_eq!((rounded(x), rounded(-x)), (0, 0x80));
    }
    assert!(value(rounded(f32::NAN)).is_nan());
}
