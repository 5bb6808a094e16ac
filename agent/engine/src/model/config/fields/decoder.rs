//! What the config.json of several families say in the same words.

use super::Fields;
use super::layer_types::LAYER_TYPES;
use crate::model::config::{
    Attention, ConfigError, DenseFfn, Family, Ffn, LayerConfig, Mixer, ModelConfig, Rope, check,
    invalid, narrow,
};

const DEFAULT_NORM_EPS: f64 = 1e-6;

// === impl Fields ===

impl Fields {
    /// The model that has these layers.
    pub(crate) fn model(
        &self,
        family: Family,
        ropes: Vec<Rope>,
        layers: Vec<LayerConfig>,
    ) -> Result<ModelConfig, ConfigError> {
        Ok(ModelConfig {
            family,
            hidden_size: self.size("hidden_size")?,
            vocab_size: self.size("vocab_size")?,
            context_len: self.context_len()?,
            rms_norm_eps: narrow(self.number("rms_norm_eps")?.unwrap_or(DEFAULT_NORM_EPS)),
            norm_plus_one: false,
            embed_scale: None,
            final_softcap: None,
            ropes,
            layers,
            tie_word_embeddings: self.flag("tie_word_embeddings")?.unwrap_or(false),
            fp8: None,
            draft_layer: None,
            bos_token_id: self.ids("bos_token_id")?.first().copied(),
            eos_token_ids: self.ids("eos_token_id")?,
        })
    }

    pub(crate) fn num_layers(&self) -> Result<usize, ConfigError> {
        check::num_layers(self.file(), self.size("num_hidden_layers")?)
    }

    pub(super) fn context_len(&self) -> Result<usize, ConfigError> {
        self.size("max_position_embeddings")
    }

    /// Attention over all earlier keys, without norms and biases, rotated by the first rope. Where keys say
    /// nothing, there are as many key-value heads as heads, and a head has `hidden_size / heads` elements.
    pub(crate) fn attention(&self) -> Result<Attention, ConfigError> {
        let hidden_size = self.size("hidden_size")?;
        let num_heads = self.size("num_attention_heads")?;
        let num_kv_heads = self.size_opt("num_key_value_heads")?;
        let head_dim = match self.size_opt("head_dim")? {
            Some(head_dim) => head_dim,
            None => head_dim_from(self, hidden_size, num_heads)?,
        };
        Ok(Attention::plain(num_heads, num_kv_heads, head_dim))
    }

    /// Keys that a query sees. A window as long as the context hides nothing, and is none.
    pub(crate) fn sliding_window(&self) -> Result<Option<usize>, ConfigError> {
        let context_len = self.context_len()?;
        let window = self.size_opt("sliding_window")?;
        Ok(window.filter(|&window| window < context_len))
    }

    /// A gated feed-forward with SiLU.
    pub(crate) fn dense_ffn(&self) -> Result<Ffn, ConfigError> {
        self.expect_text("hidden_act", "silu")?;
        let width = self.size("intermediate_size")?;
        Ok(Ffn::Dense(DenseFfn::silu(width)))
    }

    /// A decoder of dense layers of which some may attend within a window, by Qwen's keys.
    pub(crate) fn windowed_decoder(
        &self,
        family: Family,
        attention: Attention,
    ) -> Result<ModelConfig, ConfigError> {
        let ffn = self.dense_ffn()?;
        let layer = |window| LayerConfig {
            mixer: Mixer::Attention(Attention {
                window,
                ..attention
            }),
            ffn,
        };
        let windows = windows(self, self.num_layers()?)?;
        let rope = self.rope(family, attention.head_dim)?;
        self.model(family, vec![rope], windows.into_iter().map(layer).collect())
    }
}

/// The window of each layer, if any is used: as `layer_types` says, or else of the layers from
/// `max_window_layers` on.
fn windows(fields: &Fields, num_layers: usize) -> Result<Vec<Option<usize>>, ConfigError> {
    let is_used = fields.flag("use_sliding_window")?.unwrap_or(false);
    let window = fields.sliding_window()?.filter(|_| is_used);
    let first = fields.size_opt("max_window_layers")?;
    let Some(types) = fields.texts(LAYER_TYPES, num_layers)? else {
        let windowed = |layer| first.is_some_and(|first| layer >= first);
        let layers = 0..num_layers;
        return Ok(layers
            .map(|layer| window.filter(|_| windowed(layer)))
            .collect());
    };
    let of_type = |kind: &&str| match *kind {
        "full_attention" => Ok(None),
        "sliding_attention" if is_used => Ok(window),
        "sliding_attention" => {
            let supported = "full_attention while use_sliding_window is false";
            Err(fields.unsupported(LAYER_TYPES, kind, supported))
        }
        other => Err(fields.unsupported(LAYER_TYPES, other, "full_attention, sliding_attention")),
    };
    types.iter().map(of_type).collect()
}

fn head_dim_from(fields: &Fields, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    if heads == 0 || !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of hidden_size {hidden}, since head_dim is not given");
        return Err(invalid(
            fields.file(),
            "num_attention_heads",
            heads,
            expected,
        ));
    }
    Ok(hidden / heads)
}
