//! What the KV bytes of a rank mean: groups of layers, their cuts into regions, head intervals,
//! element types and the parallel layout. Both sides of a transfer exchange these descriptors;
//! `pd-kv-transfer`'s plan turns a pair of them into byte ranges.

mod state;

pub use state::{StateLayout, StateTensor, StateType, TENSORS_MAX};

use crate::bounded;
use crate::metadata::MetadataLayout;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The only page order that this version writes and reads:
/// `[page][kv_head][layer in cut][K,V][slot][head_dim]`. A peer with another one is refused.
pub const PAGE_ORDER: &str = "page,kv_head,layer,kv,slot,dim";
/// Most groups, cuts of a group and states in a descriptor that a peer may send.
pub const GROUPS_MAX: usize = 16;
pub const CUTS_MAX: usize = 64;
pub const STATES_MAX: usize = 8;

/// Element type of KV pages and of hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvDtype {
    Float32,
    Float16,
    Bfloat16,
    Fp8E4m3,
}

/// Layers `first_layer..first_layer + layers` of a group: one memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KvCut {
    pub first_layer: u32,
    pub layers: u32,
}

/// Layers that share a page table, dtype, heads and head dim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvGroup {
    /// `full`, `sliding_window`, `mla`, …: equal names are paired.
    #[serde(deserialize_with = "bounded::name")]
    pub name: String,
    pub dtype: KvDtype,
    pub head_dim: u32,
    /// Tensors per layer: 2 (K and V), or 1 (a latent).
    pub tensors: u32,
    /// KV heads of the whole model; this rank holds `head_start..head_start + heads`.
    pub total_heads: u32,
    pub head_start: u32,
    pub heads: u32,
    pub cuts: Vec<KvCut>,
}

/// Everything that a peer must know of a rank's KV memory; sent at registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvLayout {
    #[serde(deserialize_with = "bounded::name")]
    pub order: String,
    /// Slots (tokens) of a page, the unit of transfer.
    pub page_size: u32,
    /// Pages of every region of this rank.
    pub pages: u32,
    pub groups: Vec<KvGroup>,
    #[serde(default)]
    pub states: Vec<StateLayout>,
    pub metadata: MetadataLayout,
    /// Rows of the metadata buffers.
    pub metadata_rows: u32,
}

/// Why a descriptor is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("page order is {0:?}, but this side reads only {PAGE_ORDER:?}")]
    Order(String),
    #[error("{what} is {value}, but must be in {min}..={max}")]
    OutOfRange {
        what: &'static str,
        value: u64,
        min: u64,
        max: u64,
    },
    #[error("group {group}: heads {start}..{end} are not within the model's {total}")]
    Heads {
        group: String,
        start: u64,
        end: u64,
        total: u32,
    },
    #[error("{group} has layer {layer} twice")]
    LayerTwice { group: String, layer: u32 },
    #[error("the memory that the layout describes does not fit 63 bits")]
    TooLarge,
}

/// Sizes of a pool of ranks; SGLang's `attn_tp_size`, `attn_cp_size`, `dp_size`, `pp_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ParallelLayout {
    pub tp_size: u32,
    pub cp_size: u32,
    pub dp_size: u32,
    pub pp_size: u32,
}

/// One rank of a [`ParallelLayout`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RankId {
    pub dp_rank: u32,
    pub cp_rank: u32,
    pub tp_rank: u32,
    pub pp_rank: u32,
}

// === impl KvDtype ===

impl KvDtype {
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Fp8E4m3 => 1,
        }
    }

    /// SGLang's name, as it stands in `kv_cache_dtype`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Fp8E4m3 => "fp8_e4m3",
        }
    }
}

// === impl KvGroup ===

impl KvGroup {
    /// Bytes of one layer of one head of a page: `[K,V][slot][head_dim]`.
    pub fn layer_bytes(&self, page_size: u32) -> u64 {
        u64::from(self.tensors)
            * u64::from(page_size)
            * u64::from(self.head_dim)
            * self.dtype.size_bytes()
    }

    /// Bytes of one head of a page of `cut`.
    pub fn head_bytes(&self, cut: &KvCut, page_size: u32) -> u64 {
        u64::from(cut.layers) * self.layer_bytes(page_size)
    }

    /// Bytes of one page of `cut`: the stride from page to page.
    pub fn page_bytes(&self, cut: &KvCut, page_size: u32) -> u64 {
        u64::from(self.heads) * self.head_bytes(cut, page_size)
    }
}

// === impl KvLayout ===

impl KvLayout {
    /// `(group, cut)` of every region, in the order of `KvArgs`' regions.
    pub fn regions(&self) -> impl Iterator<Item = (&KvGroup, &KvCut)> {
        self.groups
            .iter()
            .flat_map(|group| group.cuts.iter().map(move |cut| (group, cut)))
    }

    /// Length of the region of `cut`.
    pub fn region_bytes(&self, group: &KvGroup, cut: &KvCut) -> u64 {
        u64::from(self.pages) * group.page_bytes(cut, self.page_size)
    }

    /// Length of every region of this rank: cuts, then states, then metadata rows.
    pub fn region_lens(&self) -> Vec<u64> {
        let cuts = self
            .regions()
            .map(|(group, cut)| self.region_bytes(group, cut));
        let states = self.states.iter();
        let states = states.map(|state| state.item_bytes() * u64::from(state.slots));
        let rows = u64::from(self.metadata_rows) * self.metadata.row_bytes() as u64;
        cuts.chain(states).chain([rows]).collect()
    }

    /// Checks a descriptor, own or a peer's, before any arithmetic is done with it.
    ///
    /// # Errors
    /// Names the first value out of range.
    pub fn validate(&self) -> Result<(), LayoutError> {
        if self.order != PAGE_ORDER {
            return Err(LayoutError::Order(self.order.clone()));
        }
        in_range("page_size", u64::from(self.page_size), 1, 65_536)?;
        in_range("pages", u64::from(self.pages), 1, u64::from(u32::MAX))?;
        in_range("groups", self.groups.len() as u64, 1, GROUPS_MAX as u64)?;
        in_range("states", self.states.len() as u64, 0, STATES_MAX as u64)?;
        self.states.iter().try_for_each(StateLayout::validate)?;
        self.metadata.validate()?;
        self.groups.iter().try_for_each(|g| self.validate_group(g))
    }

    fn validate_group(&self, group: &KvGroup) -> Result<(), LayoutError> {
        in_range("head_dim", u64::from(group.head_dim), 1, 65_536)?;
        in_range("tensors", u64::from(group.tensors), 1, 4)?;
        in_range("heads", u64::from(group.heads), 1, 65_536)?;
        in_range("cuts", group.cuts.len() as u64, 1, CUTS_MAX as u64)?;
        let start = u64::from(group.head_start);
        let end = start + u64::from(group.heads);
        if end > u64::from(group.total_heads) {
            return Err(LayoutError::Heads {
                group: group.name.clone(),
                start,
                end,
                total: group.total_heads,
            });
        }
        for cut in &group.cuts {
            in_range("layers of a cut", u64::from(cut.layers), 1, 65_536)?;
            in_range("first_layer", u64::from(cut.first_layer), 0, 65_536)?;
            let elements = [
                self.pages,
                group.heads,
                cut.layers,
                group.tensors,
                self.page_size,
                group.head_dim,
            ];
            elements
                .iter()
                .try_fold(group.dtype.size_bytes(), |n, &m| {
                    n.checked_mul(u64::from(m))
                })
                .filter(|&n| i64::try_from(n).is_ok())
                .ok_or(LayoutError::TooLarge)?;
        }
        check_apart(group.cuts.iter().map(|cut| {
            let end = cut.first_layer + cut.layers;
            (group.name.as_str(), cut.first_layer..end)
        }))
    }
}

/// Groups of one name must not share layers: which bytes count would be undefined.
fn check_apart<'a>(parts: impl Iterator<Item = (&'a str, Range<u32>)>) -> Result<(), LayoutError> {
    let mut parts: Vec<(&str, Range<u32>)> = parts.collect();
    parts.sort_by_key(|(name, layers)| (*name, layers.start));
    let mut pairs = parts.windows(2);
    let twice = pairs.find(|pair| pair[0].0 == pair[1].0 && pair[0].1.end > pair[1].1.start);
    match twice {
        Some(pair) => Err(LayoutError::LayerTwice {
            group: pair[1].0.to_owned(),
            layer: pair[1].1.start,
        }),
        None => Ok(()),
    }
}

pub(crate) fn in_range(
    what: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), LayoutError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(LayoutError::OutOfRange {
            what,
            value,
            min,
            max,
        })
    }
}

// === impl ParallelLayout ===

impl ParallelLayout {
    pub const SINGLE: Self = Self {
        tp_size: 1,
        cp_size: 1,
        dp_size: 1,
        pp_size: 1,
    };

    pub fn ranks(&self) -> u64 {
        [self.tp_size, self.cp_size, self.dp_size, self.pp_size]
            .iter()
            .fold(1u64, |n, &m| n.saturating_mul(u64::from(m)))
    }
}

// === impl RankId ===

impl RankId {
    /// SGLang's `prefill_unique_rank` within one data-parallel group.
    pub fn unique_rank(&self, layout: &ParallelLayout) -> u32 {
        self.tp_rank * (layout.pp_size * layout.cp_size)
            + self.pp_rank * layout.cp_size
            + self.cp_rank
    }
}

#[cfg(test)]
mod tests;
