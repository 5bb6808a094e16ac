//! Bounds of a configuration's numbers, and what must hold between them. Numbers beyond these
//! bounds are mistakes.

use super::{
    Attention, ConfigError, DenseFfn, ExpertGroups, Ffn, GatedDelta, Glu, GroupScore, Mixer, Mla,
    ModelConfig, MoeFfn, Rope, SharedExpert, invalid,
};
use crate::model::rope::inverse_frequencies;
use std::fmt::Display;

const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_VOCAB: usize = 1 << 22;
const MAX_HEAD_DIM: usize = 1024;
const MAX_EXPERTS: usize = 1 << 14;
const MAX_CONTEXT: usize = 1 << 26;
const MAX_TAPS: usize = 64;

/// A number of layers, before they are listed.
///
/// # Errors
/// When no model has that many.
pub(super) fn num_layers(file: &str, num_layers: usize) -> Result<usize, ConfigError> {
    Check(file).within("number of layers", num_layers, MAX_LAYERS)?;
    Ok(num_layers)
}

/// Checks for a file, which refusals name.
struct Check<'a>(&'a str);

// === impl ModelConfig ===

impl ModelConfig {
    /// Checks that involve several keys, and that every layer can be computed.
    ///
    /// # Errors
    /// Names the key, its value and what was expected.
    pub(crate) fn check(&self, file: &str) -> Result<(), ConfigError> {
        let check = Check(file);
        check.within("hidden size", self.hidden_size, MAX_WIDTH)?;
        check.within("vocabulary size", self.vocab_size, MAX_VOCAB)?;
        check.within("context length", self.context_len, MAX_CONTEXT)?;
        check.positive("norm epsilon", f64::from(self.rms_norm_eps))?;
        for (key, value) in [
            ("embedding scale", self.embed_scale),
            ("cap of the logits", self.final_softcap),
        ] {
            value.map_or(Ok(()), |value| check.positive(key, f64::from(value)))?;
        }
        num_layers(file, self.layers.len())?;
        if !self
            .layers
            .iter()
            .any(|layer| matches!(layer.mixer, Mixer::Attention(_) | Mixer::Mla(_)))
        {
            let expected = "at least one layer of attention".to_owned();
            return Err(check.invalid("layers", "without attention", expected));
        }
        for layer in &self.layers {
            match &layer.mixer {
                Mixer::Attention(attention) => {
                    check.attention(attention)?;
                    check.rope(&self.ropes[attention.rope], attention.head_dim)?;
                }
                Mixer::Mla(mla) => {
                    check.mla(mla)?;
                    check.rope(&self.ropes[mla.rope], mla.rope_dim)?;
                }
                Mixer::GatedDelta(delta) => check.gated_delta(delta)?,
            }
            match &layer.ffn {
                Ffn::Dense(DenseFfn { width, glu, .. }) => {
                    check.within("feed-forward size", *width, MAX_WIDTH)?;
                    check.glu(*glu)?;
                }
                Ffn::Moe(moe) => check.experts(moe)?,
            }
        }
        // Those that no layer uses make tables, too.
        for rope in &self.ropes {
            check.rope(rope, MAX_HEAD_DIM)?;
        }
        let special = self.eos_token_ids.iter().chain(&self.bos_token_id);
        for &id in special {
            if id as usize >= self.vocab_size {
                let expected = format!("an id below the vocabulary size {}", self.vocab_size);
                return Err(invalid(file, "a begin or end token", id, expected));
            }
        }
        Ok(())
    }
}

// === impl Check ===

impl Check<'_> {
    fn invalid(&self, key: &str, value: impl Display, expected: String) -> ConfigError {
        invalid(self.0, key, value, expected)
    }

    fn within(&self, key: &str, value: usize, max: usize) -> Result<(), ConfigError> {
        if (1..=max).contains(&value) {
            Ok(())
        } else {
            Err(self.invalid(key, value, format!("1 to {max}")))
        }
    }

    fn positive(&self, key: &str, value: f64) -> Result<(), ConfigError> {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(self.invalid(key, value, "a positive number".to_owned()))
        }
    }

    fn attention(&self, attention: &Attention) -> Result<(), ConfigError> {
        let Attention {
            num_heads,
            num_kv_heads,
            head_dim,
            scale,
            ..
        } = *attention;
        self.within("number of attention heads", num_heads, MAX_WIDTH)?;
        self.within("number of key-value heads", num_kv_heads, MAX_WIDTH)?;
        self.within("head size", head_dim, MAX_HEAD_DIM)?;
        self.positive("scale of attention", f64::from(scale))?;
        if !num_heads.is_multiple_of(num_kv_heads) {
            let expected = format!("a divisor of the {num_heads} attention heads");
            return Err(self.invalid("number of key-value heads", num_kv_heads, expected));
        }
        Ok(())
    }

    fn experts(&self, moe: &MoeFfn) -> Result<(), ConfigError> {
        self.within("number of experts", moe.num_experts, MAX_EXPERTS)?;
        self.within("number of a token's experts", moe.top_k, moe.num_experts)?;
        self.within("size of an expert", moe.width, MAX_WIDTH)?;
        self.glu(moe.glu)?;
        self.positive("scale of experts' weights", f64::from(moe.scale))?;
        if let Some(groups) = moe.groups {
            self.groups(moe, groups)?;
        }
        moe.shared
            .map_or(Ok(()), |SharedExpert { width, gated: _ }| {
                self.within("size of the shared expert", width, MAX_WIDTH)
            })
    }

    fn groups(&self, moe: &MoeFfn, groups: ExpertGroups) -> Result<(), ConfigError> {
        let ExpertGroups {
            count,
            chosen,
            score,
        } = groups;
        let least = match score {
            GroupScore::Best => 1,
            GroupScore::SumOfTwoBest => 2,
        };
        self.within("number of groups of experts", count, moe.num_experts)?;
        if !moe.num_experts.is_multiple_of(count) || moe.num_experts / count < least {
            let experts = moe.num_experts;
            let expected = format!("equal groups of {least} or more of the {experts} experts");
            return Err(self.invalid("number of groups of experts", count, expected));
        }
        self.within("number of a token's groups of experts", chosen, count)?;
        let choice = moe.num_experts / count * chosen;
        self.within("number of a token's experts", moe.top_k, choice)
    }

    fn mla(&self, mla: &Mla) -> Result<(), ConfigError> {
        let Mla {
            num_heads,
            q_lora_rank,
            kv_lora_rank,
            nope_dim,
            rope_dim,
            v_dim,
            scale,
            rope: _,
            rope_interleaved: _,
        } = *mla;
        self.within("number of attention heads", num_heads, MAX_WIDTH)?;
        for (key, dim) in [
            ("size of the unrotated part of a head", nope_dim),
            ("size of the rotated part of a head", rope_dim),
            ("size of a head's value", v_dim),
        ] {
            self.within(key, dim, MAX_HEAD_DIM)?;
        }
        q_lora_rank.map_or(Ok(()), |rank| self.within("q_lora_rank", rank, MAX_WIDTH))?;
        self.within("kv_lora_rank", kv_lora_rank, MAX_WIDTH)?;
        self.positive("scale of attention", f64::from(scale))
    }

    fn glu(&self, glu: Glu) -> Result<(), ConfigError> {
        match glu {
            Glu::Silu | Glu::GeluTanh => Ok(()),
            Glu::ClampedSilu { alpha, limit } => {
                self.positive("alpha of the gate", f64::from(alpha))?;
                self.positive("limit of the gate", f64::from(limit))
            }
        }
    }

    fn gated_delta(&self, delta: &GatedDelta) -> Result<(), ConfigError> {
        let GatedDelta {
            num_k_heads,
            num_v_heads,
            k_dim,
            v_dim,
            taps,
        } = *delta;
        self.within("number of linear key heads", num_k_heads, MAX_WIDTH)?;
        self.within("number of linear value heads", num_v_heads, MAX_WIDTH)?;
        self.within("linear key head size", k_dim, MAX_HEAD_DIM)?;
        self.within("linear value head size", v_dim, MAX_HEAD_DIM)?;
        self.within("convolution size", taps, MAX_TAPS)?;
        if taps < 2 {
            return Err(self.invalid("convolution size", taps, format!("2 to {MAX_TAPS}")));
        }
        if !num_v_heads.is_multiple_of(num_k_heads) {
            let expected = format!("a multiple of the {num_k_heads} linear key heads");
            return Err(self.invalid("number of linear value heads", num_v_heads, expected));
        }
        Ok(())
    }

    fn rope(&self, rope: &Rope, head_dim: usize) -> Result<(), ConfigError> {
        let rotary_dim = rope.rotary_dim;
        if !rotary_dim.is_multiple_of(2) || !(1..=head_dim).contains(&rotary_dim) {
            let expected = format!("an even number up to {head_dim}, since RoPE rotates pairs");
            return Err(self.invalid("size of the rotated part of a head", rotary_dim, expected));
        }
        let factor = f64::from(rope.attention_factor());
        self.positive("attention factor of rope", factor)?;
        self.positive("rope theta", rope.theta)?;
        let frequencies = inverse_frequencies(rope, None);
        match frequencies
            .into_iter()
            .find(|frequency| !frequency.is_finite())
        {
            Some(frequency) => {
                let expected = "finite numbers: theta or a factor is out of proportion".to_owned();
                Err(self.invalid("frequencies of rope", frequency, expected))
            }
            None => Ok(()),
        }
    }
}
