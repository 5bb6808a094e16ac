//! Checkpoints in the shapes of real models, with generated weights.

use pd_compute_proof::speed::fill_with_noise;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A dense Qwen3's sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) q_heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) vocab: usize,
    /// The LM head is the embedding.
    pub(crate) tied: bool,
}

/// Source: the models' config.json; the last is for trying the program.
pub(crate) const SHAPES: [Shape; 4] = [
    Shape {
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
    Shape {
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
    Shape {
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
    Shape {
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

/// Longest context of the generated checkpoints, in tokens.
pub(crate) const CONTEXT: usize = 40_960;
/// Random bytes that are written repeatedly.
const BLOCK_BYTES: usize = 16 << 20;

// === impl Shape ===

impl Shape {
    /// Elements of the linears that a step multiplies every token with, without the LM head.
    pub(crate) fn layer_elements(&self) -> usize {
        let attention = self.hidden * self.head_dim * 2 * (self.q_heads + self.kv_heads);
        self.layers * (attention + 3 * self.hidden * self.intermediate)
    }

    pub(crate) fn head_elements(&self) -> usize {
        self.vocab * self.hidden
    }

    /// Bytes of K and V of a token in bfloat16.
    pub(crate) fn token_bytes(&self) -> usize {
        self.layers * self.kv_heads * self.head_dim * 2 * 2
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
        fs::write(folder.join("config.json"), self.config().to_string())?;
        self.write_weights(&folder.join("model.safetensors"))
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

    /// Name and shape of every tensor.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
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
        tensors
    }

    fn write_weights(&self, path: &Path) -> io::Result<()> {
        let tensors = self.tensors();
        let bytes_of = |shape: &[usize]| 2 * shape.iter().product::<usize>();
        let mut header = Map::new();
        let mut end = 0;
        for (name, shape) in &tensors {
            let start = end;
            end += bytes_of(shape);
            let entry = json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]});
            header.insert(format!("{name}.weight"), entry);
        }
        let mut header = Value::from(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = BufWriter::with_capacity(BLOCK_BYTES, File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut block = vec![0; BLOCK_BYTES];
        fill_with_noise(&mut block);
        for (_, shape) in &tensors {
            let mut left = bytes_of(shape);
            if shape.len() == 1 {
                // A norm of one.
                file.write_all(&[0x80, 0x3f].repeat(left / 2))?;
                continue;
            }
            while left > 0 {
                let part = left.min(block.len());
                file.write_all(&block[..part])?;
                left -= part;
            }
        }
        file.flush()
    }
}
