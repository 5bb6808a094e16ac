//! Ops on two backends, and how far apart their results may be. Inputs are rounded to the dtype of
//! the backend under test first, so what remains is how each computes.

pub mod attention;
pub mod delta;
pub mod experts;
pub mod latent_attention;
pub mod latents;
pub mod linear;
pub mod pages;
pub mod rows;
pub mod sampling;
pub mod steps;

use half::bf16;
use pd_compute::cpu::{CpuBackend, CpuConfig};
use pd_compute::dtype::ComputeDtype;
use pd_compute::e4m3;
use pd_compute::sampling::noise;
use pd_compute::{Backend, ComputeError, DType, DeviceBuffer, Ticket, WeightFormat, WeightSource};

/// A backend and what tests do with it all the time.
#[derive(Clone, Debug)]
pub struct Subject<B: Backend> {
    pub backend: B,
}

/// The CPU's, which everything is held against.
///
/// # Panics
/// When its threads do not start.
pub fn reference() -> Subject<CpuBackend> {
    let config = CpuConfig {
        threads: 1,
        compute_dtype: ComputeDtype::F32,
        ..CpuConfig::default()
    };
    let backend = CpuBackend::start(config).expect("one thread starts");
    Subject { backend }
}

/// Rows of `k` values each.
pub fn matrix<'a>(name: &'a str, k: usize, values: &'a [f32]) -> WeightSource<'a> {
    WeightSource {
        name,
        format: WeightFormat::F32,
        n: values.len() / k,
        k,
        bytes: bytemuck::cast_slice(values),
        scales: &[],
    }
}

/// Deterministic values in −1..1.
pub fn values(seed: u64, len: usize) -> Vec<f32> {
    #[allow(clippy::cast_possible_truncation, reason = "rounded once, on purpose")]
    let value = |i| noise(seed, 0, i, 0) as f32 * 2.0 - 1.0;
    (0..u32::try_from(len).expect("test inputs are small"))
        .map(value)
        .collect()
}

/// The values as `dtype` holds them.
pub fn rounded(dtype: DType, values: Vec<f32>) -> Vec<f32> {
    match dtype {
        DType::BF16 => values
            .into_iter()
            .map(|v| bf16::from_f32(v).to_f32())
            .collect(),
        DType::F8E4M3 => values
            .into_iter()
            .map(|v| e4m3::value(e4m3::rounded(v)))
            .collect(),
        DType::F32 | DType::F16 | DType::U32 | DType::U8 => values,
    }
}

/// Largest distance, in units of the larger of one and the expected value.
///
/// # Errors
/// Names the first element further off than `bound`.
pub fn compare(actual: &[f32], expected: &[f32], bound: f32) -> Result<f32, String> {
    if actual.len() != expected.len() {
        return Err(format!(
            "{} results instead of {}",
            actual.len(),
            expected.len()
        ));
    }
    let mut largest = 0.0f32;
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        // Infinities too are equal.
        let off = if a.total_cmp(e).is_eq() {
            0.0
        } else {
            (a - e).abs() / e.abs().max(1.0)
        };
        if (off > bound || off.is_nan()) && !(a.is_nan() && e.is_nan()) {
            return Err(format!(
                "element {i} is {a}, not {e}: off by {off:e}, bound {bound:e}"
            ));
        }
        largest = largest.max(off);
    }
    Ok(largest)
}

// === impl Subject ===

impl<B: Backend> Subject<B> {
    pub fn dtype(&self) -> DType {
        self.backend.activation_dtype()
    }

    /// What rounding a result of about one costs in the backend's dtype.
    pub fn rounding(&self) -> f32 {
        if self.dtype() == DType::BF16 {
            1.0 / 256.0
        } else {
            2e-6
        }
    }

    /// # Panics
    /// When there is no memory for it; so do all that allocate.
    pub fn zeros(&self, dtype: DType, len: usize) -> B::Buffer {
        self.backend
            .alloc("zeros", dtype, len)
            .expect("test inputs fit")
    }

    pub fn words(&self, values: &[u32]) -> B::Buffer {
        let buffer = self.zeros(DType::U32, values.len());
        self.backend.upload(&buffer, values);
        buffer
    }

    pub fn floats(&self, values: &[f32]) -> B::Buffer {
        let buffer = self.zeros(DType::F32, values.len());
        self.backend.upload(&buffer, values);
        buffer
    }

    /// In the dtype of activations.
    pub fn activations(&self, values: &[f32]) -> B::Buffer {
        let buffer = self.zeros(self.dtype(), values.len());
        self.write(&buffer, values);
        buffer
    }

    /// Overwrites the beginning of a buffer, in its dtype.
    pub fn write(&self, buffer: &B::Buffer, values: &[f32]) {
        if buffer.dtype() == DType::BF16 {
            let bits: Vec<u16> = values
                .iter()
                .map(|v| bf16::from_f32(*v).to_bits())
                .collect();
            self.backend.upload(buffer, &bits);
        } else if buffer.dtype() == DType::F8E4M3 {
            let codes: Vec<u8> = values.iter().map(|v| e4m3::rounded(*v)).collect();
            self.backend.upload(buffer, &codes);
        } else {
            self.backend.upload(buffer, values);
        }
    }

    /// A buffer of floats of any dtype.
    ///
    /// # Panics
    /// When the stream has faulted.
    pub fn read(&self, buffer: &B::Buffer) -> Vec<f32> {
        self.try_read(buffer).expect("the stream has not faulted")
    }

    /// # Errors
    /// The stream's fault.
    pub fn try_read(&self, buffer: &B::Buffer) -> Result<Vec<f32>, ComputeError> {
        let bytes = self.backend.read(buffer).wait()?;
        Ok(if buffer.dtype() == DType::BF16 {
            let bits = bytes.as_slice::<u16>().iter();
            bits.map(|bits| bf16::from_bits(*bits).to_f32()).collect()
        } else if buffer.dtype() == DType::F8E4M3 {
            let codes = bytes.as_slice::<u8>().iter();
            codes.map(|code| e4m3::value(*code)).collect()
        } else {
            bytes.as_slice().to_vec()
        })
    }

    /// # Panics
    /// When the stream has faulted.
    pub fn read_words(&self, buffer: &B::Buffer) -> Vec<u32> {
        let bytes = self.backend.read(buffer).wait();
        bytes
            .expect("the stream has not faulted")
            .as_slice()
            .to_vec()
    }
}
