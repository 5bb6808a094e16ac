//! Values of four bits by their scales.

use super::*;
use pd_compute::quant::dequantize;

const VALUES: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

fn view(columns: usize, bytes: &[u8]) -> TensorView<'_, ()> {
    TensorView {
        name: "w",
        format: (),
        rows: 0,
        columns,
        bytes,
    }
}

fn values(matrix: &Matrix<'_>) -> Vec<f32> {
    let source = matrix.source();
    let mut values = vec![0.0; source.n * source.k];
    dequantize(source.format, source.bytes, &mut values);
    values
}

#[test]
fn every_value_is_that_of_its_bits_by_its_scale() {
    let block: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
    for (scale, factor) in [
        (127, 1.0),
        (120, 0.007_812_5),
        (254, 1.701_411_8e38),
        (0, f32::MIN_POSITIVE / 2.0),
    ] {
        let scales = [scale];
        let stored = Mxfp4 {
            blocks: view(16, &block),
            scales: view(1, &scales),
        };
        let expected = (0..16).flat_map(|i| [VALUES[i] * factor, VALUES[15 - i] * factor]);
        let values = values(&stored.rows([0].into_iter()));
        assert!(values.into_iter().eq(expected), "scale {scale}");
    }
}

#[test]
fn rows_are_taken_in_the_order_that_is_asked_for() {
    let blocks: Vec<u8> = (0..3 * 2 * 16).map(|i| 0x11 * (i / 32 + 1)).collect();
    let scales = [127, 128, 127, 128, 127, 128];
    let stored = Mxfp4 {
        blocks: view(16, &blocks),
        scales: view(2, &scales),
    };
    let matrix = stored.rows([2, 0].into_iter());
    let source = matrix.source();
    assert_eq!((source.n, source.k, source.bytes.len()), (2, 64, 4 * 17));
    assert_eq!(source.format, WeightFormat::Mxfp4);
    let expected = [1.5, 3.0, 0.5, 1.0].map(|value| [value; 32]);
    assert_eq!(values(&matrix), expected.concat());
}

#[test]
fn a_scale_that_is_no_number_has_a_place() {
    let scales = [127, 128, 127, 255];
    let stored = Mxfp4 {
        blocks: view(16, &[]),
        scales: view(2, &scales),
    };
    assert_eq!(stored.nan(), Some((1, 1)));
    let scales = view(2, &scales[..3]);
    assert_eq!(Mxfp4 { scales, ..stored }.nan(), None);
}
