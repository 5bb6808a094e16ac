//! Scales beside the bytes: whose they are, and how many there must be.

use super::*;
use std::num::NonZero;

const FORMAT: WeightFormat = WeightFormat::F8E4M3 {
    scale_len: NonZero::new(2).unwrap(),
};

/// Two rows of five values: 1, and 2 where the row is the second.
fn source(scales: &[f32]) -> WeightSource<'_> {
    WeightSource {
        name: "w",
        format: FORMAT,
        n: 2,
        k: 5,
        bytes: &[0x38, 0x38, 0x38, 0x38, 0x38, 0x40, 0x40, 0x40, 0x40, 0x40],
        scales,
    }
}

#[test]
fn a_value_has_the_scale_of_its_row_and_its_place_in_it() {
    let source = source(&[1.0, 10.0, 100.0, 2.0, 20.0, 200.0]);
    assert_eq!(source.row_bytes().unwrap(), 5);
    let mut row = [0.0; 5];
    source.row(1).expand(&mut row);
    assert_eq!(row, [4.0, 4.0, 40.0, 40.0, 400.0]);
    // A part may begin within those that share a scale.
    let part = source.row(1).part(&(1..4));
    assert_eq!(part.len(), 3);
    part.expand(&mut row[..3]);
    assert_eq!(row[..3], [4.0, 40.0, 40.0]);
}

#[test]
fn a_wrong_number_of_scales_is_refused() {
    let refused = source(&[1.0; 5]).row_bytes().unwrap_err().to_string();
    assert!(refused.starts_with("weight w: has 5 scales"), "{refused}");
    let unquantised = WeightSource {
        format: WeightFormat::BF16,
        bytes: &[0; 20],
        ..source(&[1.0])
    };
    assert!(unquantised.row_bytes().is_err());
}
