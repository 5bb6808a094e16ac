//! Activations in the order tiles read them: tile by tile, `[k][rows of the tile]`, or as the tile's operand says.
//!
//! A tile then reads one forward stream at any stride of `x` (rows 4 KiB apart would share
//! one set of the cache). A single f32 row is already in that order and stays where it is.

use super::LinearProduct;
use crate::cpu::linear_product::RunId;
use crate::cpu::linear_product::kernels::shares::KTree;
use crate::cpu::linear_product::kernels::{
    Heights, LinearKernels, Operand, amx, avx512_bf16, quantized,
};
use crate::cpu::pack::AlignedBytes;
use half::bf16;
use std::arch::x86_64::{_MM_TRANSPOSE4_PS, _mm_loadu_ps, _mm_storeu_ps};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Activations {
    rows: Range<usize>,
    /// What the rows are of, where others multiply them too.
    run: Option<RunId>,
    arranged: Option<Form>,
    tiles: Vec<TilePlace>,
    /// f32 or words, in whole cache lines: a tile row that lies in two is loaded twice.
    values: AlignedBytes,
    /// Of the rows of a tile, each after the other.
    words: Vec<f32>,
}

/// How a segment's tiles have their activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) operand: Operand,
    pub(super) heights: Heights,
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
            arranged: None,
            tiles: Vec::new(),
            values: AlignedBytes::zeroed(0).expect("an empty allocation succeeds"),
            words: Vec::new(),
        }
    }

    /// `rows` are next. Forgets what was arranged, unless it was these of the same run.
    pub(super) fn begin(&mut self, rows: &Range<usize>, run: Option<RunId>) {
        if run.is_some() && self.run == run && self.rows == *rows {
            return;
        }
        self.run = run;
        self.rows = rows.clone();
        self.arranged = None;
    }

    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Arranges the rows begun with, unless they are arranged in this form already.
    pub(super) fn arrange(
        &mut self,
        product: &LinearProduct<'_>,
        kernels: &LinearKernels,
        form: Form,
        tree: KTree,
    ) {
        if self.arranged == Some(form) {
            return;
        }
        self.arranged = Some(form);
        let k = tree.len;
        let depth = match form.operand {
            Operand::F32 | Operand::RoundedF32 => k,
            Operand::Bf16Pairs => k.div_ceil(2),
            Operand::Bf16Tiles => amx::row_words(tree),
            Operand::Quantized => quantized::row_words(k),
        };
        self.place_tiles(form.heights, depth);
        if self.is_in_place() {
            return;
        }
        let len: usize = self.tiles.iter().map(|tile| tile.height * depth).sum();
        if self.values.as_slice().len() < len * size_of::<f32>() {
            // Less than the activations that they are of, which were allocated.
            self.values =
                AlignedBytes::zeroed(len * size_of::<f32>()).expect("memory for arranged rows");
        }
        let values: &mut [f32] = bytemuck::cast_slice_mut(self.values.as_mut_slice());
        for tile in &self.tiles {
            let rows = Rows {
                product,
                first: tile.first,
                count: tile.rows,
                depth,
            };
            let out = &mut values[tile.offset..][..tile.height * depth];
            match form.operand {
                Operand::F32 => rows.interleave(tile.height, out),
                Operand::RoundedF32 => {
                    rows.interleave(tile.height, out);
                    for v in out {
                        *v = bf16::from_f32(*v).to_f32();
                    }
                }
                Operand::Bf16Pairs => {
                    // SAFETY: as below; pairs are multiplied where there is AVX512-BF16.
                    let pair_up =
                        |x: &[f32], out: &mut [f32]| unsafe { avx512_bf16::pair_up(x, out) };
                    rows.interleave_words(tile.height, &mut self.words, out, pair_up);
                }
                Operand::Bf16Tiles => {
                    for row in 0..tile.rows {
                        let out = &mut out[row * amx::STEP_PAIRS..];
                        // SAFETY: tiles are multiplied where there is AMX, and what it needs.
                        unsafe { amx::arrange(rows.row(row), tree, tile.height, out) };
                    }
                }
                Operand::Quantized => {
                    // SAFETY: the product's instruction set was checked.
                    let quantize =
                        |x: &[f32], out: &mut [f32]| unsafe { (kernels.quantize)(x, out) };
                    rows.interleave_words(tile.height, &mut self.words, out, quantize);
                }
            }
        }
    }

    /// Whether the tiles lie in the product's own memory: a row of f32 is in order as it is.
    fn is_in_place(&self) -> bool {
        self.rows.len() == 1
            && self
                .arranged
                .is_some_and(|form| form.operand == Operand::F32)
    }

    /// As few tiles as the highest allows, of heights as even as possible.
    fn place_tiles(&mut self, heights: Heights, depth: usize) {
        self.tiles.clear();
        let (rows, count) = (self.rows.len(), self.rows.len().div_ceil(heights.highest()));
        let mut offset = 0;
        for i in 0..count {
            let (start, end) = (rows * i / count, rows * (i + 1) / count);
            let height = heights.fitting(end - start);
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
        let in_place = self.is_in_place();
        self.tiles.iter().map(move |tile| {
            let x = if in_place {
                product.x_row(tile.first).as_ptr()
            } else {
                bytemuck::cast_slice::<_, f32>(self.values.as_slice())[tile.offset..].as_ptr()
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
    /// Words of an arranged row.
    depth: usize,
}

impl Rows<'_> {
    fn row(&self, row: usize) -> &[f32] {
        self.product.x_row(self.first + row)
    }

    /// Writes `[k][height]`.
    fn interleave(&self, height: usize, out: &mut [f32]) {
        interleave(|row| self.row(row), self.count, height, out);
    }

    /// Writes `[depth][height]` of what `write` makes of each row.
    fn interleave_words(
        &self,
        height: usize,
        words: &mut Vec<f32>,
        out: &mut [f32],
        write: impl Fn(&[f32], &mut [f32]),
    ) {
        if height == 1 {
            return write(self.row(0), out);
        }
        let depth = self.depth;
        words.resize(depth * self.count, 0.0);
        for (row, words) in words.chunks_exact_mut(depth.max(1)).enumerate() {
            write(self.row(row), words);
        }
        let row = |row: usize| &words[row * depth..][..depth];
        interleave(row, self.count, height, out);
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
