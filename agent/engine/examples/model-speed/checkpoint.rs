//! Checkpoints in the shapes of real models, with generated weights.

use crate::published;
use pd_compute_proof::speed::fill_with_noise;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Longest context of the dense checkpoints, in tokens.
pub(crate) const CONTEXT: usize = 40_960;
/// Random bytes that are written repeatedly.
const BLOCK_BYTES: usize = 16 << 20;
/// Of 32 codes in MXFP4: 2^-6.
const MXFP4_SCALE: u8 = 121;

/// What a folder as Hugging Face has them holds, without its bytes.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) name: String,
    pub(crate) config: Value,
    pub(crate) tensors: Vec<Tensor>,
}

#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// As safetensors spells it.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
}

/// A dense Qwen3's sizes.
struct Dense {
    name: &'static str,
    layers: usize,
    hidden: usize,
    intermediate: usize,
    q_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab: usize,
    /// The LM head is the embedding.
    tied: bool,
}

/// Source: the models' config.json; the last is for trying the program.
const DENSE: [Dense; 4] = [
    Dense {
        name: "Qwen3-0.6B",
        layers: 28,
        hidden: 1024,
        intermediate: 3072,
        q_heads: 16,
        kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        tied: true,
    },
    Dense {
        name: "Qwen3-4B",
        layers: 36,
        hidden: 2560,
        intermediate: 9728,
        q_heads: 32,
        kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        tied: true,
    },
    Dense {
        name: "Qwen3-8B",
        layers: 36,
        hidden: 4096,
        intermediate: 12_288,
        q_heads: 32,
        kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        tied: false,
    },
    Dense {
        name: "tiny",
        layers: 2,
        hidden: 128,
        intermediate: 256,
        q_heads: 4,
        kv_heads: 2,
        head_dim: 64,
        vocab: 512,
        tied: true,
    },
];

// === impl Tensor ===

impl Tensor {
    pub(crate) fn bytes(&self) -> usize {
        let element = match self.dtype.as_str() {
            "F32" => 4,
            "BF16" => 2,
            _ => 1,
        };
        element * self.shape.iter().product::<usize>()
    }

    /// Values of which nothing grows: norms of one, small scales, small noise.
    fn write(&self, noise: &[u8], file: &mut impl Write) -> io::Result<()> {
        let is_norm = self.shape.len() == 1 && self.name.contains("norm");
        let one: &[u8] = match self.dtype.as_str() {
            "U8" if self.name.ends_with("_scales") => &[MXFP4_SCALE],
            "F32" if is_norm => &[0, 0, 0x80, 0x3f],
            "BF16" if is_norm => &[0x80, 0x3f],
            _ => {
                let mut left = self.bytes();
                while left > 0 {
                    let part = left.min(noise.len());
                    file.write_all(&noise[..part])?;
                    left -= part;
                }
                return Ok(());
            }
        };
        file.write_all(&one.repeat(self.bytes() / one.len()))
    }
}

// === impl Checkpoint ===

impl Checkpoint {
    /// `NAME`, or `NAME:LAYERS` for the first layers of a published model.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let dense = DENSE.iter().find(|dense| dense.name == name);
        dense
            .map(Dense::checkpoint)
            .or_else(|| published::named(name))
    }

    /// Those of dense Qwen3.
    pub(crate) fn all_dense() -> Vec<Self> {
        DENSE[..3].iter().map(Dense::checkpoint).collect()
    }

    /// Writes a folder as Hugging Face has them; the tokenizer's files come from `tokenizer`.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn write(&self, folder: &Path, tokenizer: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for file in [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
        ] {
            fs::copy(tokenizer.join(file), folder.join(file))?;
        }
        fs::write(folder.join("config.json"), self.config.to_string())?;
        self.write_weights(&folder.join("model.safetensors"))
    }

    fn write_weights(&self, path: &Path) -> io::Result<()> {
        let mut header = Map::new();
        let mut end = 0;
        for tensor in &self.tensors {
            let start = end;
            end += tensor.bytes();
            let entry =
                json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]});
            header.insert(tensor.name.clone(), entry);
        }
        let mut header = Value::from(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = BufWriter::with_capacity(BLOCK_BYTES, File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut noise = vec![0; BLOCK_BYTES];
        fill_with_noise(&mut noise);
        for tensor in &self.tensors {
            tensor.write(&noise, &mut file)?;
        }
        file.flush()
    }
}

// === impl Dense ===

impl Dense {
    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            name: self.name.to_owned(),
            config: self.config(),
            tensors: self.tensors(),
        }
    }

    fn config(&self) -> Value {
        json!({
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16",
            "hidden_act": "silu", "attention_bias": false, "head_dim": self.head_dim,
            "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "max_position_embeddings": CONTEXT, "num_attention_heads": self.q_heads,
            "num_hidden_layers": self.layers, "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "tie_word_embeddings": self.tied,
            "vocab_size": self.vocab, "bos_token_id": 1, "eos_token_id": 2,
        })
    }

    fn tensors(&self) -> Vec<Tensor> {
        let (q, kv) = (self.q_heads * self.head_dim, self.kv_heads * self.head_dim);
        let (hidden, wide) = (self.hidden, self.intermediate);
        let mut tensors = vec![("model.embed_tokens".to_owned(), vec![self.vocab, hidden])];
        for layer in 0..self.layers {
            let of_layer = [
                ("input_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![q, hidden]),
                ("self_attn.k_proj", vec![kv, hidden]),
                ("self_attn.v_proj", vec![kv, hidden]),
                ("self_attn.q_norm", vec![self.head_dim]),
                ("self_attn.k_norm", vec![self.head_dim]),
                ("self_attn.o_proj", vec![hidden, q]),
                ("post_attention_layernorm", vec![hidden]),
                ("mlp.gate_proj", vec![wide, hidden]),
                ("mlp.up_proj", vec![wide, hidden]),
                ("mlp.down_proj", vec![hidden, wide]),
            ];
            let named = |(name, shape)| (format!("model.layers.{layer}.{name}"), shape);
            tensors.extend(of_layer.map(named));
        }
        tensors.push(("model.norm".to_owned(), vec![hidden]));
        if !self.tied {
            tensors.push(("lm_head".to_owned(), vec![self.vocab, hidden]));
        }
        let of = |(name, shape)| Tensor {
            name: format!("{name}.weight"),
            dtype: "BF16".to_owned(),
            shape,
        };
        tensors.into_iter().map(of).collect()
    }
}
