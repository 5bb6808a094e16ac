//! The linear op: beside the CPU backend's, and its bits.

use super::{DTYPES, Device, assert_close};
use crate::cases::linear::{LinearCase, linear, linear_by_ranks, norm_linear};
use crate::cases::reference;
use pd_compute::{DType, Epilogue};

pub(super) fn linears_multiply_add_and_gate<D: Device>(device: &D) {
    // Many rows go through the vendor's library or, deterministically, through a kernel of our own.
    for (dtype, deterministic) in [
        (DType::F32, false),
        (DType::BF16, false),
        (DType::BF16, true),
    ] {
        let subject = device.start(dtype, deterministic);
        let narrow = [(16, 8), (40, 264), (160, 72), (150, 520)].map(|(n, k)| {
            let counts: &[usize] = &[1, 7, 8, 9, 17, 33, 64, 65, MANY_ROWS];
            (n, k, counts)
        });
        let wide = FEW_ROWS.iter().filter(|(n, ..)| *n > 48 && deterministic);
        for (n, k, counts) in narrow.iter().chain(wide).copied() {
            for rows in counts.iter().copied() {
                for (epilogue, to_f32) in [
                    (Epilogue::Store, true),
                    (Epilogue::Store, false),
                    (Epilogue::AddResidual, false),
                    (Epilogue::SwiGlu, false),
                ] {
                    let case = LinearCase {
                        rows,
                        n,
                        k,
                        epilogue,
                        dtype,
                        to_f32,
                        has_bias: false,
                    };
                    let bound = if to_f32 {
                        2e-6
                    } else {
                        2.0 * subject.rounding()
                    };
                    let expected = linear(&reference(), &case);
                    assert_close(&linear(&subject, &case), &expected, bound, &case);
                }
            }
        }
    }
}

/// The vendor's library has algorithms that take few columns, but not any number of rows.
pub(super) fn narrow_linears_take_any_number_of_rows<D: Device>(device: &D) {
    let subject = device.start(DType::BF16, false);
    for (n, k, to_f32) in [
        (1, 2048, true),
        (2, 64, false),
        (32, 64, false),
        (40, 64, true),
    ] {
        for rows in [4096, 2100, 4000, 128, 65, 96, 127, 256, 130, 255, 1000, 514] {
            let case = LinearCase {
                rows,
                n,
                k,
                epilogue: Epilogue::Store,
                dtype: DType::BF16,
                to_f32,
                has_bias: false,
            };
            // In f32, 2,048 numbers are added in another order.
            let bound = if to_f32 {
                1e-5
            } else {
                2.0 * subject.rounding()
            };
            let expected = linear(&reference(), &case);
            assert_close(&linear(&subject, &case), &expected, bound, &case);
        }
    }
}

pub(super) fn normed_rows_multiply_as_after_a_norm<D: Device>(device: &D) {
    for (dtype, deterministic) in [
        (DType::F32, false),
        (DType::BF16, false),
        (DType::BF16, true),
    ] {
        let subject = device.start(dtype, deterministic);
        for (n, k) in [(16, 8), (40, 264), (160, 72), (48, 2600), (24, 6400)] {
            for rows in [1, 3, 8, 9] {
                for epilogue in [Epilogue::Store, Epilogue::AddResidual, Epilogue::SwiGlu] {
                    let case = LinearCase {
                        rows,
                        n,
                        k,
                        epilogue,
                        dtype,
                        to_f32: false,
                        has_bias: false,
                    };
                    let expected = norm_linear(&reference(), &case);
                    let bound = 4.0 * subject.rounding();
                    assert_close(&norm_linear(&subject, &case), &expected, bound, &case);
                }
            }
        }
    }
}

/// Columns, k and numbers of rows that make a device of some 130 multiprocessors take each of its kernels for few rows.
const FEW_ROWS: [(usize, usize, &[usize]); 7] = [
    (48, 40, &[1, 8, 20, 64, 65, 256]),
    (48, 264, &[1, 8, 20, 64, 130]),
    (48, 520, &[1, 20]),
    (40, 1304, &[5, 64]),
    (1160, 264, &[1, 8, 16]),
    (2184, 808, &[16, 32, 64]),
    (4360, 264, &[50, 64]),
];
/// A product and nothing else.
const fn plain(rows: usize, n: usize, k: usize, dtype: DType) -> LinearCase {
    LinearCase {
        rows,
        n,
        k,
        epilogue: Epilogue::Store,
        dtype,
        to_f32: true,
        has_bias: false,
    }
}

/// Tiles multiply so many.
const MANY_ROWS: usize = 257;

pub(super) fn a_linears_bits_do_not_depend_on_the_number_of_rows<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        for (n, k, counts) in FEW_ROWS {
            // In f32 there is one kernel.
            if n > 48 && dtype == DType::F32 {
                continue;
            }
            let bits = |rows: usize| -> Vec<u32> {
                let case = plain(rows, n, k, dtype);
                let out = linear(&subject, &case);
                out.iter().map(|y| y.to_bits()).collect()
            };
            let all = bits(MANY_ROWS);
            for rows in counts {
                let is_same = bits(*rows) == all[..rows * n];
                assert!(is_same, "{dtype:?} {rows} rows of {k} to {n} differ");
            }
        }
    }
}

/// By each kernel: for few rows, and for more than one tile of them.
pub(super) fn ranks_with_some_of_k_add_up_to_the_bits_of_one<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        for (n, k, counts) in [
            (48, 256, [1, 20, MANY_ROWS]),
            (24, 1280, [5, 64, MANY_ROWS]),
            (1160, 512, [8, 16, 17]),
        ] {
            let mut of_first_rows: Option<Vec<f32>> = None;
            for rows in counts.into_iter().rev() {
                let case = plain(rows, n, k, dtype);
                let whole = linear_by_ranks(&subject, &case, 1);
                assert_close(&whole, &linear(&reference(), &case), 2e-6, &case);
                for tp_size in [2, 4, 8] {
                    let sum = linear_by_ranks(&subject, &case, tp_size);
                    assert_same_bits(&sum, &whole, &format!("tp {tp_size}: {case:?}"));
                }
                let most = of_first_rows.get_or_insert_with(|| whole.clone());
                assert_same_bits(&whole, &most[..rows * n], &format!("{case:?}"));
            }
        }
    }
}

fn assert_same_bits(found: &[f32], expected: &[f32], what: &str) {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert!(bits(found) == bits(expected), "bits differ, {what}");
}
