//! RoPE settings of config.json, in both forms: `rope_parameters` (transformers 5), and `rope_theta` with
//! `rope_scaling` (before).

use super::Fields;
use crate::model::config::{ConfigError, Family, Rope, RopeScaling, narrow};
use serde_json::Value;

const THETA: &str = "rope_theta";
const DEFAULT_THETA: f64 = 10_000.0;

// === impl Fields ===

impl Fields {
    /// The one rotation of all layers.
    pub(crate) fn rope(&self, family: Family, rotary_dim: usize) -> Result<Rope, ConfigError> {
        let parameters = self.rope_parameters()?;
        self.rope_in(family, parameters.as_ref(), THETA, rotary_dim)
    }

    /// A rotation by `parameters`, with a theta `beside` them where they have none.
    pub(crate) fn rope_in(
        &self,
        family: Family,
        parameters: Option<&Self>,
        beside: &'static str,
        rotary_dim: usize,
    ) -> Result<Rope, ConfigError> {
        let rope = self.rope_of(parameters, beside, rotary_dim)?;
        if let Some(parameters) = parameters {
            parameters.refuse_unknown(family, &[])?;
        }
        Ok(rope)
    }

    /// The one rotation of all layers, of a part of each head. Keys of its parameters that are `neutral` change
    /// nothing.
    pub(crate) fn partial_rope(
        &self,
        family: Family,
        head_dim: usize,
        neutral: &[&str],
    ) -> Result<Rope, ConfigError> {
        const FACTOR: &str = "partial_rotary_factor";
        let parameters = self.rope_parameters()?;
        let beside = self.number(FACTOR)?;
        let inside = parameters.as_ref().map(|inside| inside.number(FACTOR));
        let factor = inside.transpose()?.flatten().or(beside);
        let factor = factor.ok_or_else(|| self.missing(FACTOR))?;
        if !(0.0..=1.0).contains(&factor) {
            return Err(self.expect(FACTOR, &Value::from(factor), "0 to 1"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the reference cuts it off, and it is no more than the head"
        )]
        let rotary_dim = (head_dim as f64 * factor) as usize;
        let rope = self.rope_of(parameters.as_ref(), THETA, rotary_dim)?;
        if let Some(parameters) = parameters {
            parameters.refuse_unknown(family, neutral)?;
        }
        Ok(rope)
    }

    /// What yarn multiplies the scores of latent attention by, where its parameters ask for that.
    pub(crate) fn yarn_score_scale(&self) -> Result<f64, ConfigError> {
        let Some(parameters) = self.rope_parameters()? else {
            return Ok(1.0);
        };
        let RopeScaling::Yarn { factor, .. } = self.rope_scaling(&parameters)? else {
            return Ok(1.0);
        };
        let of_all = parameters.number("mscale_all_dim")?.unwrap_or(0.0);
        Ok(if of_all == 0.0 {
            1.0
        } else {
            by_scale(of_all, factor).powi(2)
        })
    }

    /// The older key counts where both are written; what then is not read of the newer one is refused as unknown.
    fn rope_parameters(&self) -> Result<Option<Self>, ConfigError> {
        Ok(match self.object("rope_scaling")? {
            Some(parameters) => Some(parameters),
            None => self.object("rope_parameters")?,
        })
    }

    fn rope_of(
        &self,
        parameters: Option<&Self>,
        beside: &'static str,
        rotary_dim: usize,
    ) -> Result<Rope, ConfigError> {
        let beside = self.number(beside)?;
        let (inside, scaling) = match parameters {
            Some(parameters) => (parameters.number(THETA)?, self.rope_scaling(parameters)?),
            None => (None, RopeScaling::None),
        };
        Ok(Rope {
            rotary_dim,
            theta: inside.or(beside).unwrap_or(DEFAULT_THETA),
            scaling,
        })
    }

    fn rope_scaling(&self, parameters: &Self) -> Result<RopeScaling, ConfigError> {
        // The older key is read even where both are written, as it then says the same.
        let older = parameters.text("type")?;
        let kind = parameters.text("rope_type")?.or(older);
        match kind.unwrap_or("default") {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear {
                factor: parameters.positive("factor")?,
            }),
            "llama3" => llama3_scaling(parameters),
            "yarn" => self.yarn_scaling(parameters),
            other => {
                let supported = "default, linear, llama3, yarn";
                Err(parameters.unsupported("rope_type", other, supported))
            }
        }
    }

    fn yarn_scaling(&self, parameters: &Self) -> Result<RopeScaling, ConfigError> {
        const ORIGINAL: &str = "original_max_position_embeddings";
        let context_len = self.context_len()? as f64;
        let inside = positive_or(parameters, ORIGINAL, context_len)?;
        let original_context_len = positive_or(self, ORIGINAL, inside)?;
        let factor = positive_or(parameters, "factor", context_len / original_context_len)?;
        Ok(RopeScaling::Yarn {
            factor,
            beta_fast: positive_or(parameters, "beta_fast", 32.0)?,
            beta_slow: positive_or(parameters, "beta_slow", 1.0)?,
            original_context_len,
            truncate: parameters.flag("truncate")?.unwrap_or(true),
            attention_factor: narrow(attention_factor(parameters, factor)?),
        })
    }
}

/// A key's number, or `absent` where it is not written.
fn positive_or(fields: &Fields, key: &'static str, absent: f64) -> Result<f64, ConfigError> {
    fields.get(key).map_or(Ok(absent), |_| fields.positive(key))
}

/// How much larger yarn makes something in a context that is `factor` times as long.
fn by_scale(scale: f64, factor: f64) -> f64 {
    if factor > 1.0 {
        0.1 * scale * factor.ln() + 1.0
    } else {
        1.0
    }
}

fn attention_factor(parameters: &Fields, factor: f64) -> Result<f64, ConfigError> {
    let scale = parameters.number("mscale")?.unwrap_or(0.0);
    let of_all = parameters.number("mscale_all_dim")?.unwrap_or(0.0);
    let absent = if scale != 0.0 && of_all != 0.0 {
        by_scale(scale, factor) / by_scale(of_all, factor)
    } else {
        by_scale(1.0, factor)
    };
    positive_or(parameters, "attention_factor", absent)
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
