//! Facts about the blocks that a linear is cut into.

use super::{NORM_K_MAX, few_rows, few_rows_bytes, norm_linear_bytes};
use crate::cuda::kernels::FEW_ROWS;

const H100_SMS: u32 = 132;
/// Devices of compute capability 8.6 have the least.
const SHARED_BYTES_MAX: usize = 99 << 10;

/// Rows and columns of a block.
fn tile(rows: usize, n: usize) -> (usize, usize) {
    let tile = few_rows(H100_SMS, rows, n);
    (tile.rows, tile.columns)
}

#[test]
fn blocks_grow_with_rows_and_columns() {
    for n in [1024, 2560] {
        assert_eq!([1, 8].map(|rows| tile(rows, n)), [(8, 8); 2]);
    }
    for n in [4096, 6144, 151_936] {
        assert_eq!([1, 8].map(|rows| tile(rows, n)), [(8, 16); 2]);
    }
    assert_eq!(
        [16, 32, 64].map(|rows| tile(rows, 1024)),
        [(8, 16), (16, 16), (16, 32)]
    );
    assert_eq!(
        [16, 32, 64].map(|rows| tile(rows, 4096)),
        [(16, 32), (32, 32), (32, 64)]
    );
    assert_eq!(
        [16, 32, 64].map(|rows| tile(rows, 24_576)),
        [(16, 32), (32, 64), (32, 64)]
    );
}

#[test]
fn every_kernel_for_few_rows_fits_every_device() {
    for tile in &FEW_ROWS {
        assert!(
            few_rows_bytes(tile, 1 << 20) <= SHARED_BYTES_MAX,
            "{tile:?}"
        );
    }
    assert!(norm_linear_bytes(NORM_K_MAX) <= SHARED_BYTES_MAX);
}
