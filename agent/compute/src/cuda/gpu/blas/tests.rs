//! Facts about products that share an algorithm.

use super::*;

#[test]
fn decode_batches_share_an_algorithm_within_a_tile_and_prompts_within_a_power_of_two() {
    let alike = |rows| [rows, rows_alike(rows)];
    let found = [17, 33, 64, 65, 192, 193, 256, 512, 513, 8000].map(alike);
    let wanted = [
        [17, 32],
        [33, 64],
        [64, 64],
        [65, 128],
        [192, 192],
        [193, 256],
        [256, 256],
        [512, 512],
        [513, 1024],
        [8000, 8192],
    ];
    assert_eq!(found, wanted);
}
