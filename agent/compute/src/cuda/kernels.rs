//! The kernels by name, and what launches know of them.

mod args;

pub(super) use args::*;

macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub(super) const $name: usize = $value;)*

        /// What launches know of the kernels, by name; the emulation says what it is there.
        pub const CONSTANTS: &[(&str, usize)] = &[$((stringify!($name), $name)),*];
    };
}

// Each begins with its file's name: `SEGMENTS` in `linear.cu`.
constants! {
    LINEAR_SEGMENTS = 8;
    LINEAR_SUMS_STRIDE = 20;
    LINEAR_TILE = 128;
    LINEAR_HOPPER_ROWS = 128;
    LINEAR_HOPPER_COLUMNS = 256;
    LINEAR_HOPPER_K_STEP = 64;
    LINEAR_HOPPER_STAGES = 4;
    LINEAR_STAGES = 4;
    LINEAR_K_STEP = 32;
    LINEAR_ROWS_F32 = 4;
    QKV_PREP_HEAD_DIM_MAX = 256;
    ATTN_PAGED_TOKEN_WARPS = 4;
    ATTN_TILE_QUERIES = 64;
    ATTN_TILE_WIDE_KEYS = 32;
    ATTN_TILE_WIDE_ASIDE = 64;
    ATTN_PAGED_BLOCK = 64;
    HOPPER_QUERIES = 128;
    HOPPER_KEYS = 128;
    HOPPER_STAGES = 2;
    HOPPER_FOUND = 4;
    // Bytes, so that swizzled matrices begin where they must.
    HOPPER_SWIZZLE_ALIGN = 1024;
    MOE_EXPERTS_MAX = 1024;
    MOE_ROUTE_WARPS = 4;
    MOE_SHARES = crate::k_order::EXPERT_SHARES;
    MOE_COLUMNS = 256;
    CONV_THREADS = 128;
    CONV_TENSORS = 3;
    DELTA_SCAN_COLUMNS = 8;
    DELTA_SCAN_STAGE = 16;
    ATTN_LATENT_HEADS = 2;
    ATTN_LATENT_DIM_MAX = 768;
    LATENT_TILE_DIM_MAX = 576;
    LATENT_TILE_VALUE_DIM_MAX = 512;
    LATENT_FOLD_GROUPS = 4;
    LATENT_TILE_FEW_ROWS = 16;
    LATENT_TILE_MANY_ROWS = 64;
    // Bytes of the kernels' `LatentShared`.
    LATENT_TILE_FEW_SHARED = 215_168;
    LATENT_TILE_MANY_SHARED = 225_280;
    SAMPLE_SPLIT = 8192;
    SAMPLE_LISTED = 2048;
    // Bytes of `SamplePartial` and of the kernels' `Shared`.
    SAMPLE_PARTIAL = 32;
    SAMPLE_PARTIALS_SHARED = 200;
    SAMPLE_SHARED = 33264;
}

/// A kernel for few rows by what a block of it makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FewRows {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Parts of k that are on their way at once.
    pub(super) slots: usize,
    /// Of 16 bytes in a part of a row.
    pub(super) words: usize,
    /// By the output's type.
    pub(super) bf16: Kernel,
    pub(super) f32: Kernel,
}

const fn few_rows(tile: (usize, usize, usize, usize), bf16: Kernel, f32: Kernel) -> FewRows {
    let (rows, columns, slots, words) = tile;
    FewRows {
        rows,
        columns,
        slots,
        words,
        bf16,
        f32,
    }
}

pub(super) const FEW_8X16: FewRows =
    few_rows((8, 16, 3, 8), Kernel::Linear8x16Bf16, Kernel::Linear8x16F32);
pub(super) const FEW_16X32: FewRows = few_rows(
    (16, 32, 3, 4),
    Kernel::Linear16x32Bf16,
    Kernel::Linear16x32F32,
);
pub(super) const FEW_32X32: FewRows = few_rows(
    (32, 32, 3, 4),
    Kernel::Linear32x32Bf16,
    Kernel::Linear32x32F32,
);

/// By rows.
pub(super) const FEW_ROWS: [FewRows; 6] = [
    few_rows((8, 8, 4, 8), Kernel::Linear8x8Bf16, Kernel::Linear8x8F32),
    FEW_8X16,
    few_rows(
        (16, 16, 3, 8),
        Kernel::Linear16x16Bf16,
        Kernel::Linear16x16F32,
    ),
    FEW_16X32,
    FEW_32X32,
    few_rows(
        (32, 64, 2, 4),
        Kernel::Linear32x64Bf16,
        Kernel::Linear32x64F32,
    ),
];

macro_rules! kernels {
    ($($variant:ident $name:literal $args:ty, $threads:literal;)*) => {
        /// An entry of the compiled kernels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kernel { $($variant),* }

        impl Kernel {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The symbol.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Bytes of the argument struct.
            pub const fn args_bytes(self) -> usize {
                match self { $(Self::$variant => size_of::<$args>()),* }
            }

            /// Threads per block, as the kernel's launch bounds say.
            pub const fn threads(self) -> u32 {
                match self { $(Self::$variant => $threads),* }
            }
        }
    };
}

kernels! {
    Embed "pd_embed" EmbedArgs, 128;
    RmsNormBf16 "pd_rms_norm_bf16" RmsNormArgs, 256;
    RmsNormF32 "pd_rms_norm_f32" RmsNormArgs, 256;
    RopeTable "pd_rope_table" RopeTableArgs, 128;
    GatherRows "pd_gather_rows" GatherRowsArgs, 128;
    CopyPages "pd_copy_pages" CopyPagesArgs, 128;
    QkvPrepBf16 "pd_qkv_prep_bf16" QkvPrepArgs, 256;
    QkvPrepF32 "pd_qkv_prep_f32" QkvPrepArgs, 256;
    QkvPrepBf16F8 "pd_qkv_prep_bf16_f8" QkvPrepArgs, 256;
    QkvPrepF32F8 "pd_qkv_prep_f32_f8" QkvPrepArgs, 256;
    Linear8x8Bf16 "pd_linear_8x8_bf16" LinearArgs, 256;
    Linear8x16Bf16 "pd_linear_8x16_bf16" LinearArgs, 256;
    Linear16x16Bf16 "pd_linear_16x16_bf16" LinearArgs, 256;
    Linear16x32Bf16 "pd_linear_16x32_bf16" LinearArgs, 256;
    Linear32x32Bf16 "pd_linear_32x32_bf16" LinearArgs, 256;
    Linear32x64Bf16 "pd_linear_32x64_bf16" LinearArgs, 256;
    Linear8x8F32 "pd_linear_8x8_f32" LinearArgs, 256;
    Linear8x16F32 "pd_linear_8x16_f32" LinearArgs, 256;
    Linear16x16F32 "pd_linear_16x16_f32" LinearArgs, 256;
    Linear16x32F32 "pd_linear_16x32_f32" LinearArgs, 256;
    Linear32x32F32 "pd_linear_32x32_f32" LinearArgs, 256;
    Linear32x64F32 "pd_linear_32x64_f32" LinearArgs, 256;
    NormLinear8x16Bf16 "pd_norm_linear_8x16_bf16" LinearArgs, 256;
    LinearTiledBf16 "pd_linear_tiled_bf16" LinearArgs, 256;
    LinearTiledF32 "pd_linear_tiled_f32" LinearArgs, 256;
    LinearHopperBf16 "pd_linear_hopper_bf16" LinearArgs, 256;
    LinearHopperF32 "pd_linear_hopper_f32" LinearArgs, 256;
    LinearFullF32 "pd_linear_full_f32" LinearArgs, 256;
    SwiGluBf16 "pd_swiglu_bf16" SwiGluArgs, 256;
    AttendToken4x1Bf16 "pd_attend_token_4x1_bf16" AttnArgs, 128;
    AttendToken4x4Bf16 "pd_attend_token_4x4_bf16" AttnArgs, 128;
    AttendToken8x1Bf16 "pd_attend_token_8x1_bf16" AttnArgs, 128;
    AttendToken8x2Bf16 "pd_attend_token_8x2_bf16" AttnArgs, 128;
    AttendToken8x4Bf16 "pd_attend_token_8x4_bf16" AttnArgs, 128;
    AttendToken8x8Bf16 "pd_attend_token_8x8_bf16" AttnArgs, 128;
    AttendToken16x1Bf16 "pd_attend_token_16x1_bf16" AttnArgs, 128;
    AttendToken16x2Bf16 "pd_attend_token_16x2_bf16" AttnArgs, 128;
    AttendToken16x4Bf16 "pd_attend_token_16x4_bf16" AttnArgs, 128;
    AttendToken16x8Bf16 "pd_attend_token_16x8_bf16" AttnArgs, 128;
    AttendToken32x1Bf16 "pd_attend_token_32x1_bf16" AttnArgs, 128;
    AttendToken32x4Bf16 "pd_attend_token_32x4_bf16" AttnArgs, 128;
    AttendToken4x1F32 "pd_attend_token_4x1_f32" AttnArgs, 128;
    AttendToken4x4F32 "pd_attend_token_4x4_f32" AttnArgs, 128;
    AttendToken8x1F32 "pd_attend_token_8x1_f32" AttnArgs, 128;
    AttendToken8x2F32 "pd_attend_token_8x2_f32" AttnArgs, 128;
    AttendToken8x4F32 "pd_attend_token_8x4_f32" AttnArgs, 128;
    AttendToken8x8F32 "pd_attend_token_8x8_f32" AttnArgs, 128;
    AttendToken16x1F32 "pd_attend_token_16x1_f32" AttnArgs, 128;
    AttendToken16x2F32 "pd_attend_token_16x2_f32" AttnArgs, 128;
    AttendToken16x4F32 "pd_attend_token_16x4_f32" AttnArgs, 128;
    AttendToken16x8F32 "pd_attend_token_16x8_f32" AttnArgs, 128;
    AttendToken32x1F32 "pd_attend_token_32x1_f32" AttnArgs, 128;
    AttendToken32x4F32 "pd_attend_token_32x4_f32" AttnArgs, 128;
    AttendTile64 "pd_attend_tile_64" AttnArgs, 128;
    AttendTile128 "pd_attend_tile_128" AttnArgs, 128;
    AttendTile256 "pd_attend_tile_256" AttnArgs, 128;
    AttendFormed4x4Bf16 "pd_attend_formed_4x4_bf16" AttnArgs, 128;
    AttendFormed8x4Bf16 "pd_attend_formed_8x4_bf16" AttnArgs, 128;
    AttendFormed16x4Bf16 "pd_attend_formed_16x4_bf16" AttnArgs, 128;
    AttendFormed32x4Bf16 "pd_attend_formed_32x4_bf16" AttnArgs, 128;
    AttendFormed4x4F32 "pd_attend_formed_4x4_f32" AttnArgs, 128;
    AttendFormed8x4F32 "pd_attend_formed_8x4_f32" AttnArgs, 128;
    AttendFormed16x4F32 "pd_attend_formed_16x4_f32" AttnArgs, 128;
    AttendFormed32x4F32 "pd_attend_formed_32x4_f32" AttnArgs, 128;
    AttendFormedTile64 "pd_attend_formed_tile_64" AttnArgs, 128;
    AttendFormedTile128 "pd_attend_formed_tile_128" AttnArgs, 128;
    AttendFormedTile256 "pd_attend_formed_tile_256" AttnArgs, 128;
    AttendToken4x4Bf16F8 "pd_attend_token_4x4_bf16_f8" AttnArgs, 128;
    AttendToken8x1Bf16F8 "pd_attend_token_8x1_bf16_f8" AttnArgs, 128;
    AttendToken8x4Bf16F8 "pd_attend_token_8x4_bf16_f8" AttnArgs, 128;
    AttendToken8x8Bf16F8 "pd_attend_token_8x8_bf16_f8" AttnArgs, 128;
    AttendToken16x1Bf16F8 "pd_attend_token_16x1_bf16_f8" AttnArgs, 128;
    AttendToken16x4Bf16F8 "pd_attend_token_16x4_bf16_f8" AttnArgs, 128;
    AttendToken16x8Bf16F8 "pd_attend_token_16x8_bf16_f8" AttnArgs, 128;
    AttendToken32x4Bf16F8 "pd_attend_token_32x4_bf16_f8" AttnArgs, 128;
    AttendFormed4x4Bf16F8 "pd_attend_formed_4x4_bf16_f8" AttnArgs, 128;
    AttendFormed8x4Bf16F8 "pd_attend_formed_8x4_bf16_f8" AttnArgs, 128;
    AttendFormed16x4Bf16F8 "pd_attend_formed_16x4_bf16_f8" AttnArgs, 128;
    AttendFormed32x4Bf16F8 "pd_attend_formed_32x4_bf16_f8" AttnArgs, 128;
    AttendFormed4x4F32F8 "pd_attend_formed_4x4_f32_f8" AttnArgs, 128;
    AttendFormed8x4F32F8 "pd_attend_formed_8x4_f32_f8" AttnArgs, 128;
    AttendFormed16x4F32F8 "pd_attend_formed_16x4_f32_f8" AttnArgs, 128;
    AttendFormed32x4F32F8 "pd_attend_formed_32x4_f32_f8" AttnArgs, 128;
    AttendTile64F8 "pd_attend_tile_64_f8" AttnArgs, 128;
    AttendTile128F8 "pd_attend_tile_128_f8" AttnArgs, 128;
    AttendTile256F8 "pd_attend_tile_256_f8" AttnArgs, 128;
    AttendFormedTile64F8 "pd_attend_formed_tile_64_f8" AttnArgs, 128;
    AttendFormedTile128F8 "pd_attend_formed_tile_128_f8" AttnArgs, 128;
    AttendFormedTile256F8 "pd_attend_formed_tile_256_f8" AttnArgs, 128;
    AttendHopper64 "pd_attend_hopper_64" AttnArgs, 256;
    AttendHopper128 "pd_attend_hopper_128" AttnArgs, 256;
    AttendLatentBf16 "pd_attend_latent_bf16" AttnArgs, 128;
    AttendLatentF32 "pd_attend_latent_f32" AttnArgs, 128;
    AttendLatentBf16F8 "pd_attend_latent_bf16_f8" AttnArgs, 128;
    AttendLatentF32F8 "pd_attend_latent_f32_f8" AttnArgs, 128;
    AttendLatentTile16 "pd_attend_latent_tile_16" AttnArgs, 256;
    AttendLatentTile64 "pd_attend_latent_tile_64" AttnArgs, 256;
    FoldLatentSplits "pd_fold_latent_splits" AttnArgs, 512;
    MlaPrepBf16 "pd_mla_prep_bf16" MlaPrepArgs, 256;
    MlaPrepF32 "pd_mla_prep_f32" MlaPrepArgs, 256;
    MlaPrepBf16F8 "pd_mla_prep_bf16_f8" MlaPrepArgs, 256;
    MlaPrepF32F8 "pd_mla_prep_f32_f8" MlaPrepArgs, 256;
    HeadLinear8x16Bf16 "pd_head_linear_8x16_bf16" HeadLinearArgs, 256;
    HeadLinear32x32Bf16 "pd_head_linear_32x32_bf16" HeadLinearArgs, 256;
    HeadLinearFullF32 "pd_head_linear_full_f32" HeadLinearArgs, 256;
    MoeRoute "pd_moe_route" MoeRouteArgs, 128;
    ExpertTiles "pd_expert_tiles" ExpertTilesArgs, 1024;
    Expert8x16Bf16 "pd_expert_8x16_bf16" ExpertLinearArgs, 256;
    Expert16x32Bf16 "pd_expert_16x32_bf16" ExpertLinearArgs, 256;
    Expert32x32Bf16 "pd_expert_32x32_bf16" ExpertLinearArgs, 256;
    ExpertTiledBf16 "pd_expert_tiled_bf16" ExpertLinearArgs, 256;
    ExpertHopperBf16 "pd_expert_hopper_bf16" ExpertLinearArgs, 256;
    ExpertFullF32 "pd_expert_full_f32" ExpertLinearArgs, 256;
    MoeCombineBf16 "pd_moe_combine_bf16" MoeCombineArgs, 256;
    MoeCombineF32 "pd_moe_combine_f32" MoeCombineArgs, 256;
    MoeFinishBf16 "pd_moe_finish_bf16" MoeFinishArgs, 256;
    MoeFinishF32 "pd_moe_finish_f32" MoeFinishArgs, 256;
    CausalConvBf16 "pd_causal_conv_bf16" CausalConvArgs, 128;
    CausalConvF32 "pd_causal_conv_f32" CausalConvArgs, 128;
    GdnScan32Bf16 "pd_gdn_scan_32_bf16" GdnScanArgs, 128;
    GdnScan32F32 "pd_gdn_scan_32_f32" GdnScanArgs, 128;
    GdnScan128Bf16 "pd_gdn_scan_128_bf16" GdnScanArgs, 128;
    GdnScan128F32 "pd_gdn_scan_128_f32" GdnScanArgs, 128;
    GdnScan256Bf16 "pd_gdn_scan_256_bf16" GdnScanArgs, 128;
    GdnScan256F32 "pd_gdn_scan_256_f32" GdnScanArgs, 128;
    GatedNormBf16 "pd_gated_norm_bf16" GatedNormArgs, 256;
    GatedNormF32 "pd_gated_norm_f32" GatedNormArgs, 256;
    CopyStates "pd_copy_states" CopyStatesArgs, 128;
    SamplePartials "pd_sample_partials" SampleArgs, 512;
    Sample "pd_sample" SampleArgs, 512;
}

/// As arguments have sizes.
pub(super) fn to_u32(value: usize) -> u32 {
    u32::try_from(value).expect("sizes of one step fit 32 bits")
}
