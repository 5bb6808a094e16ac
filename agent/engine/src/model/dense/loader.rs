//! Loads a dense decoder's weights onto a device: joined (q, k, v), interleaved (gate, up), packed.

use super::workspace::Workspace;
use super::{DenseDecoder, DenseFamily, Layer};
use crate::model::{LoadError, ModelConfig, ModelFiles, StepLimits, rope};
use crate::weights::{Matrix, TensorRole, Weights, WeightsError};
use pd_compute::{Backend, DType, Epilogue};
use std::time::Instant;

struct Loader<'a, B: Backend> {
    backend: &'a B,
    config: &'a ModelConfig,
    weights: &'a Weights,
    family: DenseFamily,
    /// Bytes of the file's matrices so far.
    packed_bytes: usize,
}

// === impl DenseDecoder ===

impl<B: Backend> DenseDecoder<B> {
    pub(in crate::model) fn load(
        backend: &B,
        files: &ModelFiles,
        family: &DenseFamily,
        limits: StepLimits,
    ) -> Result<Self, LoadError> {
        let started = Instant::now();
        let mut loader = Loader {
            backend,
            config: &files.config,
            weights: &files.weights,
            family: *family,
            packed_bytes: 0,
        };
        let (embedding, lm_head) = loader.tables()?;
        let layers = (0..files.config.num_layers).map(|index| loader.layer(index));
        let model = Self {
            layers: layers.collect::<Result<_, _>>()?,
            output_norm: loader.vector(TensorRole::OutputNorm, files.config.hidden_size)?,
            inv_freq: loader.inv_freq()?,
            embedding,
            lm_head,
            workspace: Workspace::alloc(backend, &files.config, limits)?,
            config: files.config.clone(),
            limits,
            backend: backend.clone(),
        };
        for layer in &model.layers {
            backend.reserve_linear(&layer.gate_up, Epilogue::SwiGlu, limits.max_tokens)?;
        }
        tracing::info!(
            "packed {:.0} MB of weights in {:.2} s",
            loader.packed_bytes as f64 / 1e6,
            started.elapsed().as_secs_f64()
        );
        Ok(model)
    }
}

// === impl Loader ===

impl<'a, B: Backend> Loader<'a, B> {
    /// The embedding table, and the output head, which may be the same matrix.
    fn tables(&mut self) -> Result<(B::Embedding, B::Weight), LoadError> {
        let ModelConfig {
            vocab_size,
            hidden_size,
            tie_word_embeddings,
            ..
        } = *self.config;
        let table = self
            .weights
            .matrix(TensorRole::Embedding, vocab_size, hidden_size)?;
        let embedding = self.backend.pack_embedding(&table.source())?;
        let head = if tie_word_embeddings {
            table
        } else {
            self.packed_bytes += table.size_bytes();
            self.weights
                .matrix(TensorRole::LmHead, vocab_size, hidden_size)?
        };
        Ok((embedding, self.pack(&[head], false)?))
    }

    fn layer(&mut self, index: usize) -> Result<Layer<B>, LoadError> {
        let ModelConfig {
            hidden_size: hidden,
            intermediate_size: wide,
            num_heads,
            num_kv_heads,
            head_dim,
            ..
        } = *self.config;
        let weights = self.weights;
        let qkv = [
            self.rotated(TensorRole::Q(index), num_heads)?,
            self.rotated(TensorRole::K(index), num_kv_heads)?,
            weights.matrix(TensorRole::V(index), num_kv_heads * head_dim, hidden)?,
        ];
        let o = weights.matrix(TensorRole::O(index), hidden, num_heads * head_dim)?;
        let gate_up = [
            weights.matrix(TensorRole::Gate(index), wide, hidden)?,
            weights.matrix(TensorRole::Up(index), wide, hidden)?,
        ];
        let down = weights.matrix(TensorRole::Down(index), hidden, wide)?;
        let head_norm = |role: TensorRole| -> Result<Option<B::Buffer>, LoadError> {
            let wanted = self.family.qk_norm;
            wanted.then(|| self.vector(role, head_dim)).transpose()
        };
        Ok(Layer {
            attn_norm: self.vector(TensorRole::AttnNorm(index), hidden)?,
            q_norm: head_norm(TensorRole::QNorm(index))?,
            k_norm: head_norm(TensorRole::KNorm(index))?,
            ffn_norm: self.vector(TensorRole::FfnNorm(index), hidden)?,
            qkv: self.pack(&qkv, false)?,
            o: self.pack(&[o], false)?,
            gate_up: self.pack(&gate_up, true)?,
            down: self.pack(&[down], false)?,
        })
    }

    /// A matrix whose rows are rotated by halves.
    fn rotated(&self, role: TensorRole, heads: usize) -> Result<Matrix<'a>, WeightsError> {
        let rows = heads * self.config.head_dim;
        let matrix = self.weights.matrix(role, rows, self.config.hidden_size)?;
        let permuted = self.family.gguf_permutes_qk && matches!(self.weights, Weights::Gguf(_));
        Ok(if permuted {
            matrix.unpermuted(heads)
        } else {
            matrix
        })
    }

    fn pack(&mut self, parts: &[Matrix<'_>], interleave: bool) -> Result<B::Weight, LoadError> {
        self.packed_bytes += parts.iter().map(Matrix::size_bytes).sum::<usize>();
        let sources: Vec<_> = parts.iter().map(Matrix::source).collect();
        Ok(self.backend.pack_linear(&sources, interleave)?)
    }

    fn vector(&self, role: TensorRole, len: usize) -> Result<B::Buffer, LoadError> {
        self.upload("norm weight", &self.weights.vector(role, len)?)
    }

    fn inv_freq(&self) -> Result<B::Buffer, LoadError> {
        let len = self.config.head_dim / 2;
        let divisors = match self.weights.tensor(TensorRole::RopeFactors) {
            Some(_) => Some(self.weights.vector(TensorRole::RopeFactors, len)?),
            None => None,
        };
        let frequencies = rope::inverse_frequencies(self.config, divisors.as_deref());
        self.upload("rope frequencies", &frequencies)
    }

    fn upload(&self, name: &str, values: &[f32]) -> Result<B::Buffer, LoadError> {
        let buffer = self.backend.alloc(name, DType::F32, values.len())?;
        self.backend.upload(&buffer, values);
        Ok(buffer)
    }
}
