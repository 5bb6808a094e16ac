//! Activations in the order tiles read them: tile by tile, `[k][rows of the tile]`.
//!
//! A tile then reads one forward stream at any stride of `x` (rows 4 KiB apart would share
//! one set of the cache). A single f32 row is already in that order and stays where it is.

use super::LinearProduct;
use crate::cpu::linear_product::RunId;
use crate::cpu::linear_product::kernels::LinearKernels;
use half::bf16;
use std::arch::x86_64::{_MM_TRANSPOSE4_PS, _mm_loadu_ps, _mm_storeu_ps};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Activations {
    rows: Range<usize>,
    /// What the rows are of, where others multiply them too.
    run: Option<RunId>,
    highest_tile: usize,
    arranged: Option<Order>,
    tiles: Vec<TilePlace>,
    values: Vec<f32>,
    /// Of the rows of a tile, in pairs.
    words: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The product's own memory: one row.
    InPlace,
    F32,
    /// f32 with the values of bfloat16.
    RoundedF32,
    /// Words of two bfloat16, the even k low; a last odd k is paired with 0.
    Bf16Pairs,
}

#[derive(Clone, Copy, Debug)]
struct TilePlace {
    first: usize,
    rows: usize,
    height: usize,
    offset: usize,
}

/// Rows `[first, first + rows)` of a product, arranged for a tile of `height`; the rows that the
/// tile has too many are zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowTile {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) height: usize,
    pub(super) x: *const f32,
}

impl Activations {
    pub(super) fn new() -> Self {
        Self {
            rows: 0..0,
            run: None,
            highest_tile: 1,
            arranged: None,
            tiles: Vec::new(),
            values: Vec::new(),
            words: Vec::new(),
        }
    }

    /// `rows` are next. Forgets what was arranged, unless it was these of the same run.
    pub(super) fn begin(&mut self, rows: &Range<usize>, highest_tile: usize, run: Option<RunId>) {
        if run.is_some() && self.run == run && self.rows == *rows {
            return;
        }
        self.run = run;
        self.rows = rows.clone();
        self.highest_tile = highest_tile;
        self.arranged = None;
    }

    pub(super) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Arranges the rows begun with, unless they are in the wanted order already.
    pub(super) fn arrange(
        &mut self,
        product: &LinearProduct<'_>,
        kernels: &LinearKernels,
        rounded: bool,
        pairs: bool,
    ) {
        let order = match (rounded, pairs) {
            (_, true) => Order::Bf16Pairs,
            (true, false) => Order::RoundedF32,
            (false, false) if self.rows.len() == 1 => Order::InPlace,
            (false, false) => Order::F32,
        };
        if self.arranged == Some(order) {
            return;
        }
        self.arranged = Some(order);
        let k = product.weight.k();
        let depth = if pairs { k.div_ceil(2) } else { k };
        self.place_tiles(kernels, depth);
        let len = self.tiles.iter().map(|tile| tile.height * depth).sum();
        if order != Order::InPlace && self.values.len() < len {
            self.values.resize(len, 0.0);
        }
        for tile in &self.tiles {
            let rows = Rows {
                product,
                first: tile.first,
                count: tile.rows,
                k,
            };
            match order {
                Order::InPlace => {}
                Order::F32 => rows.interleave(tile.height, &mut self.values[tile.offset..]),
                Order::RoundedF32 => {
                    let out = &mut self.values[tile.offset..][..tile.height * depth];
                    rows.interleave(tile.height, out);
                    for v in out {
                        *v = bf16::from_f32(*v).to_f32();
                    }
                }
                Order::Bf16Pairs => {
                    let out = &mut self.values[tile.offset..];
                    rows.interleave_pairs(tile.height, &mut self.words, out);
                }
            }
        }
    }

    /// As few tiles as the highest allows, of heights as even as possible.
    fn place_tiles(&mut self, kernels: &LinearKernels, depth: usize) {
        self.tiles.clear();
        let (rows, count) = (self.rows.len(), self.rows.len().div_ceil(self.highest_tile));
        let mut offset = 0;
        for i in 0..count {
            let (start, end) = (rows * i / count, rows * (i + 1) / count);
            let height = kernels.fitting_tile(end - start);
            let first = self.rows.start + start;
            self.tiles.push(TilePlace {
                first,
                rows: end - start,
                height,
                offset,
            });
            offset += height * depth;
        }
    }

    /// The arranged tiles. `product` is the one they were arranged for.
    pub(super) fn tiles(&self, product: &LinearProduct<'_>) -> impl Iterator<Item = RowTile> {
        let in_place = self.arranged == Some(Order::InPlace);
        self.tiles.iter().map(move |tile| {
            let x = if in_place {
                product.x_row(tile.first).as_ptr()
            } else {
                self.values[tile.offset..].as_ptr()
            };
            RowTile {
                first: tile.first,
                rows: tile.rows,
                height: tile.height,
                x,
            }
        })
    }
}

/// A tile's rows as the caller has them.
struct Rows<'a> {
    product: &'a LinearProduct<'a>,
    first: usize,
    count: usize,
    k: usize,
}

impl Rows<'_> {
    fn row(&self, row: usize) -> &[f32] {
        self.product.x_row(self.first + row)
    }

    /// Writes `[k][height]`.
    fn interleave(&self, height: usize, out: &mut [f32]) {
        let out = &mut out[..height * self.k];
        interleave(|row| self.row(row), self.count, height, out);
    }

    /// Writes `[k.div_ceil(2)][height]` words, by way of rows of words.
    fn interleave_pairs(&self, height: usize, words: &mut Vec<f32>, out: &mut [f32]) {
        let depth = self.k.div_ceil(2);
        words.resize(depth * self.count, 0.0);
        for (row, words) in words.chunks_exact_mut(depth).enumerate() {
            pair_up(self.row(row), words);
        }
        let row = |row: usize| &words[row * depth..][..depth];
        interleave(row, self.count, height, &mut out[..height * depth]);
    }
}

/// Each two values as bfloat16 in a word, the first one low; a last one alone with 0.
fn pair_up(values: &[f32], words: &mut [f32]) {
    let bits = |value: f32| u32::from(bf16::from_f32(value).to_bits());
    let (pairs, last) = values.as_chunks::<2>();
    for (word, [even, odd]) in words.iter_mut().zip(pairs) {
        *word = f32::from_bits(bits(*even) | bits(*odd) << 16);
    }
    if let ([last], Some(word)) = (last, words.last_mut()) {
        *word = f32::from_bits(bits(*last));
    }
}

/// Writes `count` rows as columns of `height`; columns beyond them are 0.
fn interleave<'a>(row: impl Fn(usize) -> &'a [f32], count: usize, height: usize, out: &mut [f32]) {
    let fours = count / 4 * 4;
    for first in (0..fours).step_by(4) {
        interleave_four([0, 1, 2, 3].map(|i| row(first + i)), first, height, out);
    }
    for column in fours..height {
        let values = out.iter_mut().skip(column).step_by(height);
        if column < count {
            values.zip(row(column)).for_each(|(v, x)| *v = *x);
        } else {
            values.for_each(|v| *v = 0.0);
        }
    }
}

/// Columns `[column, column + 4)` of `[k][height]`, four k at a time.
fn interleave_four(rows: [&[f32]; 4], column: usize, height: usize, out: &mut [f32]) {
    let k = rows[0].len();
    assert!(
        column + 4 <= height && out.len() == k * height,
        "four columns of {height}"
    );
    for i in (0..k / 4 * 4).step_by(4) {
        // SAFETY: four values from `i` are in each row, and four columns from `column` in each of
        // the four rows of `out` from `i` (asserted above); SSE is part of x86-64.
        unsafe {
            let mut v = rows.map(|row| _mm_loadu_ps(row.as_ptr().add(i)));
            let [a, b, c, d] = &mut v;
            _MM_TRANSPOSE4_PS(a, b, c, d);
            for (j, v) in v.into_iter().enumerate() {
                _mm_storeu_ps(out.as_mut_ptr().add((i + j) * height + column), v);
            }
        }
    }
    for i in k / 4 * 4..k {
        for (v, row) in out[i * height + column..].iter_mut().zip(rows) {
            *v = row[i];
        }
    }
}
