//! The CPU's [`Backend`]: every method turns its request into a command for the queue.

use super::embedding::CpuEmbedding;
use super::experts::CpuExperts;
use super::handle::CpuBackend;
use super::memory::CpuBuffer;
use super::ops::{
    attn_paged, causal_conv, copy_pages, copy_states, embed, gated_norm, gather_rows, gdn_scan,
    head_linear, linear, mla_prep, moe_experts, moe_finish, moe_route, qkv_prep, rms_norm,
    rope_table, sample,
};
use super::pack::PackedLinear;
use super::ticket::CpuTicket;
use crate::buffer::DeviceBuffer;
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::export::{MemoryExport, Reach};
use crate::k_order::Packing;
use crate::ops::{
    AttnPaged, Backend, CausalConv, CopyPages, CopyStates, Embed, ExpertSource, GatedNorm,
    GatherRows, GdnScan, HeadLinear, Linear, MlaPrep, MoeExperts, MoeFinish, MoeRoute, OpNeeds,
    QkvPrep, RmsNorm, RopeTable, Sample,
};
use crate::weight::WeightSource;
use bytemuck::NoUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Of activations.
const ACTIVATIONS: DType = DType::F32;

impl Backend for CpuBackend {
    fn activation_dtype(&self) -> DType {
        ACTIVATIONS
    }

    fn check_ops(&self, needs: &OpNeeds) -> Result<(), ComputeError> {
        needs.check_against(
            "CPU",
            |_| true,
            |kv| match kv.dtype {
                DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 => Ok(()),
                DType::U32 | DType::U8 => {
                    Err("choose float32, float16, bfloat16 or fp8_e4m3".to_owned())
                }
            },
        )
    }

    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::alloc(name, dtype, len, Reach::Process)
    }

    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
        reach: Reach,
    ) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::alloc(name, dtype, len, reach)
    }

    fn alloc_host(&self, name: &str, dtype: DType, len: usize) -> Result<CpuBuffer, ComputeError> {
        CpuBuffer::alloc(name, dtype, len, Reach::Process)
    }

    fn export(&self, buffer: &CpuBuffer) -> Result<MemoryExport, ComputeError> {
        buffer.export()
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        packing: Packing,
    ) -> Result<Arc<PackedLinear>, ComputeError> {
        let target = self.pack_target();
        let packed = self.queue.run_scoped("pack_linear", |exec| {
            PackedLinear::pack(parts, packing, target, &|count, task| {
                exec.threads.run(count, |i, _| task(i));
            })
        })?;
        Ok(Arc::new(packed?))
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<CpuEmbedding, ComputeError> {
        CpuEmbedding::pack(table)
    }

    fn pack_experts(&self, experts: &[ExpertSource<'_>]) -> Result<CpuExperts, ComputeError> {
        let target = self.pack_target();
        self.queue.run_scoped("pack_experts", |exec| {
            CpuExperts::pack(experts, target, &|count, task| {
                exec.threads.run(count, |i, _| task(i));
            })
        })?
    }

    fn upload<T: NoUninit>(&self, dst: &CpuBuffer, src: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(src);
        assert!(
            bytes.len() <= dst.size_bytes(),
            "{} bytes exceed {dst:?}",
            bytes.len()
        );
        let (dst, bytes) = (dst.dst_bytes(), bytes.to_vec());
        self.queue.push("upload", move |_| {
            // SAFETY: on the queue, where one command runs at a time.
            unsafe { dst.slice_mut(0..bytes.len()) }.copy_from_slice(&bytes);
        });
    }

    fn read(&self, src: &CpuBuffer) -> CpuTicket {
        self.queue.read(Some(src.clone()))
    }

    fn fence(&self) -> CpuTicket {
        self.queue.read(None)
    }

    fn health(&self) -> Result<(), ComputeError> {
        self.queue.health()
    }

    fn kv_saturations(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    fn embed(&self, op: Embed<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("embed", embed::embed(op));
    }

    fn rms_norm(&self, op: RmsNorm<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("rms_norm", rms_norm::rms_norm(op));
    }

    fn linear(&self, op: Linear<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("linear", linear::linear(op));
    }

    fn rope_table(&self, op: RopeTable<'_, Self>) {
        op.check();
        self.queue.push("rope_table", rope_table::rope_table(op));
    }

    fn qkv_prep(&self, op: QkvPrep<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue
            .push("qkv_prep", qkv_prep::qkv_prep(op, &self.saturated));
    }

    fn attn_paged(&self, op: AttnPaged<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue
            .push("attn_paged", attn_paged::attn_paged(op, self.config));
    }

    fn gather_rows(&self, op: GatherRows<'_, Self>) {
        op.check();
        self.queue.push("gather_rows", gather_rows::gather_rows(op));
    }

    fn sample(&self, op: Sample<'_, Self>) {
        op.check();
        self.queue.push("sample", sample::sample(op));
    }

    fn copy_pages(&self, op: CopyPages<'_, Self>) {
        op.check();
        self.queue.push("copy_pages", copy_pages::copy_pages(op));
    }

    fn moe_route(&self, op: MoeRoute<'_, Self>) {
        op.check();
        self.queue.push("moe_route", moe_route::moe_route(op));
    }

    fn moe_experts(&self, op: MoeExperts<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("moe_experts", moe_experts::moe_experts(op));
    }

    fn moe_finish(&self, op: MoeFinish<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("moe_finish", moe_finish::moe_finish(op));
    }

    fn causal_conv(&self, op: CausalConv<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("causal_conv", causal_conv::causal_conv(op));
    }

    fn gdn_scan(&self, op: GdnScan<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("gdn_scan", gdn_scan::gdn_scan(op));
    }

    fn gated_norm(&self, op: GatedNorm<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("gated_norm", gated_norm::gated_norm(op));
    }

    fn copy_states(&self, op: CopyStates<'_, Self>) {
        op.check();
        self.queue.push("copy_states", copy_states::copy_states(op));
    }

    fn mla_prep(&self, op: MlaPrep<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue
            .push("mla_prep", mla_prep::mla_prep(op, &self.saturated));
    }

    fn head_linear(&self, op: HeadLinear<'_, Self>) {
        op.check(ACTIVATIONS);
        self.queue.push("head_linear", head_linear::head_linear(op));
    }
}

#[cfg(test)]
pub(super) mod tests;
