//! The suite on the emulated device, and what only a device that waits and is small can show.

use std::sync::Arc;

use pd_compute::cuda::{CudaBackend, CudaConfig};
use pd_compute::{Backend, ComputeError, DType, Ticket};
use pd_compute_proof::EmulatedDriver;
use pd_compute_proof::cases::Subject;
use pd_compute_proof::cases::steps::{Steps, indices};
use pd_compute_proof::speed::{ModelShape, Plan, measure};
use pd_compute_proof::suite::{Device, checks};

struct Emulated;

impl Device for Emulated {
    type Backend = CudaBackend;

    fn start(&self, dtype: DType, deterministic: bool) -> Subject<CudaBackend> {
        let config = CudaConfig {
            dtype,
            deterministic,
        };
        let driver = Arc::new(EmulatedDriver::new(1 << 30));
        let backend =
            CudaBackend::start(driver, config).expect("the host has memory for a backend");
        Subject { backend }
    }
}

macro_rules! emulated {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let checks = checks::<Emulated>();
            let check = checks.iter().find(|check| check.name == stringify!($name));
            (check.unwrap().run)(&Emulated);
        })*

        #[test]
        fn every_check_of_the_suite_is_a_test_here() {
            let names: Vec<_> = checks::<Emulated>().iter().map(|check| check.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

emulated! {
    embedding_rows_are_those_of_the_table
    norms_add_first_and_write_the_sum_back
    rotary_tables_are_the_cpus
    gathered_rows_leave_those_that_are_not_wanted
    qkv_becomes_queries_and_cached_keys_and_values
    linears_multiply_add_and_gate
    a_linears_bits_do_not_depend_on_the_number_of_rows
    attention_of_one_query_each_is_the_cpus
    attention_of_many_queries_is_the_cpus
    a_querys_bits_depend_on_its_own_keys_only
    greedy_rows_take_the_first_of_the_likeliest
    draws_fall_where_the_cpus_do
    penalties_and_bias_come_before_the_draw
    rows_without_a_finite_logit_yield_no_token
    pages_come_back_from_the_host_as_they_went
    large_buffers_go_and_come_in_parts
    steps_that_come_again_yield_what_new_ones_do
    a_wrong_index_faults_the_stream_and_names_the_op
    weights_that_the_kernels_cannot_load_are_refused
}

#[test]
fn commands_run_in_the_order_they_were_given() {
    let subject = Emulated.start(DType::BF16, false);
    let buffer = subject.words(&[1, 2, 3]);
    let before = subject.backend.read(&buffer);
    subject
        .backend
        .upload(&pd_compute::DeviceBuffer::slice(&buffer, 1..2), &[9u32]);
    let mut after = subject.backend.read(&buffer);
    let abandoned = subject.backend.read(&buffer);
    drop(abandoned);
    assert!(after.try_take().is_none(), "nothing has run yet");
    assert_eq!(before.wait().unwrap().as_slice::<u32>(), [1, 2, 3]);
    let result = std::iter::repeat_with(|| after.try_take())
        .take(100)
        .flatten()
        .next();
    assert_eq!(result.unwrap().unwrap().as_slice::<u32>(), [1, 9, 3]);
    assert!(after.try_take().is_none(), "a result is yielded once");
}

/// Steps on a device with so much memory, and the device.
fn steps(memory_bytes: usize) -> (Steps<CudaBackend>, Arc<EmulatedDriver>) {
    let config = CudaConfig {
        dtype: DType::BF16,
        deterministic: false,
    };
    let driver = Arc::new(EmulatedDriver::new(memory_bytes));
    let backend = CudaBackend::start(driver.clone(), config).expect("it has the memory");
    (Steps::new(&Subject { backend }, 130), driver)
}

#[test]
fn a_step_becomes_a_graph_the_second_time() {
    let (steps, driver) = steps(1 << 30);
    // The first with many rows finds too little memory for gate and up on its way, and counts for nothing.
    let turns = [
        (3, 0),
        (3, 1),
        (70, 1),
        (3, 2),
        (70, 2),
        (70, 3),
        (3, 4),
        (9, 4),
        (70, 5),
    ];
    for (turn, (rows, replays)) in (0..).zip(turns) {
        steps.run(&indices(rows, turn), true);
        assert_eq!(driver.replays(), replays, "turn {turn} with {rows} rows");
    }
    let before = driver.log().len();
    steps.run(&indices(3, 0), true);
    steps.run(&indices(3, 0), false);
    let log = driver.log();
    let (replayed, plain) = log[before..].split_at((log.len() - before) / 2);
    assert_eq!(replayed, plain, "a graph runs the same kernels");
}

#[test]
fn steps_that_are_not_used_are_forgotten() {
    let (steps, driver) = steps(1 << 30);
    let replays = |rows: u32| {
        let before = driver.replays();
        steps.run(&indices(rows, 0), true);
        driver.replays() - before
    };
    for rows in 1..=130 {
        // Once more for those that find too little scratch at first.
        (0..3).for_each(|_| _ = replays(rows));
    }
    assert_eq!(driver.graphs(), 128);
    assert_eq!((replays(130), replays(3), replays(1)), (1, 1, 0));
    drop(steps);
    assert_eq!(driver.graphs(), 0, "graphs go with the backend");
    assert_eq!(driver.device_bytes(), 0);
}

#[test]
fn where_no_graph_fits_kernels_are_launched_one_by_one() {
    let (ample, _) = steps(1 << 30);
    // Weights and buffers take some 60 KB.
    let (steps, driver) = steps(100_000);
    for turn in 0..4 {
        let indices = indices(5, turn);
        assert_eq!(steps.run(&indices, true), ample.run(&indices, false));
    }
    assert_eq!(driver.replays(), 0);
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_size() {
    let config = CudaConfig {
        dtype: DType::BF16,
        deterministic: false,
    };
    let driver = Arc::new(EmulatedDriver::new(1 << 20));
    let backend = CudaBackend::start(driver.clone(), config).unwrap();
    let first = backend.alloc("the KV pool", DType::BF16, 400_000).unwrap();
    let refused = backend.alloc("weights", DType::BF16, 400_000).unwrap_err();
    assert!(matches!(refused, ComputeError::OutOfMemory { .. }));
    assert_eq!(
        refused.to_string(),
        "cuMemAlloc of 800000 bytes for weights failed: CUDA_ERROR_OUT_OF_MEMORY (800000 of 1048576 bytes \
         are in use); lower the size or free memory"
    );
    drop(first);
    assert_eq!(driver.device_bytes(), 0);
    assert!(backend.alloc("weights", DType::BF16, 400_000).is_ok());
}

#[test]
fn every_measurement_of_speed_runs() {
    let tiny = ModelShape {
        name: "tiny",
        hidden: 64,
        intermediate: 96,
        num_q_heads: 4,
        num_kv_heads: 2,
        head_dim: 64,
        vocab: 200,
    };
    let plan = Plan {
        models: vec![tiny],
        rows: vec![1, 70],
        decodes: vec![(100, 2)],
        prompts: vec![70],
        repeats: 2,
        cold_bytes: 100_000,
    };
    let mut told = 0;
    let measured = measure(&Emulated.start(DType::BF16, false), &plan, &mut |_| {
        told += 1;
    });
    // Copies, five linears and norms with one row and 70, attention of both kinds, sampling of two kinds.
    assert_eq!((measured.len(), told), (17, 17), "{measured:#?}");
    assert!(measured.iter().all(|line| line.gb_per_s > 0.0));
}
