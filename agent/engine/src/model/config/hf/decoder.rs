//! What the config.json of several families say in the same words. Both forms of RoPE settings are
//! read: `rope_parameters` (transformers 5) and `rope_theta` with `rope_scaling` (before).

use crate::model::config::fields::Fields;
use crate::model::config::{
    Attention, ConfigError, DenseFfn, Family, Ffn, LayerConfig, Mixer, ModelConfig, Rope,
    RopeScaling, check, invalid, narrow,
};
use serde_json::Value;

const DEFAULT_ROPE_THETA: f64 = 10_000.0;
const DEFAULT_NORM_EPS: f64 = 1e-6;

/// What a family's class in transformers takes for keys that are not written; `None` for what
/// follows from others: as many key-value heads as heads, `hidden_size / heads` for a head.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::model) struct AttentionDefaults {
    pub(in crate::model) num_kv_heads: Option<usize>,
    pub(in crate::model) head_dim: Option<usize>,
}

// === impl Fields ===

impl Fields {
    /// The model that has these layers.
    pub(in crate::model) fn model(
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
            ropes,
            layers,
            tie_word_embeddings: self.flag("tie_word_embeddings")?.unwrap_or(false),
            bos_token_id: self.ids("bos_token_id")?.first().copied(),
            eos_token_ids: self.ids("eos_token_id")?,
        })
    }

    pub(in crate::model) fn num_layers(&self) -> Result<usize, ConfigError> {
        check::num_layers(self.file(), self.size("num_hidden_layers")?)
    }

    fn context_len(&self) -> Result<usize, ConfigError> {
        self.size("max_position_embeddings")
    }

    /// Attention over all earlier keys, without norms and biases, rotated by the first rope.
    pub(in crate::model) fn attention(
        &self,
        defaults: AttentionDefaults,
    ) -> Result<Attention, ConfigError> {
        let hidden_size = self.size("hidden_size")?;
        let num_heads = self.size("num_attention_heads")?;
        let num_kv_heads = self.size_or("num_key_value_heads", defaults.num_kv_heads)?;
        let head_dim = match self.size_or("head_dim", defaults.head_dim)? {
            Some(head_dim) => head_dim,
            None => head_dim_from(self, hidden_size, num_heads)?,
        };
        Ok(Attention {
            num_heads,
            num_kv_heads: num_kv_heads.unwrap_or(num_heads),
            head_dim,
            scale: narrow((head_dim as f64).powf(-0.5)),
            rope: 0,
            qk_norm: false,
            qkv_bias: false,
            window: None,
            gated: false,
        })
    }

    /// Keys that a query sees; `absent` is what the family takes where the key is not written. A
    /// window as long as the context hides nothing, and is none.
    pub(in crate::model) fn sliding_window(
        &self,
        absent: Option<usize>,
    ) -> Result<Option<usize>, ConfigError> {
        let context_len = self.context_len()?;
        let window = self.size_or("sliding_window", absent)?;
        Ok(window.filter(|&window| window < context_len))
    }

    /// A gated feed-forward with SiLU.
    pub(in crate::model) fn dense_ffn(&self) -> Result<Ffn, ConfigError> {
        self.expect_text("hidden_act", "silu")?;
        let width = self.size("intermediate_size")?;
        Ok(Ffn::Dense(DenseFfn { width }))
    }

    /// The one rotation of all layers.
    pub(in crate::model) fn rope(
        &self,
        family: Family,
        rotary_dim: usize,
    ) -> Result<Rope, ConfigError> {
        let parameters = self.rope_parameters()?;
        let rope = self.rope_of(parameters.as_ref(), rotary_dim)?;
        if let Some(parameters) = parameters {
            parameters.refuse_unknown(family, &[])?;
        }
        Ok(rope)
    }

    /// The one rotation of all layers, of a part of each head: of `absent` of it where the file says
    /// nothing. Pairs may be divided among the coordinates of images; text has one position for all.
    pub(in crate::model) fn partial_rope(
        &self,
        family: Family,
        head_dim: usize,
        absent: f64,
    ) -> Result<Rope, ConfigError> {
        const FACTOR: &str = "partial_rotary_factor";
        let parameters = self.rope_parameters()?;
        let beside = self.number(FACTOR)?;
        let inside = parameters.as_ref().map(|inside| inside.number(FACTOR));
        let factor = inside.transpose()?.flatten().or(beside).unwrap_or(absent);
        if !(0.0..=1.0).contains(&factor) {
            return Err(self.expect(FACTOR, &Value::from(factor), "0 to 1"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the reference cuts it off, and it is no more than the head"
        )]
        let rotary_dim = (head_dim as f64 * factor) as usize;
        let rope = self.rope_of(parameters.as_ref(), rotary_dim)?;
        if let Some(parameters) = parameters {
            parameters.refuse_unknown(family, &["mrope_section", "mrope_interleaved"])?;
        }
        Ok(rope)
    }

    fn rope_parameters(&self) -> Result<Option<Self>, ConfigError> {
        Ok(match self.object("rope_parameters")? {
            Some(parameters) => Some(parameters),
            None => self.object("rope_scaling")?,
        })
    }

    fn rope_of(&self, parameters: Option<&Self>, rotary_dim: usize) -> Result<Rope, ConfigError> {
        let beside = self.number("rope_theta")?;
        let (inside, scaling) = match parameters {
            Some(parameters) => (parameters.number("rope_theta")?, rope_scaling(parameters)?),
            None => (None, RopeScaling::None),
        };
        Ok(Rope {
            rotary_dim,
            theta: inside.or(beside).unwrap_or(DEFAULT_ROPE_THETA),
            scaling,
        })
    }

    /// A decoder of dense layers of which some may attend within a window, by Qwen's keys.
    pub(in crate::model) fn windowed_decoder(
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
    const TYPES: &str = "layer_types";
    let is_used = fields.flag("use_sliding_window")?.unwrap_or(false);
    let window = fields.sliding_window(Some(4096))?.filter(|_| is_used);
    let first = fields.size_or("max_window_layers", Some(28))?;
    let Some(types) = fields.texts(TYPES, num_layers)? else {
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
            Err(fields.unsupported(TYPES, kind, supported))
        }
        other => Err(fields.unsupported(TYPES, other, "full_attention, sliding_attention")),
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

fn rope_scaling(parameters: &Fields) -> Result<RopeScaling, ConfigError> {
    // The older key is read even where both are written, as it then says the same.
    let older = parameters.text("type")?;
    let kind = parameters.text("rope_type")?.or(older);
    match kind.unwrap_or("default") {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear {
            factor: parameters.positive("factor")?,
        }),
        "llama3" => llama3_scaling(parameters),
        other => Err(parameters.unsupported("rope_type", other, "default, linear, llama3")),
    }
}

fn llama3_scaling(parameters: &Fields) -> Result<RopeScaling, ConfigError> {
    let low_freq_factor = parameters.positive("low_freq_factor")?;
    let high_freq_factor = parameters.positive("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let expected = format!("more than low_freq_factor {low_freq_factor}");
        let high = Value::from(high_freq_factor);
        return Err(parameters.expect("high_freq_factor", &high, &expected));
    }
    Ok(RopeScaling::Llama3 {
        factor: parameters.positive("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_context_len: parameters.positive("original_max_position_embeddings")?,
    })
}
