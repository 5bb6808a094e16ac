//! What a model asks of a backend beyond the ops of a dense decoder.

use super::config::ModelConfig;
use super::kv_pool_spec::KvPoolSpec;
use super::{ffn, mixer};
use pd_compute::{DType, KvNeeds, OpFeature, OpNeeds};

/// What a model of `config` needs of a backend, with a KV pool of `kv_dtype`. Asked before weights are read.
pub fn needs(config: &ModelConfig, kv_dtype: DType) -> OpNeeds {
    let layers = config.kept_layers();
    let features = layers.flat_map(|layer| {
        let mixer = mixer::needs(&layer.mixer);
        mixer.into_iter().chain(ffn::needs(&layer.ffn))
    });
    let scale = config.embed_scale.map(|_| OpFeature::EmbedScale);
    let cap = config.final_softcap.map(|_| OpFeature::LogitSoftCap);
    let groups = KvPoolSpec::of(config).groups.into_iter();
    OpNeeds {
        features: features.chain(scale).chain(cap).collect(),
        kv: groups
            .map(|group| KvNeeds {
                dtype: kv_dtype,
                head_dim: group.head_dim,
            })
            .collect(),
    }
}
