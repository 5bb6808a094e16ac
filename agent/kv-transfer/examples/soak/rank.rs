//! One rank: its manager, its memory, and what a request's bytes in it should be.

use crate::epoch::{Epoch, Position, Side, content};
use anyhow::ensure;
use pd_kv_transfer::{
    BootstrapAddr, KvArgs, KvManager, KvManagerConfig, MetadataBuffers, Region, TransferConfig,
    Waker,
};
use pd_protocol::Role;
use pd_protocol::layout::RankId;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Of the rooms of an epoch, so many fail on purpose.
const FAILURES: f64 = 0.1;

pub(crate) struct Rank {
    pub(crate) manager: KvManager,
    pub(crate) id: RankId,
    kv: KvArgs,
    seed: u64,
}

/// Where a request's pages and items are in the memory of the ranks of a group.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) pages: Vec<u32>,
    /// Of the recurrent state; of the index, items are pages.
    pub(crate) slot: u32,
    pub(crate) row: u32,
}

impl Rank {
    pub(crate) fn start(
        epoch: &Epoch,
        side: Side,
        (id, number): (RankId, u64),
        (boot_id, bootstrap): (&str, Option<BootstrapAddr>),
        waker: Waker,
    ) -> anyhow::Result<Self> {
        let layout = epoch.layout(side, id);
        let cuts = layout.regions().count();
        let mut regions = Vec::new();
        for len in layout.region_lens() {
            regions.push(Region::allocate("soak", usize::try_from(len)?)?);
        }
        let states = regions[cuts..regions.len() - 1].to_vec();
        regions.truncate(cuts);
        let kv = KvArgs {
            metadata: MetadataBuffers::allocate(layout.metadata, layout.metadata_rows)?,
            kv: regions,
            states,
            layout,
        };
        let ranks = epoch.prefill.ranks() / u64::from(epoch.prefill.dp_size) + epoch.decode.ranks();
        let of_one = 1.0 - (1.0 - FAILURES).powf(1.0 / ranks as f64);
        let transfer = TransferConfig {
            transport: epoch.transport(),
            heartbeat_interval: Duration::from_millis(500),
            test_failure_prob: of_one,
            test_failure_seed: epoch.seed ^ (epoch.number << 32) ^ (number << 1) ^ side as u64,
            ..TransferConfig::new(HOST)
        };
        let manager = KvManager::start(KvManagerConfig {
            role: match side {
                Side::Prefill => Role::Prefill,
                Side::Decode => Role::Decode,
            },
            rank: id,
            parallel: epoch.pool(side),
            kv: kv.clone(),
            kv_compat: "soak".to_owned(),
            boot_id: boot_id.to_owned(),
            bootstrap_addr: bootstrap,
            http_port: None,
            transfer,
            waker,
        })?;
        Ok(Self {
            manager,
            id,
            kv,
            seed: epoch.seed,
        })
    }

    pub(crate) fn metadata(&self) -> &MetadataBuffers {
        &self.kv.metadata
    }

    pub(crate) fn items(&self, memory: &Memory) -> Vec<Vec<u32>> {
        match self.kv.states.len() {
            0 => Vec::new(),
            _ => vec![vec![memory.slot], memory.pages.clone()],
        }
    }

    pub(crate) fn fill(&self, room: u64, memory: &Memory) -> anyhow::Result<()> {
        self.each_item(memory, |region, offset, places| {
            let bytes = self.expected(room, places);
            Ok(region.write(offset, &bytes)?)
        })
    }

    /// Every byte of the request is there.
    pub(crate) fn verify(&self, room: u64, memory: &Memory) -> anyhow::Result<()> {
        self.each_item(memory, |region, offset, places| {
            let expected = self.expected(room, places);
            let mut bytes = vec![0; expected.len()];
            region.read(offset, &mut bytes)?;
            let first = bytes.iter().zip(&expected).position(|(a, b)| a != b);
            let id = self.id;
            ensure!(
                first.is_none(),
                "room {room}, {id:?}: byte {first:?} of {places:?} is wrong"
            );
            Ok(())
        })
    }

    fn expected(&self, room: u64, places: &[(Position, u64)]) -> Vec<u8> {
        let places = places.iter();
        places
            .flat_map(|&(place, len)| content(self.seed, room, place, len))
            .collect()
    }

    /// Calls `visit` with each page of each cut, and each item of each state: region, offset, places within.
    fn each_item(
        &self,
        memory: &Memory,
        visit: impl Fn(&Region, u64, &[(Position, u64)]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let layout = &self.kv.layout;
        let mut regions = self.kv.kv.iter();
        for (what, group) in (0..).zip(&layout.groups) {
            for cut in &group.cuts {
                let region = regions.next().expect("a region per cut");
                let stride = group.page_bytes(cut, layout.page_size);
                let len = group.layer_bytes(layout.page_size);
                for (nr, &page) in (0..).zip(&memory.pages) {
                    let heads = group.head_start..group.head_start + group.heads;
                    let layers = cut.first_layer..cut.first_layer + cut.layers;
                    let of_head = |head| {
                        layers
                            .clone()
                            .map(move |layer| ((what, nr, head, layer), len))
                    };
                    let places: Vec<_> = heads.flat_map(of_head).collect();
                    visit(region, u64::from(page) * stride, &places)?;
                }
            }
        }
        let items = self.items(memory);
        for ((what, state), (region, items)) in (100..)
            .zip(&layout.states)
            .zip(self.kv.states.iter().zip(&items))
        {
            for (nr, &item) in (0..).zip(items) {
                let mut places = Vec::new();
                for tensor in &state.tensors {
                    // Tensors of one name are one tensor in any number of layers.
                    let what = what * 256 + u32::try_from(tensor.layer_bytes)?;
                    for head in tensor.dim_start..tensor.dim_start + tensor.dim {
                        let layers = tensor.first_layer..tensor.first_layer + tensor.layers;
                        places.extend(
                            layers.map(|layer| ((what, nr, head, layer), tensor.layer_bytes)),
                        );
                    }
                }
                visit(region, u64::from(item) * state.item_bytes(), &places)?;
            }
        }
        Ok(())
    }
}
