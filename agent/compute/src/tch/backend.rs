//! The [`Backend`] itself: every method runs its op at once, one at a time.

use super::handle::TchBackend;
use super::memory::{TchBuffer, int};
use super::ops::{
    attn_paged, causal_conv, copy_pages, copy_states, embed, gated_norm, gather_rows, gdn_scan,
    head_linear, linear, mla_prep, moe_experts, moe_finish, moe_route, qkv_prep, rms_norm,
    rope_table, sample,
};
use super::ticket::TchTicket;
use super::weights::{TchExperts, TchMatrix, pack, pack_experts};
use crate::buffer::HostBytes;
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
use tch::{Cuda, Device};

impl Backend for TchBackend {
    fn activation_dtype(&self) -> DType {
        self.config.dtype
    }

    fn check_ops(&self, needs: &OpNeeds) -> Result<(), ComputeError> {
        needs.check_against(
            "libtorch",
            |_| true,
            |kv| match kv.dtype {
                DType::F32 | DType::F16 | DType::BF16 => Ok(()),
                DType::U32 | DType::U8 | DType::F8E4M3 => {
                    Err("choose float32, float16 or bfloat16".to_owned())
                }
            },
        )
    }

    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<TchBuffer, ComputeError> {
        TchBuffer::alloc(self.config.device, name, dtype, len)
    }

    /// Memory like any other: see [`Self::export`].
    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
        _reach: Reach,
    ) -> Result<TchBuffer, ComputeError> {
        self.alloc(name, dtype, len)
    }

    fn alloc_host(&self, name: &str, dtype: DType, len: usize) -> Result<TchBuffer, ComputeError> {
        TchBuffer::alloc(Device::Cpu, name, dtype, len)
    }

    fn export(&self, buffer: &TchBuffer) -> Result<MemoryExport, ComputeError> {
        Err(ComputeError::NotExportable {
            what: format!("{buffer:?}"),
            reason: "it is libtorch's, which shares it with no peer; use the cpu or cuda backend"
                .to_owned(),
        })
    }

    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        packing: Packing,
    ) -> Result<TchMatrix, ComputeError> {
        pack(self.config, parts, packing.interleaves())
    }

    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<TchMatrix, ComputeError> {
        pack(self.config, &[*table], false)
    }

    fn pack_experts(&self, experts: &[ExpertSource<'_>]) -> Result<TchExperts, ComputeError> {
        pack_experts(self.config, experts)
    }

    fn upload<T: NoUninit>(&self, dst: &TchBuffer, src: &[T]) {
        self.run("upload", || {
            dst.write(bytemuck::cast_slice(src));
            Ok(())
        });
    }

    fn read(&self, src: &TchBuffer) -> TchTicket {
        self.ticket(|| {
            src.to_host().map_err(|error| ComputeError::DeviceFault {
                op: "read",
                message: error.to_string(),
            })
        })
    }

    fn fence(&self) -> TchTicket {
        self.ticket(|| {
            if let Device::Cuda(index) = self.config.device {
                Cuda::synchronize(int(index));
            }
            Ok(HostBytes::default())
        })
    }

    fn health(&self) -> Result<(), ComputeError> {
        self.fault.lock().clone().map_or(Ok(()), Err)
    }

    fn embed(&self, op: Embed<'_, Self>) {
        op.check(self.config.dtype);
        self.run("embed", || embed::embed(op));
    }

    fn rms_norm(&self, op: RmsNorm<'_, Self>) {
        op.check(self.config.dtype);
        self.run("rms_norm", || rms_norm::rms_norm(op));
    }

    fn linear(&self, op: Linear<'_, Self>) {
        op.check(self.config.dtype);
        self.run("linear", || linear::linear(op));
    }

    fn rope_table(&self, op: RopeTable<'_, Self>) {
        op.check();
        self.run("rope_table", || rope_table::rope_table(op));
    }

    fn qkv_prep(&self, op: QkvPrep<'_, Self>) {
        op.check(self.config.dtype);
        self.run("qkv_prep", || qkv_prep::qkv_prep(op));
    }

    fn attn_paged(&self, op: AttnPaged<'_, Self>) {
        op.check(self.config.dtype);
        self.run("attn_paged", || attn_paged::attn_paged(op));
    }

    fn gather_rows(&self, op: GatherRows<'_, Self>) {
        op.check();
        self.run("gather_rows", || gather_rows::gather_rows(op));
    }

    fn sample(&self, op: Sample<'_, Self>) {
        op.check();
        self.run("sample", || sample::sample(op));
    }

    fn copy_pages(&self, op: CopyPages<'_, Self>) {
        op.check();
        self.run("copy_pages", || copy_pages::copy_pages(op));
    }

    fn moe_route(&self, op: MoeRoute<'_, Self>) {
        op.check();
        self.run("moe_route", || moe_route::moe_route(op));
    }

    fn moe_experts(&self, op: MoeExperts<'_, Self>) {
        op.check(self.config.dtype);
        self.run("moe_experts", || moe_experts::moe_experts(op));
    }

    fn moe_finish(&self, op: MoeFinish<'_, Self>) {
        op.check(self.config.dtype);
        self.run("moe_finish", || moe_finish::moe_finish(op));
    }

    fn causal_conv(&self, op: CausalConv<'_, Self>) {
        op.check(self.config.dtype);
        self.run("causal_conv", || causal_conv::causal_conv(op));
    }

    fn gdn_scan(&self, op: GdnScan<'_, Self>) {
        op.check(self.config.dtype);
        self.run("gdn_scan", || gdn_scan::gdn_scan(op));
    }

    fn gated_norm(&self, op: GatedNorm<'_, Self>) {
        op.check(self.config.dtype);
        self.run("gated_norm", || gated_norm::gated_norm(op));
    }

    fn copy_states(&self, op: CopyStates<'_, Self>) {
        op.check();
        self.run("copy_states", || copy_states::copy_states(op));
    }

    fn mla_prep(&self, op: MlaPrep<'_, Self>) {
        op.check(self.config.dtype);
        self.run("mla_prep", || mla_prep::mla_prep(op));
    }

    fn head_linear(&self, op: HeadLinear<'_, Self>) {
        op.check(self.config.dtype);
        self.run("head_linear", || head_linear::head_linear(op));
    }
}
