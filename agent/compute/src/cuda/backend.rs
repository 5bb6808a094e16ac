//! CUDA's [`Backend`]: every method checks its request and enqueues kernels for it.

use super::export::{CudaMemory, EXPORT_GRANULE};
use super::handle::CudaBackend;
use super::memory::{CudaBuffer, MemoryKind};
use super::ops::{
    attn_latent, attn_paged, causal_conv, copy_pages, copy_states, embed, gated_norm, gather_rows,
    gdn_scan, head_linear, linear, mla_prep, moe_experts, moe_finish, moe_route, qkv_prep,
    rms_norm, rope_table, sample,
};
use super::pinned::BLOCK_BYTES_MAX;
use super::shared::Shared;
use super::ticket::CudaTicket;
use super::weights::{self, CudaEmbedding, CudaExperts, CudaLinear};
use crate::buffer::DeviceBuffer;
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::export::{ExportHandle, MemoryExport, Reach};
use crate::k_order::Packing;
use crate::ops::{
    AttnPaged, Backend, CausalConv, CopyPages, CopyStates, Embed, Epilogue, ExpertSource,
    GatedNorm, GatherRows, GdnScan, HeadLinear, Linear, MlaPrep, MoeExperts, MoeFinish, MoeRoute,
    OpFeature, OpNeeds, QkvPrep, RmsNorm, RopeTable, Sample,
};
use crate::weight::WeightSource;
use bytemuck::NoUninit;

impl Backend for CudaBackend {
    fn activation_dtype(&self) -> DType {
        self.shared.config.dtype
    }

    fn expert_rows_max(&self) -> usize {
        // As many as give experts work for as long as reading them takes: of 8,192 rows, each of 256 experts has 256.
        8192
    }

    fn check_ops(&self, needs: &OpNeeds) -> Result<(), ComputeError> {
        let own = self.shared.config.dtype;
        let has_latents = needs.features.contains(&OpFeature::LatentAttention);
        needs.check_against(
            "CUDA",
            |feature| feature != OpFeature::LongDeltaKeys,
            |kv| {
                if kv.dtype != own && kv.dtype != DType::F8E4M3 {
                    let said = format!("it keeps KV as its activations, in {own:?}, or in E4M3");
                    Err(said)
                } else if has_latents && !attn_latent::takes_head_dim(kv.head_dim) {
                    Err("latents must be multiples of 8 up to 768".to_owned())
                } else if !has_latents && !attn_paged::takes_head_dim(kv.head_dim) {
                    Err("heads must be multiples of 8 up to 256".to_owned())
                } else {
                    Ok(())
                }
            },
        )
    }

    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<CudaBuffer, ComputeError> {
        self.alloc_in(MemoryKind::Device, name, dtype, len)
    }

    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
        _reach: Reach,
    ) -> Result<CudaBuffer, ComputeError> {
        // Whole granules, for the sake of NICs.
        let granule = EXPORT_GRANULE / dtype.size_bytes();
        let whole = self.alloc(name, dtype, len.next_multiple_of(granule))?;
        Ok(whole.slice(0..len))
    }

    fn alloc_host(&self, name: &str, dtype: DType, len: usize) -> Result<CudaBuffer, ComputeError> {
        self.alloc_in(MemoryKind::Pinned, name, dtype, len)
    }

    fn export(&self, buffer: &CudaBuffer) -> Result<MemoryExport, ComputeError> {
        if !buffer.is_whole_granules() {
            return Err(ComputeError::NotExportable {
                what: format!("{buffer:?}"),
                reason: "it was not made by alloc_exportable".to_owned(),
            });
        }
        let memory = CudaMemory::of(&self.shared.driver, buffer);
        Ok(MemoryExport {
            addr: memory.addr(),
            len_bytes: memory.len(),
            handle: ExportHandle::Cuda(memory),
        })
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        packing: Packing,
    ) -> Result<CudaLinear, ComputeError> {
        weights::pack_linear(&self.shared, parts, packing)
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<CudaEmbedding, ComputeError> {
        weights::pack_embedding(&self.shared, table)
    }

    fn pack_experts(&self, experts: &[ExpertSource<'_>]) -> Result<CudaExperts, ComputeError> {
        weights::pack_experts(&self.shared, experts)
    }

    fn reserve_linear(
        &self,
        weight: &CudaLinear,
        epilogue: Epilogue,
        rows: usize,
    ) -> Result<(), ComputeError> {
        let words = linear::scratch_words(&self.shared, weight, epilogue, rows);
        if words > 0 {
            self.shared.gate_up.reserve(&self.shared.driver, words)?;
        }
        Ok(())
    }

    fn upload<T: NoUninit>(&self, dst: &CudaBuffer, src: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(src);
        let len = bytes.len();
        assert!(len <= dst.size_bytes(), "{len} bytes exceed {dst:?}");
        self.shared.enqueue("upload", |shared| {
            let mut to = dst.addr();
            for part in bytes.chunks(BLOCK_BYTES_MAX) {
                shared.upload_with(to, part.len(), |block| block.copy_from_slice(part))?;
                to += part.len() as u64;
            }
            Ok(())
        });
    }

    fn read(&self, src: &CudaBuffer) -> CudaTicket {
        CudaTicket::start(&self.shared, src.addr(), src.size_bytes())
    }

    fn fence(&self) -> CudaTicket {
        CudaTicket::start(&self.shared, 0, 0)
    }

    fn health(&self) -> Result<(), ComputeError> {
        self.shared.fault.check()
    }

    fn kv_saturations(&self) -> u64 {
        self.shared.saturations.count()
    }

    fn replays(&self) -> bool {
        true
    }

    fn replay(&self, step: impl FnOnce()) -> bool {
        let shared = &*self.shared;
        shared.recording.begin();
        step();
        let enqueued = shared
            .recording
            .end(&shared.steps, shared.fault.check().is_ok());
        enqueued.unwrap_or_else(|error| {
            shared.fault.keep("replay", error);
            false
        })
    }

    fn embed(&self, op: Embed<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| embed::embed(shared, &op);
        self.shared.enqueue("embed", run);
    }

    fn rms_norm(&self, op: RmsNorm<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| rms_norm::rms_norm(shared, &op);
        self.shared.enqueue("rms_norm", run);
    }

    fn linear(&self, op: Linear<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| linear::linear(shared, &op);
        self.shared.enqueue("linear", run);
    }

    fn norm_linear(&self, norm: RmsNorm<'_, Self>, op: Linear<'_, Self>) {
        norm.check(self.activation_dtype());
        op.check(self.activation_dtype());
        op.check_follows(&norm);
        let run = |shared: &Shared| linear::norm_linear(shared, &norm, &op);
        self.shared.enqueue("norm_linear", run);
    }

    fn rope_table(&self, op: RopeTable<'_, Self>) {
        op.check();
        let run = |shared: &Shared| rope_table::rope_table(shared, &op);
        self.shared.enqueue("rope_table", run);
    }

    fn qkv_prep(&self, op: QkvPrep<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| qkv_prep::qkv_prep(shared, &op);
        self.shared.enqueue("qkv_prep", run);
    }

    fn attn_paged(&self, op: AttnPaged<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| attn_paged::attn_paged(shared, &op);
        self.shared.enqueue("attn_paged", run);
    }

    fn gather_rows(&self, op: GatherRows<'_, Self>) {
        op.check();
        let run = |shared: &Shared| gather_rows::gather_rows(shared, &op);
        self.shared.enqueue("gather_rows", run);
    }

    fn sample(&self, op: Sample<'_, Self>) {
        op.check();
        let run = |shared: &Shared| sample::sample(shared, &op);
        self.shared.enqueue("sample", run);
    }

    fn copy_pages(&self, op: CopyPages<'_, Self>) {
        op.check();
        let run = |shared: &Shared| copy_pages::copy_pages(shared, &op);
        self.shared.enqueue("copy_pages", run);
    }

    fn moe_route(&self, op: MoeRoute<'_, Self>) {
        op.check();
        let run = |shared: &Shared| moe_route::moe_route(shared, &op);
        self.shared.enqueue("moe_route", run);
    }

    fn moe_experts(&self, op: MoeExperts<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| moe_experts::moe_experts(shared, &op);
        self.shared.enqueue("moe_experts", run);
    }

    fn moe_finish(&self, op: MoeFinish<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| moe_finish::moe_finish(shared, &op);
        self.shared.enqueue("moe_finish", run);
    }

    fn causal_conv(&self, op: CausalConv<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| causal_conv::causal_conv(shared, &op);
        self.shared.enqueue("causal_conv", run);
    }

    fn gdn_scan(&self, op: GdnScan<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| gdn_scan::gdn_scan(shared, &op);
        self.shared.enqueue("gdn_scan", run);
    }

    fn gated_norm(&self, op: GatedNorm<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| gated_norm::gated_norm(shared, &op);
        self.shared.enqueue("gated_norm", run);
    }

    fn copy_states(&self, op: CopyStates<'_, Self>) {
        op.check();
        let run = |shared: &Shared| copy_states::copy_states(shared, &op);
        self.shared.enqueue("copy_states", run);
    }

    fn mla_prep(&self, op: MlaPrep<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| mla_prep::mla_prep(shared, &op);
        self.shared.enqueue("mla_prep", run);
    }

    fn head_linear(&self, op: HeadLinear<'_, Self>) {
        op.check(self.activation_dtype());
        let run = |shared: &Shared| head_linear::head_linear(shared, &op);
        self.shared.enqueue("head_linear", run);
    }
}
