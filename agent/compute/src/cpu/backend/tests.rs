//! Facts about the queue, tickets and memory, and what the other ops' tests stand on.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use crate::buffer::{DeviceBuffer, Ticket};
use crate::cpu::handle::{CpuBackend, CpuConfig};
use crate::cpu::isa::Isa;
use crate::cpu::memory::CpuBuffer;
use crate::dtype::{ComputeDtype, DType, WeightFormat};
use crate::error::ComputeError;
use crate::export::{ExportHandle, Reach};
use crate::k_order::Packing;
use crate::ops::{Backend, Embed, Epilogue, GatherRows, Linear};
use crate::weight::WeightSource;

pub(in crate::cpu) fn mk_backend(threads: usize, isa: Isa) -> CpuBackend {
    let compute_dtype = ComputeDtype::F32;
    CpuBackend::start(CpuConfig {
        threads,
        isa,
        compute_dtype,
    })
    .unwrap()
}

/// The instruction sets of this machine whose f32 ops differ.
pub(in crate::cpu) fn isas() -> impl Iterator<Item = Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.is_available())
}

pub(in crate::cpu) fn floats(backend: &CpuBackend, values: &[f32]) -> CpuBuffer {
    let buffer = backend.alloc("floats", DType::F32, values.len()).unwrap();
    backend.upload(&buffer, values);
    buffer
}

pub(in crate::cpu) fn words(backend: &CpuBackend, values: &[u32]) -> CpuBuffer {
    let buffer = backend.alloc("words", DType::U32, values.len()).unwrap();
    backend.upload(&buffer, values);
    buffer
}

pub(in crate::cpu) fn zeros(backend: &CpuBackend, len: usize) -> CpuBuffer {
    backend.alloc("zeros", DType::F32, len).unwrap()
}

pub(in crate::cpu) fn read_floats(backend: &CpuBackend, buffer: &CpuBuffer) -> Vec<f32> {
    backend.read(buffer).wait().unwrap().as_slice().to_vec()
}

pub(in crate::cpu) fn read_words(backend: &CpuBackend, buffer: &CpuBuffer) -> Vec<u32> {
    backend.read(buffer).wait().unwrap().as_slice().to_vec()
}

/// Deterministic values in −1..1.
pub(in crate::cpu) fn noise_floats(seed: u64, len: usize) -> Vec<f32> {
    let value = |i| crate::sampling::noise(seed, 0, i, 0) as f32 * 2.0 - 1.0;
    (0..u32::try_from(len).unwrap()).map(value).collect()
}

#[test]
fn commands_run_in_the_order_they_were_given() {
    let backend = mk_backend(2, Isa::detect());
    let buffer = words(&backend, &[1, 2, 3]);
    let before = backend.read(&buffer);
    backend.upload(&buffer.slice(1..2), &[9u32]);
    assert_eq!(before.wait().unwrap().as_slice::<u32>(), [1, 2, 3]);
    assert_eq!(read_words(&backend, &buffer), [1, 9, 3]);
}

#[test]
fn a_ticket_yields_its_result_once() {
    let backend = mk_backend(1, Isa::detect());
    let mut ticket = backend.read(&words(&backend, &[7]));
    backend.fence().wait().unwrap();
    assert_eq!(ticket.try_take().unwrap().unwrap().as_slice::<u32>(), [7]);
    assert!(ticket.try_take().is_none());
}

#[test]
fn a_wrong_index_faults_the_queue_and_names_the_op() {
    let backend = mk_backend(2, Isa::detect());
    let (src, out) = (words(&backend, &[1, 2]), words(&backend, &[0]));
    let indices = words(&backend, &[2]);
    assert!(backend.health().is_ok());
    let op = GatherRows {
        src: &src,
        indices: &indices,
        out: &out,
        row_len: 1,
        rows: 1,
    };
    backend.gather_rows(op);
    let fault = backend.read(&out).wait().unwrap_err();
    assert!(
        matches!(
            &fault,
            ComputeError::DeviceFault {
                op: "gather_rows",
                ..
            }
        ),
        "{fault}"
    );
    assert_eq!(backend.health(), Err(fault.clone()));
    assert_eq!(backend.fence().wait().unwrap_err(), fault);
}

#[test]
#[should_panic(expected = "exceeds the 3 elements")]
fn a_slice_beyond_its_buffer_panics() {
    drop(words(&mk_backend(1, Isa::detect()), &[1, 2, 3]).slice(1..4));
}

#[test]
fn what_is_queued_runs_though_the_backend_is_dropped() {
    let backend = mk_backend(2, Isa::detect());
    let buffer = words(&backend, &[0; 4]);
    backend.upload(&buffer, &[5u32; 4]);
    let ticket = backend.read(&buffer);
    drop(backend);
    assert_eq!(ticket.wait().unwrap().as_slice::<u32>(), [5; 4]);
}

#[test]
fn embedding_rows_are_expanded_exactly() {
    let backend = mk_backend(2, Isa::detect());
    let values: Vec<f32> = noise_floats(1, 3 * 8);
    let bytes = bytemuck::cast_slice(&values);
    let source = WeightSource {
        name: "embed",
        format: WeightFormat::F32,
        n: 3,
        k: 8,
        bytes,
        scales: &[],
    };
    let table = backend.pack_embedding(&source).unwrap();
    let (token_ids, out) = (words(&backend, &[2, 0]), zeros(&backend, 16));
    for scale in [None, Some(24.25)] {
        backend.embed(Embed {
            table: &table,
            token_ids: &token_ids,
            out: &out,
            scale,
            rows: 2,
        });
        let mut expected = [&values[16..], &values[..8]].concat();
        let scale = scale.unwrap_or(1.0);
        expected.iter_mut().for_each(|x| *x *= scale);
        assert_eq!(read_floats(&backend, &out), expected);
    }
}

#[test]
fn a_linear_multiplies_and_adds_to_the_residual() {
    let (n, k, rows) = (5, 7, 3);
    let (w, x) = (noise_floats(1, n * k), noise_floats(2, rows * k));
    let bytes = bytemuck::cast_slice(&w);
    let source = WeightSource {
        name: "w",
        format: WeightFormat::F32,
        n,
        k,
        bytes,
        scales: &[],
    };
    let backend = mk_backend(2, Isa::detect());
    let weight = backend.pack_linear(&[source], Packing::JOINED).unwrap();
    let (x_buffer, out) = (floats(&backend, &x), floats(&backend, &[1.0; 15]));
    backend.linear(Linear {
        x: &x_buffer,
        weight: &weight,
        bias: None,
        epilogue: Epilogue::AddResidual,
        out: &out,
        rows,
    });
    for (i, y) in read_floats(&backend, &out).into_iter().enumerate() {
        let (row, column) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
        let dot: f32 = row.iter().zip(column).map(|(a, b)| a * b).sum();
        assert!((y - 1.0 - dot).abs() < 1e-5, "{y} beside {dot}");
    }
}

#[test]
fn an_exported_pool_is_the_memory_itself() {
    use std::io::{Read, Seek, SeekFrom};
    let backend = mk_backend(1, Isa::detect());
    let pool = backend
        .alloc_exportable("pool", DType::U32, 5000, Reach::Host)
        .unwrap();
    backend.upload(&pool.slice(4990..4992), &[77u32, 78]);
    backend.fence().wait().unwrap();
    let export = backend.export(&pool).unwrap();
    assert_eq!(export.len_bytes, 20_000);
    let ExportHandle::MemFd(fd) = export.handle else {
        panic!("host memory lies behind a file")
    };
    let mut file = std::fs::File::from(fd);
    file.seek(SeekFrom::Start(4990 * 4)).unwrap();
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).unwrap();
    assert_eq!(bytemuck::cast::<_, [u32; 2]>(bytes), [77, 78]);
}

#[test]
fn memory_of_the_process_alone_outlives_its_buffer_in_an_export() {
    use pd_verbs::Registrable;
    let backend = mk_backend(1, Isa::detect());
    let pool = backend
        .alloc_exportable("pool", DType::U32, 5000, Reach::Process)
        .unwrap();
    backend.upload(&pool.slice(4990..4992), &[77u32, 78]);
    backend.fence().wait().unwrap();
    let export = backend.export(&pool).unwrap();
    let ExportHandle::Private(memory) = export.handle else {
        panic!("no other process is to reach it")
    };
    drop(pool);
    let (addr, len) = memory.range();
    assert_eq!((addr.as_ptr() as u64, len), (export.addr, export.len_bytes));
    // SAFETY: within the range, which is mapped as long as `memory` is held; nothing writes it now.
    let words = unsafe { addr.cast::<u32>().add(4990).cast::<[u32; 2]>().read() };
    assert_eq!(words, [77, 78]);
}
