//! Products of many rows by cuBLASLt, opened at run time. The library proposes algorithms for a shape;
//! the fastest of them is found once, on the first product of that shape, and kept.

use super::failed;
use crate::cuda::driver::{DriverError, Gemm};
use cudarc::cublaslt::{result, sys};
use cudarc::driver::{result as driver, sys as cu};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::c_void;
use std::iter;

/// As NVIDIA advises for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Algorithms tried, in so many rounds with so many timed runs each.
const CANDIDATES: usize = 8;
const ROUNDS: usize = 4;
const RUNS: u16 = 2;

/// `CUBLAS_OP_T` of cublas_api.h, which the bindings of this library leave out.
const OP_TRANSPOSED: i32 = 1;

/// The library's handle, a workspace, and the choices so far.
#[derive(Debug)]
pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    /// Where all products run.
    stream: cu::CUstream,
    chosen: Mutex<HashMap<Shape, sys::cublasLtMatmulAlgo_t>>,
}

/// Products that share an algorithm: first those whose rows are equal when rounded up ([`rows_alike`]); where the
/// library refuses one of them, that number of rows has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    rows: usize,
    n: usize,
    k: usize,
    adds: bool,
    to_f32: bool,
}

/// What a call is described by; freed with it.
struct Call {
    desc: sys::cublasLtMatmulDesc_t,
    /// The weight, x and the output, as column-major matrices.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

// SAFETY: the handle may be used from any thread; calls are made under the backend's order.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

fn refused(call: &'static str) -> impl FnOnce(result::CublasError) -> DriverError {
    move |error| DriverError {
        call,
        reason: format!("{:?}", error.0),
    }
}

fn refused_product(gemm: &Gemm) -> impl FnOnce(result::CublasError) -> DriverError {
    move |error| DriverError {
        call: "cublasLtMatmul",
        reason: format!("{:?} for {gemm:?}", error.0),
    }
}

/// To a power of two, and those of large decode batches to whole tiles: an algorithm that is best for 130 rows may take
/// a fifth more time than the best for 256.
fn rows_alike(rows: usize) -> usize {
    const TILE: usize = 64;
    const FINE_MAX: usize = 512;
    match rows {
        TILE..=FINE_MAX => rows.next_multiple_of(TILE),
        _ => rows.next_power_of_two(),
    }
}

// === impl Blas ===

impl Blas {
    /// Products on `stream`, which outlives it; `None` where the library is not on this machine. The device's
    /// context is the thread's.
    pub(super) fn open(stream: cu::CUstream) -> Result<Option<Self>, DriverError> {
        // SAFETY: it opens the library and does nothing with it.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        let handle = result::create_handle().map_err(refused("cublasLtCreate"))?;
        // SAFETY: freed by `close`.
        let workspace = unsafe { driver::malloc_sync(WORKSPACE_BYTES) };
        Ok(Some(Self {
            handle,
            workspace: workspace.map_err(failed("cuMemAlloc"))?,
            stream,
            chosen: Mutex::default(),
        }))
    }

    /// Enqueues a product.
    ///
    /// # Safety
    /// The matrices are as large as `gemm` says, and stay until the stream is past it.
    pub(super) unsafe fn gemm(&self, gemm: &Gemm) -> Result<(), DriverError> {
        let call = Call::new(gemm)?;
        let (own, alike) = (
            Shape::of(gemm, gemm.rows),
            Shape::of(gemm, rows_alike(gemm.rows)),
        );
        let known = {
            let chosen = self.chosen.lock();
            chosen.get(&own).or_else(|| chosen.get(&alike)).copied()
        };
        if let Some(algo) = known {
            // SAFETY: the caller's.
            match unsafe { self.enqueue(&call, gemm, &algo) } {
                // Nothing was enqueued: the algorithm takes rows like these, but not so many.
                Err(error) if error.0 == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => {}
                other => return other.map_err(refused_product(gemm)),
            }
        }
        // SAFETY: the caller's.
        let algo = unsafe { self.tune(&call, gemm) }?;
        let shape = if known.is_some() { own } else { alike };
        self.chosen.lock().insert(shape, algo);
        // SAFETY: the caller's.
        unsafe { self.enqueue(&call, gemm, &algo) }.map_err(refused_product(gemm))
    }

    /// # Safety
    /// As for `gemm`.
    unsafe fn enqueue(
        &self,
        call: &Call,
        gemm: &Gemm,
        algo: &sys::cublasLtMatmulAlgo_t,
    ) -> Result<(), result::CublasError> {
        let (alpha, beta) = (1.0f32, if gemm.adds { 1.0f32 } else { 0.0 });
        let [weight, x, y] = call.layouts;
        // SAFETY: the caller's; scalars are read before the call returns.
        unsafe {
            result::matmul(
                self.handle,
                call.desc,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                gemm.weight as *const c_void,
                weight,
                gemm.x as *const c_void,
                x,
                gemm.out as *const c_void,
                y,
                gemm.out as *mut c_void,
                y,
                algo,
                self.workspace as *mut c_void,
                WORKSPACE_BYTES,
                self.stream.cast(),
            )
        }
    }

    /// Runs each candidate a few times into memory of its own; the fastest.
    ///
    /// # Safety
    /// As for `gemm`.
    unsafe fn tune(
        &self,
        call: &Call,
        gemm: &Gemm,
    ) -> Result<sys::cublasLtMatmulAlgo_t, DriverError> {
        let candidates = self.candidates(call)?;
        let element = if gemm.to_f32 { 4 } else { 2 };
        // SAFETY: freed below.
        let out = unsafe { driver::malloc_sync(gemm.rows * gemm.n * element) }
            .map_err(failed("cuMemAlloc"))?;
        let trial = Gemm { out, ..*gemm };
        let mut fastest: Option<(f32, &sys::cublasLtMatmulAlgo_t)> = None;
        // By turns, so that what disturbs a moment decides nothing.
        for algo in iter::repeat_n(&candidates, ROUNDS).flatten() {
            // SAFETY: as the caller's, with memory for the output.
            let took = unsafe { self.time(call, &trial, algo) };
            // One that this device refuses is none.
            if let Ok(took) = took
                && fastest.is_none_or(|(best, _)| took < best)
            {
                fastest = Some((took, algo));
            }
        }
        // SAFETY: `time` has waited for what used it.
        unsafe { driver::free_sync(out) }.map_err(failed("cuMemFree"))?;
        let (took, algo) = fastest.ok_or_else(|| DriverError {
            call: "cublasLtMatmul",
            reason: format!("no algorithm takes {gemm:?}"),
        })?;
        tracing::debug!(
            rows = gemm.rows,
            n = gemm.n,
            k = gemm.k,
            ms = took,
            "tuned a product"
        );
        Ok(*algo)
    }

    /// Milliseconds of a run, after one that is not timed.
    ///
    /// # Safety
    /// As for `enqueue`.
    unsafe fn time(
        &self,
        call: &Call,
        gemm: &Gemm,
        algo: &sys::cublasLtMatmulAlgo_t,
    ) -> Result<f32, DriverError> {
        let event = || driver::event::create(cu::CUevent_flags::CU_EVENT_DEFAULT);
        let (start, end) = (
            event().map_err(failed("cuEventCreate"))?,
            event().map_err(failed("cuEventCreate"))?,
        );
        let timed = || {
            // SAFETY: the caller's; events and stream are of this context.
            unsafe {
                let run = || {
                    self.enqueue(call, gemm, algo)
                        .map_err(refused_product(gemm))
                };
                run()?;
                driver::event::record(start, self.stream).map_err(failed("cuEventRecord"))?;
                for _ in 0..RUNS {
                    run()?;
                }
                driver::event::record(end, self.stream).map_err(failed("cuEventRecord"))?;
                driver::event::synchronize(end).map_err(failed("cuEventSynchronize"))?;
                driver::event::elapsed(start, end).map_err(failed("cuEventElapsedTime"))
            }
        };
        let took = timed();
        for event in [start, end] {
            // SAFETY: made above, with no other user.
            if let Err(error) = unsafe { driver::event::destroy(event) } {
                tracing::debug!(?error, "could not free an event");
            }
        }
        took.map(|ms| ms / f32::from(RUNS))
    }

    fn candidates(&self, call: &Call) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, DriverError> {
        let pref =
            result::create_matmul_pref().map_err(refused("cublasLtMatmulPreferenceCreate"))?;
        let workspace =
            sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let bytes = WORKSPACE_BYTES;
        let mut found = [const { std::mem::MaybeUninit::uninit() }; CANDIDATES];
        let mut count = 0;
        let [weight, x, y] = call.layouts;
        // SAFETY: the preference lives until it is destroyed below; the library writes `count` results.
        let asked = unsafe {
            result::set_matmul_pref_attribute(
                pref,
                workspace,
                (&raw const bytes).cast(),
                size_of::<usize>(),
            )
            .and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    call.desc,
                    weight,
                    x,
                    y,
                    y,
                    pref,
                    i32::try_from(CANDIDATES).expect("a small number"),
                    found.as_mut_ptr().cast(),
                    &raw mut count,
                )
                .result()
            })
        };
        // SAFETY: made above.
        let destroyed = unsafe { result::destroy_matmul_pref(pref) };
        asked.map_err(refused("cublasLtMatmulAlgoGetHeuristic"))?;
        destroyed.map_err(refused("cublasLtMatmulPreferenceDestroy"))?;
        let count = usize::try_from(count).unwrap_or(0).min(CANDIDATES);
        let found = found[..count].iter().map(|found| {
            // SAFETY: the library has written the first `count`.
            let found: sys::cublasLtMatmulHeuristicResult_t = unsafe { found.assume_init() };
            found
        });
        let usable =
            found.filter(|found| found.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(usable.map(|found| found.algo).collect())
    }

    /// The context is the thread's, and the stream has run dry.
    pub(super) fn close(&self) {
        // SAFETY: nothing uses either any more.
        let (freed, destroyed) = unsafe {
            (
                driver::free_sync(self.workspace),
                result::destroy_handle(self.handle),
            )
        };
        if freed.is_err() || destroyed.is_err() {
            tracing::debug!(?freed, ?destroyed, "could not close cuBLASLt");
        }
    }
}

// === impl Shape ===

impl Shape {
    fn of(gemm: &Gemm, rows: usize) -> Self {
        Self {
            rows,
            n: gemm.n,
            k: gemm.k,
            adds: gemm.adds,
            to_f32: gemm.to_f32,
        }
    }
}

// === impl Call ===

impl Call {
    /// Row-major y = x·Wᵀ is column-major yᵀ = W·xᵀ: the weight, k × n as it lies, transposed, times x, k × rows
    /// as it lies.
    fn new(gemm: &Gemm) -> Result<Self, DriverError> {
        use sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_32F};
        let desc =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, CUDA_R_32F)
                .map_err(refused("cublasLtMatmulDescCreate"))?;
        let mut call = Self {
            desc,
            layouts: [std::ptr::null_mut(); 3],
        };
        let transposed = OP_TRANSPOSED;
        // SAFETY: the description is ours, the value is read before the call returns.
        unsafe {
            result::set_matmul_desc_attribute(
                desc,
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                (&raw const transposed).cast(),
                size_of::<i32>(),
            )
        }
        .map_err(refused("cublasLtMatmulDescSetAttribute"))?;
        let out = if gemm.to_f32 { CUDA_R_32F } else { CUDA_R_16BF };
        let shapes = [
            (CUDA_R_16BF, gemm.k, gemm.n),
            (CUDA_R_16BF, gemm.k, gemm.rows),
            (out, gemm.n, gemm.rows),
        ];
        for (layout, (dtype, rows, columns)) in call.layouts.iter_mut().zip(shapes) {
            let leading = i64::try_from(rows).expect("a matrix fits memory");
            let made = result::create_matrix_layout(dtype, rows as u64, columns as u64, leading);
            *layout = made.map_err(refused("cublasLtMatrixLayoutCreate"))?;
        }
        Ok(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: made by `new`.
            if let Err(error) = unsafe { result::destroy_matrix_layout(layout) } {
                tracing::debug!(?error, "could not free a layout");
            }
        }
        // SAFETY: made by `new`.
        if let Err(error) = unsafe { result::destroy_matmul_desc(self.desc) } {
            tracing::debug!(?error, "could not free a description");
        }
    }
}

#[cfg(test)]
mod tests;
