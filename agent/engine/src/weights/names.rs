//! The role of each tensor, and its name in each kind of file.

/// A tensor's role in a dense decoder. Layer numbers count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorRole {
    Embedding,
    OutputNorm,
    LmHead,
    AttnNorm(usize),
    Q(usize),
    K(usize),
    V(usize),
    O(usize),
    QNorm(usize),
    KNorm(usize),
    FfnNorm(usize),
    Gate(usize),
    Up(usize),
    Down(usize),
    /// Divisors of the rotary frequencies; only GGUF files of llama 3 have them.
    RopeFactors,
}

// === impl TensorRole ===

impl TensorRole {
    pub fn hf_name(self) -> String {
        let (layer, name) = match self {
            Self::Embedding => return "model.embed_tokens.weight".to_owned(),
            Self::OutputNorm => return "model.norm.weight".to_owned(),
            Self::LmHead => return "lm_head.weight".to_owned(),
            Self::RopeFactors => return "model.rope_factors".to_owned(),
            Self::AttnNorm(layer) => (layer, "input_layernorm"),
            Self::Q(layer) => (layer, "self_attn.q_proj"),
            Self::K(layer) => (layer, "self_attn.k_proj"),
            Self::V(layer) => (layer, "self_attn.v_proj"),
            Self::O(layer) => (layer, "self_attn.o_proj"),
            Self::QNorm(layer) => (layer, "self_attn.q_norm"),
            Self::KNorm(layer) => (layer, "self_attn.k_norm"),
            Self::FfnNorm(layer) => (layer, "post_attention_layernorm"),
            Self::Gate(layer) => (layer, "mlp.gate_proj"),
            Self::Up(layer) => (layer, "mlp.up_proj"),
            Self::Down(layer) => (layer, "mlp.down_proj"),
        };
        format!("model.layers.{layer}.{name}.weight")
    }

    pub fn gguf_name(self) -> String {
        let (layer, name) = match self {
            Self::Embedding => return "token_embd.weight".to_owned(),
            Self::OutputNorm => return "output_norm.weight".to_owned(),
            Self::LmHead => return "output.weight".to_owned(),
            Self::RopeFactors => return "rope_freqs.weight".to_owned(),
            Self::AttnNorm(layer) => (layer, "attn_norm"),
            Self::Q(layer) => (layer, "attn_q"),
            Self::K(layer) => (layer, "attn_k"),
            Self::V(layer) => (layer, "attn_v"),
            Self::O(layer) => (layer, "attn_output"),
            Self::QNorm(layer) => (layer, "attn_q_norm"),
            Self::KNorm(layer) => (layer, "attn_k_norm"),
            Self::FfnNorm(layer) => (layer, "ffn_norm"),
            Self::Gate(layer) => (layer, "ffn_gate"),
            Self::Up(layer) => (layer, "ffn_up"),
            Self::Down(layer) => (layer, "ffn_down"),
        };
        format!("blk.{layer}.{name}.weight")
    }
}
