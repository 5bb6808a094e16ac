//! What an epoch of the soak is: two pools of ranks, what their memory means, and the requests, all drawn from
//! a seed, so that both sides know them without an exchange between them.

use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use pd_protocol::layout::{
    KvCut, KvDtype, KvGroup, KvLayout, PAGE_ORDER, ParallelLayout, RankId, StateLayout,
    StateTensor, StateType,
};
use pd_protocol::metadata::MetadataLayout;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Requests that each side works on at once.
pub(crate) const WINDOW: usize = 24;
/// Most pages of a request.
pub(crate) const PAGES_MAX: u32 = 8;
const LAYERS: u32 = 6;
const PAGE_SIZE: u32 = 16;
const HEAD_DIM: u32 = 32;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    /// tcp or shm.
    pub(crate) is_shm: bool,
    pub(crate) prefill: ParallelLayout,
    pub(crate) decode: ParallelLayout,
    heads: u32,
    has_latent: bool,
    has_states: bool,
    prefill_cuts: u32,
    decode_cuts: u32,
}

/// One request, as both sides know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) pages: u32,
    /// Pages of a chunk.
    pub(crate) chunk: usize,
    /// The side that gives it up by itself, if one does.
    pub(crate) given_up_by: Option<Side>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Prefill,
    Decode,
}

/// Names some bytes of a request: what of, which of its pages or items, head, layer.
pub(crate) type Position = (u32, u32, u32, u32);

impl Epoch {
    pub(crate) fn draw(seed: u64, number: u64) -> Self {
        let mut draw = StdRng::seed_from_u64(seed ^ (number << 32));
        let mut of = |choices: &[u32]| *choices.choose(&mut draw).expect("there are some");
        let pp_size = of(&[1, 1, 2, 3]);
        let pool = |tp_size, pp_size, dp_size| ParallelLayout {
            tp_size,
            pp_size,
            dp_size,
            cp_size: 1,
        };
        let staged = of(&[0, 1]) == 1;
        Self {
            number,
            seed,
            is_shm: number % 2 == 1,
            prefill: pool(of(&[1, 2, 4]), pp_size, of(&[1, 1, 2])),
            decode: pool(of(&[1, 2, 4]), if staged { pp_size } else { 1 }, 1),
            heads: of(&[2, 4, 8]),
            has_latent: of(&[0, 1]) == 1,
            has_states: of(&[0, 1]) == 1,
            prefill_cuts: of(&[1, 2]),
            decode_cuts: of(&[1, 2, 3]),
        }
    }

    pub(crate) fn transport(&self) -> TransportChoice {
        if self.is_shm {
            TransportChoice::Only(Transport::Shm)
        } else {
            TransportChoice::Only(Transport::Tcp)
        }
    }

    pub(crate) fn pool(&self, side: Side) -> ParallelLayout {
        match side {
            Side::Prefill => self.prefill,
            Side::Decode => self.decode,
        }
    }

    pub(crate) fn request(&self, room: u64) -> Request {
        let mut draw = StdRng::seed_from_u64(self.seed ^ room.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let pages = draw.random_range(1..=PAGES_MAX);
        let given_up_by = match draw.random_range(0..100) {
            0 => Some(Side::Prefill),
            1 => Some(Side::Decode),
            _ => None,
        };
        Request {
            pages,
            chunk: draw.random_range(1..=pages as usize),
            given_up_by,
        }
    }

    /// Pages of a rank: those of as many requests as are worked on, so that they are used again at once.
    pub(crate) fn pool_pages() -> u32 {
        u32::try_from(WINDOW).expect("few") * PAGES_MAX
    }

    pub(crate) fn layout(&self, side: Side, rank: RankId) -> KvLayout {
        let pool = self.pool(side);
        let layers =
            LAYERS * rank.pp_rank / pool.pp_size..LAYERS * (rank.pp_rank + 1) / pool.pp_size;
        let cuts = match side {
            Side::Prefill => cut(layers, self.prefill_cuts),
            Side::Decode => cut(layers, self.decode_cuts),
        };
        let of_rank = (rank.tp_rank, pool.tp_size);
        let mut groups = vec![group(
            "full",
            2,
            held(self.heads, of_rank),
            self.heads,
            &cuts,
        )];
        if self.has_latent {
            groups.push(group("latent", 1, 0..1, 1, &cuts));
        }
        let rows = u32::try_from(WINDOW).expect("few");
        let mut states = Vec::new();
        if self.has_states {
            let conv = tensors("conv", held(self.heads, of_rank), self.heads, 24, &cuts);
            let ssm = tensors("ssm", held(self.heads, of_rank), self.heads, 128, &cuts);
            states.push(state(
                "recurrent",
                StateType::Mamba,
                rows,
                [conv, ssm].concat(),
            ));
            let keys = tensors("keys", 0..1, 1, 64, &cuts);
            states.push(state("index", StateType::Nsa, Self::pool_pages(), keys));
        }
        KvLayout {
            order: PAGE_ORDER.to_owned(),
            page_size: PAGE_SIZE,
            pages: Self::pool_pages(),
            groups,
            states,
            metadata: MetadataLayout {
                hidden_size: 8,
                hidden_dtype: KvDtype::Float32,
            },
            metadata_rows: rows,
        }
    }
}

/// The heads of `total` that a rank has.
fn held(total: u32, (rank, size): (u32, u32)) -> Range<u32> {
    let first = rank * total / size;
    first..first + (total / size).max(1)
}

fn cut(layers: Range<u32>, cuts: u32) -> Vec<Range<u32>> {
    let each = (layers.end - layers.start).div_ceil(cuts).max(1);
    let starts = layers.clone().step_by(each as usize);
    starts
        .map(|start| start..(start + each).min(layers.end))
        .collect()
}

fn group(name: &str, tensors: u32, heads: Range<u32>, total: u32, cuts: &[Range<u32>]) -> KvGroup {
    let cut = |layers: &Range<u32>| KvCut {
        first_layer: layers.start,
        layers: layers.end - layers.start,
    };
    KvGroup {
        name: name.to_owned(),
        dtype: KvDtype::Bfloat16,
        head_dim: HEAD_DIM,
        tensors,
        total_heads: total,
        head_start: heads.start,
        heads: heads.end - heads.start,
        cuts: cuts.iter().map(cut).collect(),
    }
}

fn tensors(
    name: &str,
    dim: Range<u32>,
    total_dim: u32,
    layer_bytes: u64,
    cuts: &[Range<u32>],
) -> Vec<StateTensor> {
    let tensor = |layers: &Range<u32>| StateTensor {
        name: name.to_owned(),
        total_dim,
        dim_start: dim.start,
        dim: dim.end - dim.start,
        first_layer: layers.start,
        layers: layers.end - layers.start,
        layer_bytes,
    };
    cuts.iter().map(tensor).collect()
}

fn state(name: &str, state_type: StateType, slots: u32, tensors: Vec<StateTensor>) -> StateLayout {
    StateLayout {
        name: name.to_owned(),
        state_type,
        slots,
        tensors,
    }
}

/// The bytes of a place of a request, the same on both sides.
pub(crate) fn content(seed: u64, room: u64, place: Position, len: u64) -> Vec<u8> {
    let (what, item, head, layer) = place;
    let name =
        u64::from(what) << 48 | u64::from(item) << 32 | u64::from(head) << 16 | u64::from(layer);
    let mut word = (seed ^ room.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        (word ^ (word >> 29)).to_le_bytes()
    });
    words.take(usize::try_from(len).expect("small")).collect()
}
