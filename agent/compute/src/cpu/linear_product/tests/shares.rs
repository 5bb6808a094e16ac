//! Products whose k is cut into eight shares: the documented tree, and the bits of ranks that have some of the shares.

use super::{FORMATS, Matrix, assert_same_bits, isas, mk_values, run};
use crate::cpu::isa::Isa;
use crate::cpu::pack::{PackTarget, PackedLinear, layout, serially};
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::k_order::{K_SHARES, KOrder, KShares, Packing};
use crate::ops::Epilogue;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::ops::Range;

impl Matrix {
    /// Some of its columns, as a rank has them; `None` where they are cut within a stored block.
    fn columns(&self, columns: &Range<usize>) -> Option<Self> {
        let unit = columns_unit(self.format);
        let whole = columns.start.is_multiple_of(unit) && columns.end.is_multiple_of(unit);
        if !whole {
            return None;
        }
        let of_rows = |row_len: usize, part: Range<usize>| {
            (0..self.n).flat_map(move |row| row * row_len + part.start..row * row_len + part.end)
        };
        let bytes = |k: usize| self.format.row_bytes(k).expect("whole blocks");
        let scales = |k: usize| self.format.scales_per_row(k);
        let part = bytes(columns.start)..bytes(columns.end);
        let of_scales = scales(columns.start)..scales(columns.end);
        Some(Self {
            format: self.format,
            n: self.n,
            k: columns.len(),
            bytes: of_rows(bytes(self.k), part)
                .map(|i| self.bytes[i])
                .collect(),
            scales: of_rows(scales(self.k), of_scales)
                .map(|i| self.scales[i])
                .collect(),
            values: of_rows(self.k, columns.clone())
                .map(|i| self.values[i])
                .collect(),
        })
    }
}

/// Columns that share a stored block or a scale.
fn columns_unit(format: WeightFormat) -> usize {
    if let WeightFormat::F8E4M3 { scale_len } = format {
        scale_len.get()
    } else {
        format.block_len()
    }
}

/// A product of a matrix and some rows, whole and in parts.
struct Case {
    matrix: Matrix,
    x: Vec<f32>,
    rows: usize,
    dtype: ComputeDtype,
    threads: usize,
}

/// Adds neighbours until one is left.
fn add_pairs(mut sums: Vec<Vec<f32>>) -> Vec<f32> {
    while sums.len() > 1 {
        let add = |pair: &[Vec<f32>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| a + b).collect();
        sums = sums.chunks_exact(2).map(add).collect();
    }
    sums.remove(0)
}

// === impl Case ===

impl Case {
    /// Of `units` times eight shares as short as the format allows.
    fn mk(format: WeightFormat, units: usize, (n, rows): (usize, usize), seed: u64) -> Self {
        let unit = layout::k_unit(format) * K_SHARES;
        // Whole blocks are what can be stored.
        let k = (unit * units).next_multiple_of(unit.max(format.block_len()));
        let mut rng = StdRng::seed_from_u64(seed);
        Self {
            matrix: Matrix::mk(format, n, k, &mut rng),
            x: mk_values(rows * k, &mut rng),
            rows,
            dtype: ComputeDtype::F32,
            threads: 1 + units % 3,
        }
    }

    fn multiply(&self, matrix: &Matrix, x: &[f32], shares: KShares, isa: Isa) -> Vec<f32> {
        let packing = Packing::Joined(KOrder::Tree(shares));
        let weight = PackedLinear::pack(
            &[matrix.source()],
            packing,
            PackTarget::any(self.dtype),
            &serially,
        )
        .expect("a matrix that fits");
        assert_eq!(weight.order(), KOrder::Tree(shares));
        run(&weight, x, self.rows, Epilogue::Store, isa, self.threads)
    }

    fn whole(&self, isa: Isa) -> Vec<f32> {
        self.multiply(&self.matrix, &self.x, KShares::All, isa)
    }

    /// The sum of what each of `tp_size` ranks makes of its columns, if blocks are whole on them.
    fn by_ranks(&self, tp_size: usize, isa: Isa) -> Option<Vec<f32>> {
        let k = self.matrix.k;
        let of_rank = k / tp_size;
        let shares = KShares::of_rank(tp_size).expect("a power of two, eight at most");
        let sums: Option<Vec<_>> = (0..tp_size)
            .map(|rank| {
                let columns = rank * of_rank..(rank + 1) * of_rank;
                let matrix = self.matrix.columns(&columns)?;
                let x = self.x.chunks_exact(k).flat_map(|x| &x[columns.clone()]);
                let x: Vec<f32> = x.copied().collect();
                Some(self.multiply(&matrix, &x, shares, isa))
            })
            .collect();
        sums.map(add_pairs)
    }

    /// As documented, in f32.
    fn expected(&self) -> Vec<f32> {
        let Matrix { n, k, .. } = self.matrix;
        let share = |share: usize| {
            let ks = share * k / K_SHARES..(share + 1) * k / K_SHARES;
            let rows = self.x.chunks_exact(k);
            rows.flat_map(|x| {
                (0..n)
                    .map(|row| self.matrix.dot_of(row, x, &ks))
                    .collect::<Vec<_>>()
            })
            .collect()
        };
        add_pairs((0..K_SHARES).map(share).collect())
    }
}

fn any_rows() -> impl Strategy<Value = usize> {
    prop_oneof![1..16_usize, 16..60_usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn shares_of_k_are_chains_that_a_tree_adds(
        format in prop::sample::select(FORMATS.to_vec()),
        (units, n, rows) in (1..12_usize, 1..100_usize, any_rows()),
        seed in any::<u64>(),
    ) {
        let case = Case::mk(format, units, (n, rows), seed);
        let expected = case.expected();
        for isa in isas() {
            assert_same_bits(&format!("{isa:?} {format:?}"), &case.whole(isa), &expected);
        }
    }

    #[test]
    fn ranks_with_some_of_k_add_up_to_the_bits_of_one(
        format in prop::sample::select(FORMATS.to_vec()),
        bfloat16 in any::<bool>(),
        (units, n, rows) in (1..6_usize, 1..70_usize, any_rows()),
        seed in any::<u64>(),
    ) {
        // Blocks are whole on each of eight ranks, and scales.
        let wanted = columns_unit(format).div_ceil(layout::k_unit(format));
        // In bfloat16 floats lie in pairs.
        let units = units * wanted * if bfloat16 && format.block_len() == 1 { 2 } else { 1 };
        let mut case = Case::mk(format, units, (n, rows), seed);
        if bfloat16 {
            case.dtype = ComputeDtype::BF16;
        }
        for isa in isas() {
            let whole = case.whole(isa);
            for tp_size in [2, 4, 8] {
                let sum = case.by_ranks(tp_size, isa).expect("whole blocks");
                assert_same_bits(&format!("{isa:?} {format:?} tp {tp_size}"), &sum, &whole);
            }
        }
    }
}

/// Where eight ranks cannot have whole blocks, two can, and the order within a block is the same.
#[test]
fn shares_within_a_block_are_those_of_ranks_with_whole_ones() {
    for format in [WeightFormat::Q4K, WeightFormat::Q6K] {
        let case = Case::mk(format, 2, (40, 5), 9);
        assert_eq!(case.matrix.k, 512);
        for isa in isas() {
            let whole = case.whole(isa);
            let two = case.by_ranks(2, isa).expect("a block each");
            assert_same_bits(&format!("{isa:?} {format:?}"), &two, &whole);
            assert!(case.by_ranks(4, isa).is_none());
        }
    }
}

/// A row that is computed alone has the bits of the same row among others.
#[test]
fn a_tree_does_not_depend_on_the_number_of_rows() {
    for format in FORMATS {
        let mut case = Case::mk(format, 3, (70, 300), 4);
        for isa in isas() {
            case.rows = 300;
            let together = case.whole(isa);
            case.rows = 1;
            let k = case.matrix.k;
            for (x, expected) in case
                .x
                .chunks_exact(k)
                .zip(together.chunks_exact(70))
                .step_by(41)
            {
                let alone = case.multiply(&case.matrix, x, KShares::All, isa);
                assert_same_bits(&format!("{isa:?} {format:?}"), &alone, expected);
            }
        }
    }
}
