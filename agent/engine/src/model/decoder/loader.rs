//! Loads weights onto a device for a decoder and its parts: matrices joined and packed, vectors in
//! F32. It remembers which tensors were used.

use crate::model::config::ModelConfig;
use crate::model::files::ModelFiles;
use crate::model::kv_pool_spec::KvPoolSpec;
use crate::model::load_error::LoadError;
use crate::model::rope;
use crate::model::step::StepLimits;
use crate::weights::{LayerRole, Matrix, Mxfp4, Role, Weights};
use pd_compute::{Backend, DType, Epilogue, ExpertSource, KvScales, Packing};
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

pub(crate) struct Loader<'a, B: Backend> {
    backend: &'a B,
    config: &'a ModelConfig,
    weights: &'a Weights,
    pool: KvPoolSpec,
    kv_dtype: DType,
    limits: StepLimits,
    started: Instant,
    /// Bytes of matrices that the backend was given so far.
    packed_bytes: usize,
    /// Names of the tensors so far.
    used: HashSet<String>,
}

// === impl Loader ===

impl<'a, B: Backend> Loader<'a, B> {
    pub(crate) fn new(
        backend: &'a B,
        files: &'a ModelFiles,
        limits: StepLimits,
        (pool, kv_dtype): (KvPoolSpec, DType),
    ) -> Self {
        Self {
            backend,
            config: &files.config,
            weights: &files.weights,
            pool,
            kv_dtype,
            limits,
            started: Instant::now(),
            packed_bytes: 0,
            used: HashSet::new(),
        }
    }

    /// Logs what was done.
    pub(super) fn finish(self) {
        tracing::info!(
            "packed {:.0} MB of weights in {:.2} s",
            self.packed_bytes as f64 / 1e6,
            self.started.elapsed().as_secs_f64()
        );
        for (prefix, tensors) in self.unused() {
            tracing::info!(prefix, tensors, "left tensors of the model unused");
        }
    }

    /// Tensors that were not asked for, counted by the beginning of their names.
    pub(crate) fn unused(&self) -> BTreeMap<String, usize> {
        self.weights.unused(&self.used)
    }

    pub(crate) fn backend(&self) -> &'a B {
        self.backend
    }

    pub(super) fn config(&self) -> &'a ModelConfig {
        self.config
    }

    pub(super) fn limits(&self) -> StepLimits {
        self.limits
    }

    /// Whether the files have a tensor of the role.
    pub(crate) fn contains(&self, role: Role) -> bool {
        self.weights.contains(role)
    }

    /// Whether the family names a tensor of the role in this kind of file.
    pub(crate) fn has_name(&self, role: Role) -> bool {
        self.weights.name(role).is_some()
    }

    /// Where layers keep what the pool holds of them.
    pub(crate) fn pool(&self) -> &KvPoolSpec {
        &self.pool
    }

    /// Width of the residual stream.
    pub(crate) fn hidden_size(&self) -> usize {
        self.config.hidden_size
    }

    /// Elements of a head that a rope of the config rotates.
    pub(crate) fn rotary_dim(&self, rope: usize) -> usize {
        self.config.ropes[rope].rotary_dim
    }

    /// The embedding table, and the output head, which may be the same matrix.
    pub(super) fn tables(&mut self) -> Result<(B::Embedding, B::Weight), LoadError> {
        let (vocab, hidden) = (self.config.vocab_size, self.config.hidden_size);
        let table = self.matrix(Role::Embedding, vocab, hidden)?;
        let embedding = self.backend.pack_embedding(&table.source())?;
        let head = if self.config.tie_word_embeddings {
            table
        } else {
            self.packed_bytes += table.size_bytes();
            self.matrix(Role::LmHead, vocab, hidden)?
        };
        Ok((embedding, self.pack(&[head], Packing::JOINED)?))
    }

    pub(super) fn input_norm(&mut self, layer: usize) -> Result<B::Buffer, LoadError> {
        let role = Role::Layer(layer, LayerRole::InputNorm);
        self.norm(role, self.config.hidden_size)
    }

    pub(super) fn ffn_norm(&mut self, layer: usize) -> Result<B::Buffer, LoadError> {
        let role = Role::Layer(layer, LayerRole::FfnNorm);
        self.norm(role, self.config.hidden_size)
    }

    pub(super) fn output_norm(&mut self) -> Result<B::Buffer, LoadError> {
        self.norm(Role::OutputNorm, self.config.hidden_size)
    }

    /// A matrix of a draft layer that joins two rows of `hidden`, as one for each.
    pub(super) fn halves(&mut self, role: Role) -> Result<[B::Weight; 2], LoadError> {
        let hidden = self.config.hidden_size;
        let both = self.matrix(role, hidden, 2 * hidden)?.expanded();
        let first = self.pack(&[both.column_range(0..hidden)], Packing::JOINED)?;
        let second = self.pack(&[both.column_range(hidden..2 * hidden)], Packing::JOINED)?;
        Ok([first, second])
    }

    /// The frequencies of each rope; a file's own divisors hold for all.
    pub(super) fn inv_freqs(&mut self) -> Result<Vec<B::Buffer>, LoadError> {
        let ropes = &self.config.ropes;
        let has_divisors = self.weights.tensor(Role::RopeFactors)?.is_some();
        let mut buffers = Vec::with_capacity(ropes.len());
        for rope in ropes {
            let len = rope.rotary_dim / 2;
            let divisors = if has_divisors {
                Some(self.values(Role::RopeFactors, len)?)
            } else {
                None
            };
            let frequencies = rope::inverse_frequencies(rope, divisors.as_deref());
            buffers.push(self.upload("rope frequencies", &frequencies)?);
        }
        Ok(buffers)
    }

    /// The `rows × columns` matrix of a role.
    pub(crate) fn matrix(
        &mut self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<Matrix<'a>, LoadError> {
        let matrix = self.weights.matrix(role, rows, columns)?;
        self.used.extend(matrix.names().map(str::to_owned));
        Ok(matrix)
    }

    /// The matrix of a role whose rows, `heads` times `head_dim`, are rotated by halves.
    pub(crate) fn rotated(
        &mut self,
        role: Role,
        heads: (usize, usize),
    ) -> Result<Matrix<'a>, LoadError> {
        let matrix = self.weights.rotated(role, heads, self.config.hidden_size)?;
        self.used.extend(matrix.names().map(str::to_owned));
        Ok(matrix)
    }

    /// Of what a layer of attention keeps, by which a pool in E4M3 has it.
    pub(in crate::model) fn kv_scales(&mut self, layer: usize) -> Result<KvScales, LoadError> {
        if self.kv_dtype != DType::F8E4M3 {
            return Ok(KvScales::ONE);
        }
        let (scales, names) = self.weights.kv_scales(layer)?;
        self.used.extend(names);
        Ok(scales)
    }

    /// The matrix of the blocks and the scales of two roles.
    pub(crate) fn mxfp4(
        &mut self,
        roles: [Role; 2],
        rows: usize,
        columns: usize,
    ) -> Result<Mxfp4<'a>, LoadError> {
        let matrix = self.weights.mxfp4(roles, rows, columns)?;
        self.used.extend(matrix.names().map(str::to_owned));
        Ok(matrix)
    }

    /// Queries and their gates: heads of both are beside each other in a matrix of one role.
    pub(crate) fn gated(
        &mut self,
        role: Role,
        (heads, head_dim): (usize, usize),
    ) -> Result<(Matrix<'a>, Matrix<'a>), LoadError> {
        let both = self.matrix(role, 2 * heads * head_dim, self.config.hidden_size)?;
        let half = |second: usize| {
            let head =
                |head: usize| (2 * head + second) * head_dim..(2 * head + second + 1) * head_dim;
            both.rows((0..heads).flat_map(head))
        };
        Ok((half(0), half(1)))
    }

    /// One linear of the rows of all `parts`.
    pub(crate) fn pack(
        &mut self,
        parts: &[Matrix<'_>],
        packing: Packing,
    ) -> Result<B::Weight, LoadError> {
        self.packed_bytes += parts.iter().map(Matrix::size_bytes).sum::<usize>();
        let sources: Vec<_> = parts.iter().map(Matrix::source).collect();
        Ok(self.backend.pack_linear(&sources, packing)?)
    }

    pub(crate) fn pack_experts(
        &mut self,
        experts: &[ExpertSource<'_>],
    ) -> Result<B::Experts, LoadError> {
        let matrices = experts.iter().flat_map(|e| [e.gate, e.up, e.down]);
        self.packed_bytes += matrices
            .map(|source| source.bytes.len() + size_of_val(source.scales))
            .sum::<usize>();
        Ok(self.backend.pack_experts(experts)?)
    }

    /// Reserves what a linear needs in addition to its buffers.
    pub(crate) fn reserve(&self, weight: &B::Weight, epilogue: Epilogue) -> Result<(), LoadError> {
        let rows = self.limits.max_tokens;
        Ok(self.backend.reserve_linear(weight, epilogue, rows)?)
    }

    /// The vector of a role, on the device.
    pub(crate) fn vector(&mut self, role: Role, len: usize) -> Result<B::Buffer, LoadError> {
        self.joined(&[(role, len)])
    }

    /// The weight of a norm of `hidden` or a head's elements, as it is applied.
    pub(crate) fn norm(&mut self, role: Role, len: usize) -> Result<B::Buffer, LoadError> {
        let one = if self.config.norm_plus_one { 1.0 } else { 0.0 };
        self.mapped(role, len, |weight| weight + one)
    }

    /// The vector of a role with `f` done to each value, on the device.
    pub(crate) fn mapped(
        &mut self,
        role: Role,
        len: usize,
        f: impl Fn(f32) -> f32,
    ) -> Result<B::Buffer, LoadError> {
        let values: Vec<f32> = self.values(role, len)?.into_iter().map(f).collect();
        self.upload("norm weight or gate", &values)
    }

    /// The `rows × columns` matrix of a role, on the device in F32.
    pub(crate) fn table(
        &mut self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<B::Buffer, LoadError> {
        let values = self.weights.values(role, rows, columns)?;
        self.used.extend(self.weights.name(role));
        self.upload("biases", &values)
    }

    /// The columns of a role's `rows × columns` matrix, one after another, in F32 on the device.
    pub(crate) fn transposed(
        &mut self,
        role: Role,
        rows: usize,
        columns: usize,
    ) -> Result<B::Buffer, LoadError> {
        let values = self.weights.values(role, rows, columns)?;
        self.used.extend(self.weights.name(role));
        let column = |column: usize| values.iter().skip(column).step_by(columns).copied();
        let transposed: Vec<f32> = (0..columns).flat_map(column).collect();
        self.upload("transposed weight", &transposed)
    }

    /// Vectors one after another, on the device.
    pub(crate) fn joined(&mut self, parts: &[(Role, usize)]) -> Result<B::Buffer, LoadError> {
        let mut values = Vec::new();
        for &(role, len) in parts {
            values.extend(self.values(role, len)?);
        }
        self.upload("norm weight or bias", &values)
    }

    fn values(&mut self, role: Role, len: usize) -> Result<Vec<f32>, LoadError> {
        let values = self.weights.vector(role, len)?;
        self.used.extend(self.weights.name(role));
        Ok(values)
    }

    fn upload(&self, name: &str, values: &[f32]) -> Result<B::Buffer, LoadError> {
        let buffer = self.backend.alloc(name, DType::F32, values.len())?;
        self.backend.upload(&buffer, values);
        Ok(buffer)
    }
}
