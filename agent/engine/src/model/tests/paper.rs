//! A backend that keeps only shapes: what a model asks of its files is seen without their bytes.

use pd_compute::*;
use std::ops::Range;

/// Computes nothing.
#[derive(Clone, Debug)]
pub(super) struct Paper;

#[derive(Clone, Debug)]
pub(super) struct PaperBuffer {
    dtype: DType,
    len: usize,
}

/// Rows and columns.
#[derive(Clone, Debug)]
pub(super) struct PaperMatrix(usize, usize);

#[derive(Clone, Debug)]
pub(super) struct PaperExperts(usize, PaperMatrix);

#[derive(Debug)]
pub(super) struct PaperTicket;

impl DeviceTypes for Paper {
    type Buffer = PaperBuffer;
    type Weight = PaperMatrix;
    type Embedding = PaperMatrix;
    type Experts = PaperExperts;
    type Ticket = PaperTicket;
}

impl WeightMatrix for PaperMatrix {
    fn k_order(&self) -> KOrder {
        KOrder::Chain
    }
}

impl Matrix for PaperMatrix {
    fn n(&self) -> usize {
        self.0
    }

    fn k(&self) -> usize {
        self.1
    }
}

impl ExpertMatrices for PaperExperts {
    fn count(&self) -> usize {
        self.0
    }

    fn hidden(&self) -> usize {
        self.1.k()
    }

    fn width(&self) -> usize {
        self.1.n()
    }
}

impl Ticket for PaperTicket {
    fn wait(self) -> Result<HostBytes, ComputeError> {
        Ok(HostBytes::default())
    }

    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>> {
        None
    }
}

impl DeviceBuffer for PaperBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, range: Range<usize>) -> Self {
        Self {
            len: range.len(),
            ..self.clone()
        }
    }

    fn extent(&self) -> Extent {
        Extent {
            allocation: 0,
            bytes: 0..0,
        }
    }
}

/// Rows of all parts, of which each fills its shape.
fn matrix(parts: &[WeightSource<'_>]) -> Result<PaperMatrix, ComputeError> {
    for part in parts {
        part.row_bytes()?;
    }
    let rows = parts.iter().map(|part| part.n).sum();
    Ok(PaperMatrix(rows, parts[0].k))
}

impl Backend for Paper {
    fn activation_dtype(&self) -> DType {
        DType::F32
    }

    fn check_ops(&self, _: &OpNeeds) -> Result<(), ComputeError> {
        Ok(())
    }

    fn alloc(&self, _: &str, dtype: DType, len: usize) -> Result<PaperBuffer, ComputeError> {
        Ok(PaperBuffer { dtype, len })
    }

    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
        _: Reach,
    ) -> Result<PaperBuffer, ComputeError> {
        self.alloc(name, dtype, len)
    }

    fn alloc_host(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<PaperBuffer, ComputeError> {
        self.alloc(name, dtype, len)
    }

    fn export(&self, _: &PaperBuffer) -> Result<MemoryExport, ComputeError> {
        unreachable!("a loader exports nothing")
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        _: Packing,
    ) -> Result<PaperMatrix, ComputeError> {
        matrix(parts)
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<PaperMatrix, ComputeError> {
        matrix(&[*table])
    }

    fn pack_experts(&self, experts: &[ExpertSource<'_>]) -> Result<PaperExperts, ComputeError> {
        for expert in experts {
            matrix(&[expert.gate, expert.up])?;
            matrix(&[expert.down])?;
        }
        Ok(PaperExperts(experts.len(), matrix(&[experts[0].gate])?))
    }

    fn upload<T>(&self, _: &PaperBuffer, _: &[T]) {}

    fn read(&self, _: &PaperBuffer) -> PaperTicket {
        PaperTicket
    }

    fn fence(&self) -> PaperTicket {
        PaperTicket
    }

    fn health(&self) -> Result<(), ComputeError> {
        Ok(())
    }

    fn embed(&self, _: Embed<'_, Self>) {}
    fn rms_norm(&self, _: RmsNorm<'_, Self>) {}
    fn linear(&self, _: Linear<'_, Self>) {}
    fn rope_table(&self, _: RopeTable<'_, Self>) {}
    fn qkv_prep(&self, _: QkvPrep<'_, Self>) {}
    fn attn_paged(&self, _: AttnPaged<'_, Self>) {}
    fn gather_rows(&self, _: GatherRows<'_, Self>) {}
    fn sample(&self, _: Sample<'_, Self>) {}
    fn copy_pages(&self, _: CopyPages<'_, Self>) {}
}
