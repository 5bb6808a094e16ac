//! Values of four bits by their scales.

use super::*;

#[test]
fn every_value_is_that_of_its_bits_by_its_scale() {
    let block: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
    for (scale, factor) in [
        (127, 1.0),
        (120, 0.007_812_5),
        (254, 1.701_411_8e38),
        (0, f32::MIN_POSITIVE / 2.0),
    ] {
        let mut bytes = Vec::new();
        expand(&block, scale, &mut bytes);
        let pairs = bytes.as_chunks::<2>().0.iter();
        let values: Vec<f32> = pairs
            .map(|pair| bf16::from_le_bytes(*pair).to_f32())
            .collect();
        let expected = (0..16).flat_map(|i| [VALUES[i] * factor, VALUES[15 - i] * factor]);
        assert!(values.into_iter().eq(expected), "scale {scale}");
    }
}

#[test]
fn rows_are_expanded_in_the_order_that_is_asked_for() {
    let blocks: Vec<u8> = (0..3 * 2 * 16).map(|i| 0x11 * (i / 32 + 1)).collect();
    let view = |columns, bytes| TensorView {
        name: "w",
        format: (),
        rows: 0,
        columns,
        bytes,
    };
    let scales = [127, 128, 127, 128, 127, 128];
    let stored = Mxfp4 {
        blocks: view(16, &blocks),
        scales: view(2, &scales),
    };
    let matrix = stored.rows([2, 0].into_iter());
    assert_eq!((matrix.source().n, matrix.source().k), (2, 64));
    let values = matrix.to_f32().unwrap();
    let expected = [1.5, 3.0, 0.5, 1.0].map(|value| [value; 32]);
    assert_eq!(values, expected.concat());
}
