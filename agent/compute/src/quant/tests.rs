//! Values against gguf-py.

use super::{dequantize, power_of_two};
use crate::dtype::WeightFormat;

/// Per line: a format, stored blocks, and the f32 values that gguf-py 0.19.0 reads from them
/// (`gguf.quants.dequantize`), little-endian. Scales include a negative subnormal.
const GOLDEN: &str = include_str!("golden.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    digits
        .iter()
        .map(|pair| {
            let digit = |c: u8| char::from(c).to_digit(16).expect("a hex digit");
            u8::try_from(digit(pair[0]) * 16 + digit(pair[1])).expect("two digits")
        })
        .collect()
}

fn format(name: &str) -> WeightFormat {
    match name {
        "F32" => WeightFormat::F32,
        "F16" => WeightFormat::F16,
        "BF16" => WeightFormat::BF16,
        "Q8_0" => WeightFormat::Q8_0,
        "Q4_0" => WeightFormat::Q4_0,
        "Q4_1" => WeightFormat::Q4_1,
        "Q4K" => WeightFormat::Q4K,
        "Q6K" => WeightFormat::Q6K,
        name => panic!("no format {name}"),
    }
}

#[test]
fn every_format_reads_as_gguf_py_reads_it() {
    assert_eq!(GOLDEN.lines().count(), 8);
    for line in GOLDEN.lines() {
        let [name, stored, values] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("three fields in {line}");
        };
        let expected = bytes(values);
        let mut read = vec![0.0; expected.len() / 4];
        dequantize(format(name), &bytes(stored), &mut read);
        for (i, (v, expected)) in read.iter().zip(expected.as_chunks().0).enumerate() {
            let expected = f32::from_le_bytes(*expected);
            assert_eq!(
                v.to_bits(),
                expected.to_bits(),
                "{name}[{i}]: {v:e}, not {expected:e}"
            );
        }
    }
}

/// By the definition: a sign, `2^(e − 1) · (1 + m / 2)`, or `m / 2` where e is 0.
#[test]
fn every_code_of_mxfp4_has_the_value_of_its_definition() {
    let block: [u8; 17] = std::array::from_fn(|i| match u8::try_from(i).expect("small") {
        0 => 126,
        i => (i - 1) | (16 - i) << 4,
    });
    let mut values = [0.0; 32];
    dequantize(WeightFormat::Mxfp4, &block, &mut values);
    let defined = |code: u8| {
        let (sign, exponent, mantissa) = (code >> 3, code >> 1 & 3, f32::from(code & 1) / 2.0);
        let size = match exponent {
            0 => mantissa,
            exponent => f32::from(1u8 << (exponent - 1)) * (1.0 + mantissa),
        };
        0.5 * if sign == 1 { -size } else { size }
    };
    let expected = (0..16).chain((0..16).rev()).map(defined);
    assert!(
        values
            .into_iter()
            .map(f32::to_bits)
            .eq(expected.map(f32::to_bits))
    );
    let extremes = [
        (0, 2f32.powi(-127)),
        (1, 2f32.powi(-126)),
        (254, 2f32.powi(127)),
    ];
    for (byte, value) in extremes {
        assert_eq!(power_of_two(byte), value);
    }
    assert!(power_of_two(255).is_nan());
}

#[test]
#[should_panic(expected = "31 values of Q8_0 do not take 34 bytes")]
fn a_length_that_does_not_fit_is_refused() {
    dequantize(WeightFormat::Q8_0, &[0; 34], &mut [0.0; 31]);
}
