//! One entry of the table of tensors, and its range in the file.

use super::ParseError;
use super::reader::Reader;
use pd_compute::WeightFormat;

/// Dimensions of a tensor in the format.
const MAX_DIMS: u32 = 4;
/// Smallest record of a tensor: empty name, no dimensions, type, offset.
pub(super) const MIN_TENSOR_BYTES: usize = 8 + 4 + 4 + 8;

#[derive(Debug)]
pub(super) struct TensorInfo {
    pub(super) format: WeightFormat,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// In the file: `[start, end)`.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A tensor's record, before its format and its range have been checked.
pub(super) struct Record {
    /// Its position.
    pub(super) at: usize,
    pub(super) name: String,
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

// === impl Record ===

impl Record {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let at = reader.offset();
        let name = reader.string("a tensor's name")?.to_owned();
        let num_dims = reader.u32("a tensor's number of dimensions")?;
        if num_dims > MAX_DIMS {
            let field = "a tensor's number of dimensions";
            return Err(reader.invalid(4, field, num_dims, "at most 4"));
        }
        let mut dims = Vec::with_capacity(MAX_DIMS as usize);
        for _ in 0..num_dims {
            dims.push(reader.u64("a tensor's dimension")?);
        }
        Ok(Self {
            at,
            name,
            dims,
            kind: reader.u32("a tensor's type")?,
            offset: reader.u64("a tensor's offset")?,
        })
    }

    /// Turns the record into a range of the file.
    pub(super) fn locate(
        &self,
        data: u64,
        alignment: u64,
        file_len: usize,
    ) -> Result<TensorInfo, ParseError> {
        let wrong = |reason: String| ParseError::Tensor {
            name: self.name.clone(),
            offset: self.at,
            reason,
        };
        let format = format_of(self.kind).ok_or_else(|| ParseError::TensorType {
            name: self.name.clone(),
            kind: self.kind,
        })?;
        let size = |dim: &u64| usize::try_from(*dim).ok();
        let columns = self.dims.first().map_or(Some(1), size);
        let rows = self
            .dims
            .iter()
            .skip(1)
            .try_fold(1usize, |rows, dim| rows.checked_mul(size(dim)?));
        let (Some(rows), Some(columns)) = (rows, columns) else {
            return Err(wrong(format!("its dimensions {:?} overflow", self.dims)));
        };
        let row_bytes = format.row_bytes(columns).ok_or_else(|| {
            wrong(format!(
                "rows of {columns} values are no whole number of {format:?} blocks"
            ))
        })?;
        if !self.offset.is_multiple_of(alignment) {
            return Err(wrong(format!(
                "its offset {} is not a multiple of {alignment}",
                self.offset
            )));
        }
        let start = data
            .checked_add(self.offset)
            .and_then(|start| usize::try_from(start).ok());
        let len = rows.checked_mul(row_bytes);
        let end = start.and_then(|start| start.checked_add(len?));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => Ok(TensorInfo {
                format,
                rows,
                columns,
                start,
                end,
            }),
            _ => Err(wrong(format!(
                "{rows}×{columns} {format:?} at data offset {} end beyond the file's {file_len} \
                 bytes; it is truncated or corrupt, fetch it again",
                self.offset
            ))),
        }
    }
}

/// The numbers of ggml's types.
const fn format_of(kind: u32) -> Option<WeightFormat> {
    Some(match kind {
        0 => WeightFormat::F32,
        1 => WeightFormat::F16,
        2 => WeightFormat::Q4_0,
        3 => WeightFormat::Q4_1,
        8 => WeightFormat::Q8_0,
        12 => WeightFormat::Q4K,
        14 => WeightFormat::Q6K,
        30 => WeightFormat::BF16,
        _ => return None,
    })
}
