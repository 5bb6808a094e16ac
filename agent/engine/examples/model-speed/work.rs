//! The least that a device must do for a step: bytes to read, numbers to multiply.

use crate::checkpoint::{Checkpoint, Tensor};
use serde_json::Value;

/// How a layer looks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    /// At this many tokens.
    Window(usize),
    /// At a state.
    Linear,
}

impl Checkpoint {
    fn text(&self) -> &Value {
        self.config.get("text_config").unwrap_or(&self.config)
    }

    /// A number of the config; nothing where it has none of that name.
    fn number(&self, key: &str) -> Option<usize> {
        usize::try_from(self.text()[key].as_u64()?).ok()
    }

    fn kinds(&self) -> Vec<Kind> {
        let layers = self.number("num_hidden_layers").unwrap_or(0);
        let window = self.number("sliding_window").unwrap_or(usize::MAX);
        let kind = |layer: usize| match self.text()["layer_types"][layer].as_str() {
            Some("linear_attention") => Kind::Linear,
            Some("sliding_attention") => Kind::Window(window),
            _ => Kind::Full,
        };
        (0..layers).map(kind).collect()
    }

    /// The share of the routed experts that `rows` tokens need, each of which chooses its own.
    #[allow(clippy::cast_precision_loss, reason = "counts of experts")]
    fn touched(&self, rows: usize) -> f64 {
        let experts = ["num_experts", "n_routed_experts", "num_local_experts"];
        let all = experts.iter().find_map(|key| self.number(key));
        let (Some(all), Some(chosen)) = (all, self.number("num_experts_per_tok")) else {
            return 1.0;
        };
        let missed = 1.0 - chosen as f64 / all as f64;
        1.0 - missed.powf(rows as f64)
    }

    fn is_tied(&self) -> bool {
        !self
            .tensors
            .iter()
            .any(|tensor| tensor.name.starts_with("lm_head"))
    }

    /// Bytes that a step of `requests` tokens reads and, of states, writes; each has `keys` before it.
    #[allow(clippy::cast_precision_loss, reason = "bytes for people")]
    pub(crate) fn step_bytes(&self, requests: usize, keys: usize) -> f64 {
        let weights = self.tensors.iter().map(|tensor| match tensor.role() {
            Role::Embedding if !self.is_tied() => 0.0,
            Role::Routed => self.touched(requests) * tensor.bytes() as f64,
            Role::Embedding | Role::Head | Role::Every => tensor.bytes() as f64,
        });
        let rows = self.kinds().into_iter().map(|kind| match kind {
            Kind::Full => keys * self.token_bytes(),
            Kind::Window(window) => keys.min(window) * self.token_bytes(),
            Kind::Linear => 2 * self.state_elements() * size_of::<f32>(),
        });
        weights.sum::<f64>() + (requests * rows.sum::<usize>()) as f64
    }

    /// Floating-point operations for a prompt; logits are those of its last token.
    #[allow(clippy::cast_precision_loss, reason = "operations for people")]
    pub(crate) fn prompt_flops(&self, tokens: usize) -> f64 {
        let per_token = self.tensors.iter().map(|tensor| match tensor.role() {
            Role::Embedding | Role::Head => 0.0,
            Role::Routed => self.touched(1) * tensor.elements() as f64,
            Role::Every => tensor.elements() as f64,
        });
        let seen = |window: usize| -> usize { (1..=tokens).map(|keys| keys.min(window)).sum() };
        let looks = self.kinds().into_iter().map(|kind| match kind {
            Kind::Full => 2 * seen(tokens) * self.pair_elements(),
            Kind::Window(window) => 2 * seen(window) * self.pair_elements(),
            // A state is read, changed and read again.
            Kind::Linear => 2 * tokens * 3 * self.state_elements(),
        });
        2.0 * tokens as f64 * per_token.sum::<f64>() + looks.sum::<usize>() as f64
    }

    /// Bytes of a layer's keys and values, or its latent, of a token in bfloat16.
    fn token_bytes(&self) -> usize {
        match (self.number("kv_lora_rank"), self.number("qk_rope_head_dim")) {
            (Some(latent), Some(rope)) => 2 * (latent + rope),
            _ => 2 * 2 * self.product(&["num_key_value_heads", "head_dim"]),
        }
    }

    /// Multiplications for one query and one key, of all heads, with that key's values.
    fn pair_elements(&self) -> usize {
        let latents = ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"];
        match latents.map(|key| self.number(key)) {
            [Some(nope), Some(rope), Some(value)] => {
                self.product(&["num_attention_heads"]) * (nope + rope + value)
            }
            _ => 2 * self.product(&["num_attention_heads", "head_dim"]),
        }
    }

    fn state_elements(&self) -> usize {
        self.product(&[
            "linear_num_value_heads",
            "linear_key_head_dim",
            "linear_value_head_dim",
        ])
    }

    fn product(&self, keys: &[&str]) -> usize {
        keys.iter()
            .map(|key| self.number(key).unwrap_or(0))
            .product()
    }
}

/// Which tokens a tensor meets.
enum Role {
    /// A row of it is read, unless it is the head too.
    Embedding,
    Head,
    /// Those that choose its expert.
    Routed,
    Every,
}

impl Tensor {
    fn role(&self) -> Role {
        if self.name.contains("embed_tokens") {
            Role::Embedding
        } else if self.name.starts_with("lm_head") {
            Role::Head
        } else if self.name.contains(".mlp.experts.") {
            Role::Routed
        } else {
            Role::Every
        }
    }

    /// Numbers that are multiplied: two a byte in MXFP4.
    fn elements(&self) -> usize {
        let count = self.shape.iter().product::<usize>();
        if self.shape.len() == 1 || self.name.ends_with("_scales") {
            0
        } else if self.dtype == "U8" {
            2 * count
        } else {
            count
        }
    }
}
