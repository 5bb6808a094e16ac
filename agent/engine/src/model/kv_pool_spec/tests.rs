//! How layers make groups.

use super::*;
use crate::model::config::{Mixer, hf};
use pd_compute::DType;
use std::path::Path;

#[test]
fn layers_that_are_stored_alike_count_within_their_group() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tiny-llama");
    let (mut config, _) = hf::read_config(&folder).unwrap();
    let spec = KvPoolSpec::of(&config);
    assert_eq!(spec.groups.len(), 1);
    assert_eq!(spec.groups[0].layers, [0, 1, 2]);
    assert_eq!(spec.groups[0].elements_per_token(), 3 * 2 * 2 * 16);

    match &mut config.layers[1].mixer {
        Mixer::Attention(attention) => attention.num_kv_heads = 4,
        other @ (Mixer::Mla(_) | Mixer::GatedDelta(_)) => panic!("a llama has no {other:?}"),
    }
    let spec = KvPoolSpec::of(&config);
    let layers: Vec<&[usize]> = spec.groups.iter().map(|group| &group.layers[..]).collect();
    assert_eq!(layers, [&[0, 2][..], &[1]]);
    let place = |group, ordinal| LayerPlace { group, ordinal };
    let places: Vec<LayerPlace> = (0..3).map(|layer| spec.pages_of(layer)).collect();
    assert_eq!(places, [place(0, 0), place(1, 0), place(0, 1)]);
}

#[test]
fn recurrent_layers_have_states_and_the_others_pages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tiny-qwen3-5");
    let spec = KvPoolSpec::of(&hf::read_config(&folder).unwrap().0);
    let layers: Vec<&[usize]> = spec.groups.iter().map(|group| &group.layers[..]).collect();
    assert_eq!(layers, [&[3, 7]]);
    let tensor = |name, dim, elements| StateTensorSpec {
        name,
        dim,
        elements,
    };
    let layers = vec![0, 1, 2, 4, 5, 6];
    let expected = [
        StateSpec {
            name: "conv",
            dtype: StateDtype::Activations,
            layers: layers.clone(),
            tensors: vec![
                tensor("q", 2, 16 * 3),
                tensor("k", 2, 16 * 3),
                tensor("v", 4, 16 * 3),
            ],
        },
        StateSpec {
            name: "recurrent",
            dtype: StateDtype::F32,
            layers,
            tensors: vec![tensor("s", 4, 16 * 16)],
        },
    ];
    assert_eq!(spec.states, expected);
    assert_eq!(spec.states[0].item_bytes(DType::BF16), 6 * 8 * 16 * 3 * 2);
    assert_eq!(spec.states[1].item_bytes(DType::BF16), 6 * 4 * 16 * 16 * 4);
    let place = |group, ordinal| LayerPlace { group, ordinal };
    assert_eq!(spec.pages_of(7), place(0, 1));
    assert_eq!(spec.state_of(4, "recurrent"), place(1, 3));
}
