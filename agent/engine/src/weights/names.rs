//! The role of each tensor, and the names that most families give them in each kind of file. A
//! family with names of its own has a function of its own, which falls back on these.

/// A tensor's role in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Embedding,
    OutputNorm,
    LmHead,
    /// Divisors of the rotary frequencies; only GGUF files of llama 3 have them.
    RopeFactors,
    /// Layers count from 0. A draft layer is the one after the last.
    Layer(usize, LayerRole),
    /// Of what a draft layer has beside a layer's tensors.
    Draft(DraftRole),
}

/// A tensor's role around a draft layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DraftRole {
    /// Of the embedding of the token that is known.
    EmbeddingNorm,
    /// Of the model's state before that token.
    HiddenNorm,
    /// `[hidden][2 · hidden]`: of the normed embedding and, after it, the normed state.
    Projection,
    OutputNorm,
}

/// What the files of a family call the tensors of a draft layer.
#[derive(Clone, Copy, Debug)]
pub struct DraftNames {
    /// Before the names of the draft and of its layers, which then count from 0. `None`: it is among the model's
    /// layers, after the last.
    pub prefix: Option<&'static str>,
    pub embedding_norm: &'static str,
    pub hidden_norm: &'static str,
    pub projection: &'static str,
    pub output_norm: &'static str,
}

/// A tensor's role in a layer, of any mixer and feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerRole {
    InputNorm,
    Q,
    K,
    V,
    QBias,
    KBias,
    VBias,
    /// A score for each query head.
    Sinks,
    QNorm,
    KNorm,
    O,
    OBias,
    /// Of what the mixer adds to the residual stream.
    MixerOutNorm,
    /// Of gated delta layers: q, k and v; the norm's gate; β; the decay.
    DeltaQkv,
    DeltaZ,
    DeltaB,
    DeltaA,
    /// The same rows grouped by key head: q, k, v and z of each; β and the decay of each.
    DeltaQkvz,
    DeltaBa,
    /// `[channels][1][taps]`.
    Conv,
    ALog,
    DtBias,
    DeltaNorm,
    DeltaOut,
    /// Of multi-head latent attention: queries by way of a narrow product, where there is one; the latent with its
    /// key; keys and values of all heads.
    QA,
    QANorm,
    QB,
    KvA,
    KvANorm,
    KvB,
    FfnNorm,
    /// Of what the feed-forward adds to the residual stream.
    FfnOutNorm,
    Gate,
    Up,
    Down,
    /// Scores of all experts.
    Router,
    /// Of the expert that all tokens go through.
    Shared(ExpertRole),
    /// The factor of that expert.
    SharedGate,
    RouterBias,
    /// Added to scores where experts are chosen.
    ChoiceBias,
    /// Of one expert, which files with a tensor for each have.
    Expert(usize, ExpertRole),
    /// Of all experts of the layer, one after another.
    Experts(ExpertsRole),
}

/// A matrix of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertRole {
    Gate,
    Up,
    Down,
}

/// A matrix of all experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertsRole {
    Gate,
    Up,
    /// The rows of an expert's gate, then those of its up.
    GateUp,
    Down,
    /// `[experts · hidden][2 · width]`: columns of gate and up in turns, where those are rows of others.
    GateUpColumns,
    /// `[experts · width][hidden]`.
    DownColumns,
    /// MXFP4, rows of gate and up in turns.
    GateUpBlocks,
    GateUpScales,
    DownBlocks,
    DownScales,
    /// `[experts][2 · width]`: gate and up in turns.
    GateUpBias,
    /// `[experts][hidden]`.
    DownBias,
}

/// A tensor's name in a Hugging Face folder, where names of the decoder begin with the prefix;
/// `None` where such folders have no tensor of the role.
pub type HfNames = fn(Role, prefix: &str) -> Option<String>;

/// A tensor's name in a GGUF file; `None` where such files have no tensor of the role.
pub type GgufNames = fn(Role) -> Option<String>;

/// The names that transformers gives the tensors of a llama, and of most families after it.
pub fn hf(role: Role, prefix: &str) -> Option<String> {
    let (layer, role) = match role {
        Role::Embedding => return Some(format!("{prefix}embed_tokens.weight")),
        Role::OutputNorm => return Some(format!("{prefix}norm.weight")),
        Role::LmHead => return Some("lm_head.weight".to_owned()),
        Role::RopeFactors | Role::Draft(_) => return None,
        Role::Layer(layer, role) => (layer, role),
    };
    let name = match role {
        LayerRole::InputNorm => "input_layernorm.weight",
        LayerRole::Q => "self_attn.q_proj.weight",
        LayerRole::K => "self_attn.k_proj.weight",
        LayerRole::V => "self_attn.v_proj.weight",
        LayerRole::QBias => "self_attn.q_proj.bias",
        LayerRole::KBias => "self_attn.k_proj.bias",
        LayerRole::VBias => "self_attn.v_proj.bias",
        LayerRole::Sinks => "self_attn.sinks",
        LayerRole::QNorm => "self_attn.q_norm.weight",
        LayerRole::KNorm => "self_attn.k_norm.weight",
        LayerRole::O => "self_attn.o_proj.weight",
        LayerRole::OBias => "self_attn.o_proj.bias",
        LayerRole::DeltaQkv => "linear_attn.in_proj_qkv.weight",
        LayerRole::DeltaZ => "linear_attn.in_proj_z.weight",
        LayerRole::DeltaB => "linear_attn.in_proj_b.weight",
        LayerRole::DeltaA => "linear_attn.in_proj_a.weight",
        LayerRole::Conv => "linear_attn.conv1d.weight",
        LayerRole::ALog => "linear_attn.A_log",
        LayerRole::DtBias => "linear_attn.dt_bias",
        LayerRole::DeltaNorm => "linear_attn.norm.weight",
        LayerRole::DeltaOut => "linear_attn.out_proj.weight",
        LayerRole::MixerOutNorm
        | LayerRole::FfnOutNorm
        | LayerRole::DeltaQkvz
        | LayerRole::DeltaBa
        | LayerRole::QA
        | LayerRole::QANorm
        | LayerRole::QB
        | LayerRole::KvA
        | LayerRole::KvANorm
        | LayerRole::KvB
        | LayerRole::ChoiceBias => return None,
        LayerRole::FfnNorm => "post_attention_layernorm.weight",
        LayerRole::Gate => "mlp.gate_proj.weight",
        LayerRole::Up => "mlp.up_proj.weight",
        LayerRole::Down => "mlp.down_proj.weight",
        LayerRole::Router => "mlp.gate.weight",
        LayerRole::Shared(ExpertRole::Gate) => "mlp.shared_expert.gate_proj.weight",
        LayerRole::Shared(ExpertRole::Up) => "mlp.shared_expert.up_proj.weight",
        LayerRole::Shared(ExpertRole::Down) => "mlp.shared_expert.down_proj.weight",
        LayerRole::SharedGate => "mlp.shared_expert_gate.weight",
        LayerRole::RouterBias => "mlp.gate.bias",
        LayerRole::Expert(expert, role) => {
            let matrix = match role {
                ExpertRole::Gate => "gate",
                ExpertRole::Up => "up",
                ExpertRole::Down => "down",
            };
            let name = format!("mlp.experts.{expert}.{matrix}_proj.weight");
            return Some(format!("{prefix}layers.{layer}.{name}"));
        }
        LayerRole::Experts(role) => hf_experts(role)?,
    };
    Some(format!("{prefix}layers.{layer}.{name}"))
}

/// The names within a layer of tensors that hold all its experts.
fn hf_experts(role: ExpertsRole) -> Option<&'static str> {
    match role {
        ExpertsRole::Gate
        | ExpertsRole::Up
        | ExpertsRole::GateUpColumns
        | ExpertsRole::DownColumns => None,
        ExpertsRole::GateUp => Some("mlp.experts.gate_up_proj"),
        ExpertsRole::Down => Some("mlp.experts.down_proj"),
        ExpertsRole::GateUpBlocks => Some("mlp.experts.gate_up_proj_blocks"),
        ExpertsRole::GateUpScales => Some("mlp.experts.gate_up_proj_scales"),
        ExpertsRole::DownBlocks => Some("mlp.experts.down_proj_blocks"),
        ExpertsRole::DownScales => Some("mlp.experts.down_proj_scales"),
        ExpertsRole::GateUpBias => Some("mlp.experts.gate_up_proj_bias"),
        ExpertsRole::DownBias => Some("mlp.experts.down_proj_bias"),
    }
}

/// The names of a family whose layers have `own` ones for some roles, or (`None`) no tensors of them, and those of a
/// llama for the others.
pub fn hf_with(own: &[(LayerRole, Option<&str>)], role: Role, prefix: &str) -> Option<String> {
    let Role::Layer(layer, of_layer) = role else {
        return hf(role, prefix);
    };
    match own.iter().find(|(role, _)| *role == of_layer) {
        Some((_, name)) => name.map(|name| format!("{prefix}layers.{layer}.{name}")),
        None => hf(role, prefix),
    }
}

/// The names that llama.cpp gives the tensors of the architectures that are read, the same in all of them.
pub fn gguf(role: Role) -> Option<String> {
    let (layer, role) = match role {
        Role::Embedding => return Some("token_embd.weight".to_owned()),
        Role::OutputNorm => return Some("output_norm.weight".to_owned()),
        Role::LmHead => return Some("output.weight".to_owned()),
        Role::RopeFactors => return Some("rope_freqs.weight".to_owned()),
        Role::Draft(_) => return None,
        Role::Layer(layer, role) => (layer, role),
    };
    let name = match role {
        LayerRole::InputNorm => "attn_norm.weight",
        LayerRole::Q => "attn_q.weight",
        LayerRole::K => "attn_k.weight",
        LayerRole::V => "attn_v.weight",
        LayerRole::QBias => "attn_q.bias",
        LayerRole::KBias => "attn_k.bias",
        LayerRole::VBias => "attn_v.bias",
        LayerRole::QNorm => "attn_q_norm.weight",
        LayerRole::KNorm => "attn_k_norm.weight",
        LayerRole::O => "attn_output.weight",
        LayerRole::DeltaQkv
        | LayerRole::DeltaZ
        | LayerRole::DeltaB
        | LayerRole::DeltaA
        | LayerRole::Conv
        | LayerRole::ALog
        | LayerRole::DtBias
        | LayerRole::DeltaNorm
        | LayerRole::DeltaOut
        | LayerRole::DeltaQkvz
        | LayerRole::DeltaBa
        | LayerRole::QA
        | LayerRole::QANorm
        | LayerRole::QB
        | LayerRole::KvA
        | LayerRole::KvANorm
        | LayerRole::KvB
        | LayerRole::ChoiceBias
        | LayerRole::Sinks
        | LayerRole::OBias
        | LayerRole::MixerOutNorm
        | LayerRole::FfnOutNorm
        | LayerRole::Shared(_)
        | LayerRole::SharedGate
        | LayerRole::RouterBias
        | LayerRole::Expert(..) => return None,
        LayerRole::FfnNorm => "ffn_norm.weight",
        LayerRole::Gate => "ffn_gate.weight",
        LayerRole::Up => "ffn_up.weight",
        LayerRole::Down => "ffn_down.weight",
        LayerRole::Router => "ffn_gate_inp.weight",
        LayerRole::Experts(role) => match role {
            ExpertsRole::Gate => "ffn_gate_exps.weight",
            ExpertsRole::Up => "ffn_up_exps.weight",
            ExpertsRole::GateUp => "ffn_gate_up_exps.weight",
            ExpertsRole::Down => "ffn_down_exps.weight",
            ExpertsRole::GateUpColumns
            | ExpertsRole::DownColumns
            | ExpertsRole::GateUpBlocks
            | ExpertsRole::GateUpScales
            | ExpertsRole::DownBlocks
            | ExpertsRole::DownScales
            | ExpertsRole::GateUpBias
            | ExpertsRole::DownBias => return None,
        },
    };
    Some(format!("blk.{layer}.{name}"))
}
