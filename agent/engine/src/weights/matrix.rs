//! A matrix of a model file on its way to a backend: its rows may be reordered, and what they need goes with them.

use super::tensor_view::TensorView;
use half::{bf16, f16};
use pd_compute::{WeightFormat, WeightSource, e4m3};
use std::borrow::Cow;
use std::ops::Range;

/// A matrix ready to be packed: rows in the order the model wants them.
#[derive(Debug)]
pub struct Matrix<'a> {
    name: &'a str,
    format: WeightFormat,
    rows: usize,
    columns: usize,
    bytes: Cow<'a, [u8]>,
    /// Of the rows, as a backend's source has them.
    scales: Vec<f32>,
    /// The tensor that the scales are from.
    scales_name: Option<&'a str>,
}

// === impl Matrix ===

impl<'a> Matrix<'a> {
    /// The values of a tensor in their order, or in another one.
    pub(super) fn unscaled(tensor: &TensorView<'a>, bytes: Cow<'a, [u8]>) -> Self {
        Self {
            name: tensor.name,
            format: tensor.format,
            rows: tensor.rows,
            columns: tensor.columns,
            bytes,
            scales: Vec::new(),
            scales_name: None,
        }
    }

    /// The values of a tensor of E4M3, whose rows have these scales.
    pub(super) fn scaled(tensor: &TensorView<'a>, scales: Vec<f32>, scales_name: &'a str) -> Self {
        Self {
            scales,
            scales_name: Some(scales_name),
            ..Self::unscaled(tensor, Cow::Borrowed(tensor.bytes))
        }
    }

    pub fn name(&self) -> &str {
        self.name
    }

    pub(super) fn format(&self) -> WeightFormat {
        self.format
    }

    /// Of all tensors that it is made of.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        [self.name].into_iter().chain(self.scales_name)
    }

    pub fn source(&self) -> WeightSource<'_> {
        WeightSource {
            name: self.name,
            format: self.format,
            n: self.rows,
            k: self.columns,
            bytes: &self.bytes,
            scales: &self.scales,
        }
    }

    /// Some of its rows.
    pub fn part(&self, rows: Range<usize>) -> WeightSource<'_> {
        let (row_bytes, scales) = (self.bytes.len() / self.rows, self.scales_per_row());
        WeightSource {
            n: rows.len(),
            bytes: &self.bytes[rows.start * row_bytes..rows.end * row_bytes],
            scales: &self.scales[rows.start * scales..rows.end * scales],
            ..self.source()
        }
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.scales.as_slice())
    }

    fn scales_per_row(&self) -> usize {
        self.scales.len() / self.rows
    }

    /// Some of its rows, in this order.
    pub fn rows(&self, order: impl Iterator<Item = usize>) -> Matrix<'a> {
        let (row_bytes, per_row) = (self.bytes.len() / self.rows, self.scales_per_row());
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut scales = Vec::with_capacity(self.scales.len());
        for row in order {
            bytes.extend_from_slice(&self.bytes[row * row_bytes..][..row_bytes]);
            scales.extend_from_slice(&self.scales[row * per_row..][..per_row]);
        }
        Matrix {
            rows: bytes.len() / row_bytes,
            bytes: Cow::Owned(bytes),
            scales,
            ..*self
        }
    }

    /// The same values as f32 where they are bytes with scales, each product rounded once; else itself.
    pub fn expanded(self) -> Self {
        let WeightFormat::F8E4M3 { scale_len } = self.format else {
            return self;
        };
        let per_row = self.scales_per_row();
        let codes = self.bytes.chunks_exact(self.columns).enumerate();
        let values = codes.flat_map(|(row, codes)| {
            let scales = &self.scales[row * per_row..][..per_row];
            let blocks = codes.chunks(scale_len.get()).zip(scales);
            blocks
                .flat_map(|(codes, scale)| codes.iter().map(move |code| e4m3::value(*code) * scale))
        });
        Self {
            format: WeightFormat::F32,
            bytes: Cow::Owned(values.flat_map(f32::to_le_bytes).collect()),
            scales: Vec::new(),
            ..self
        }
    }

    /// Some of its columns, each as a row of the elements that it has in some of the rows.
    ///
    /// # Panics
    /// When values lie in blocks or have scales.
    pub fn columns(&self, rows: Range<usize>, columns: impl Iterator<Item = usize>) -> Matrix<'a> {
        let is_plain = self.format.block_len() == 1 && self.scales.is_empty();
        assert!(is_plain, "columns of {}", self.name);
        let element = self.format.block_bytes();
        let row_bytes = self.columns * element;
        let rows = &self.bytes[rows.start * row_bytes..rows.end * row_bytes];
        let len = rows.len() / row_bytes;
        let mut bytes = Vec::with_capacity(columns.size_hint().0 * len * element);
        for column in columns {
            let elements = rows.chunks_exact(row_bytes);
            elements.for_each(|row| bytes.extend(&row[column * element..][..element]));
        }
        Matrix {
            rows: bytes.len() / (len * element),
            columns: len,
            bytes: Cow::Owned(bytes),
            scales: Vec::new(),
            ..*self
        }
    }

    /// Some of its columns, of all rows.
    ///
    /// # Panics
    /// When values lie in blocks or have scales.
    pub fn column_range(&self, columns: Range<usize>) -> Matrix<'a> {
        let is_plain = self.format.block_len() == 1 && self.scales.is_empty();
        assert!(is_plain, "columns of {}", self.name);
        let element = self.format.block_bytes();
        let rows = self.bytes.chunks_exact(self.columns * element);
        let part = columns.start * element..columns.end * element;
        let parts: Vec<&[u8]> = rows.map(|row| &row[part.clone()]).collect();
        Matrix {
            columns: columns.len(),
            bytes: Cow::Owned(parts.concat()),
            scales: Vec::new(),
            ..*self
        }
    }

    /// Undoes an order of a head's rows in which the pairs of a rotation are neighbours: dimension i comes to lie
    /// half of the rotated ones before its partner. The first `unrotated` rows of a head stay. Rows move whole, so
    /// quantised values do not change.
    ///
    /// # Panics
    /// If the heads are not alike, or have no pairs.
    pub fn unpermuted(&self, heads: usize, unrotated: usize) -> Self {
        let head_dim = self.rows / heads;
        let half = (head_dim - unrotated) / 2;
        assert_eq!(self.rows, heads * (unrotated + 2 * half), "{}", self.name);
        let from = |row: usize| match (row % head_dim).checked_sub(unrotated) {
            None => row,
            Some(dim) => row - row % head_dim + unrotated + (dim % half) * 2 + dim / half,
        };
        self.rows((0..self.rows).map(from))
    }

    /// The values, or `None` for a quantised format.
    pub(super) fn to_f32(&self) -> Option<Vec<f32>> {
        let bytes = &self.bytes;
        let pairs = || bytes.as_chunks::<2>().0.iter();
        let values = match self.format {
            WeightFormat::F32 => {
                let words = bytes.as_chunks::<4>().0.iter();
                words.map(|word| f32::from_le_bytes(*word)).collect()
            }
            WeightFormat::F16 => pairs()
                .map(|pair| f16::from_le_bytes(*pair).to_f32())
                .collect(),
            WeightFormat::BF16 => pairs()
                .map(|pair| bf16::from_le_bytes(*pair).to_f32())
                .collect(),
            WeightFormat::F8E4M3 { .. }
            | WeightFormat::Q8_0
            | WeightFormat::Q4_0
            | WeightFormat::Q4_1
            | WeightFormat::Q4K
            | WeightFormat::Q6K
            | WeightFormat::Mxfp4 => return None,
        };
        Some(values)
    }
}
