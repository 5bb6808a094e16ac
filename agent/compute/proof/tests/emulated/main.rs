//! The suite on the emulated device, and what only a device that waits and is small can show.

mod faults;
mod weights;

use half::bf16;
use pd_compute::cuda::driver::IpcHandle;
use pd_compute::cuda::{CudaBackend, CudaConfig};
use pd_compute::{
    Backend, ComputeError, DType, Embed, ExportHandle, Packing, Reach, Ticket, WeightFormat,
    WeightSource,
};
use pd_compute_proof::EmulatedDriver;
use pd_compute_proof::cases::steps::{Steps, indices};
use pd_compute_proof::cases::{Subject, matrix};
use pd_compute_proof::speed::{ModelShape, Plan, measure};
use pd_compute_proof::suite::{Device, checks};
use std::sync::Arc;

/// A device of this compute capability.
struct Emulated(u32, u32);

const HOPPER: Emulated = Emulated(9, 0);
/// Of the time before Hopper.
const OLDER: Emulated = Emulated(8, 0);

impl Device for Emulated {
    type Backend = CudaBackend;

    fn start(&self, dtype: DType, deterministic: bool) -> Subject<CudaBackend> {
        let config = CudaConfig {
            dtype,
            deterministic,
        };
        let driver = EmulatedDriver::new(1 << 30).with_compute_capability(self.0, self.1);
        let backend = CudaBackend::start(Arc::new(driver), config);
        let backend = backend.expect("the host has memory for a backend");
        Subject { backend }
    }
}

macro_rules! emulated {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let checks = checks::<Emulated>();
            let check = checks.iter().find(|check| check.name == stringify!($name));
            (check.unwrap().run)(&HOPPER);
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
    narrow_linears_take_any_number_of_rows
    normed_rows_multiply_as_after_a_norm
    a_linears_bits_do_not_depend_on_the_number_of_rows
    ranks_with_some_of_k_add_up_to_the_bits_of_one
    attention_of_one_query_each_is_the_cpus
    attention_of_many_queries_is_the_cpus
    a_querys_bits_depend_on_its_own_keys_only
    attention_has_windows_sinks_caps_and_gates
    linears_add_biases_and_have_more_epilogues
    embeddings_are_scaled_and_norms_added
    convolutions_go_on_from_states
    the_delta_rule_goes_on_from_states
    heads_are_normed_and_gated
    states_come_back_from_the_host_as_they_went
    a_sequences_bits_do_not_depend_on_how_it_is_cut
    experts_are_chosen_run_and_added_up
    experts_of_other_ranks_are_left_to_them
    a_rows_bits_do_not_depend_on_those_that_choose_its_experts
    latents_are_kept_and_attended
    a_rows_bits_depend_on_the_latents_before_it_only
    queries_attend_to_latents_as_the_cpus_do
    a_querys_bits_depend_on_its_own_latents_only
    keys_and_values_become_the_nearest_codes_and_those_beyond_are_counted
    attention_reads_e4m3_as_the_cpus_does
    pages_and_bits_of_e4m3_stay_what_they_are
    greedy_rows_take_the_first_of_the_likeliest
    draws_fall_where_the_cpus_do
    penalties_and_bias_come_before_the_draw
    rows_without_a_finite_logit_yield_no_token
    draws_over_many_splits_fall_where_the_cpus_do
    equal_logits_are_drawn_by_id
    splits_without_numbers_are_passed_over
    penalties_and_bias_reach_every_split
    masked_rows_draw_what_is_allowed
    the_likeliest_are_found_in_all_splits
    asked_tokens_have_the_logprobs_of_drawn_ones
    sampling_reads_its_parameters_at_every_replay
    pages_come_back_from_the_host_as_they_went
    large_buffers_go_and_come_in_parts
    steps_that_come_again_yield_what_new_ones_do
    kernels_in_a_row_see_what_those_before_wrote
    a_wrong_index_faults_the_stream_and_names_the_op
    weights_that_the_kernels_cannot_load_are_refused
}

#[test]
fn attention_is_the_cpus_on_devices_before_hopper() {
    for name in [
        "attention_of_many_queries_is_the_cpus",
        "a_querys_bits_depend_on_its_own_keys_only",
        "latents_are_kept_and_attended",
        "a_querys_bits_depend_on_its_own_latents_only",
    ] {
        let checks = checks::<Emulated>();
        let check = checks.iter().find(|check| check.name == name);
        (check.unwrap().run)(&OLDER);
    }
}

#[test]
fn commands_run_in_the_order_they_were_given() {
    let subject = HOPPER.start(DType::BF16, false);
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

/// A backend in bfloat16 on a device with so much memory, and the device.
fn start(memory_bytes: usize) -> (CudaBackend, Arc<EmulatedDriver>) {
    let config = CudaConfig {
        dtype: DType::BF16,
        deterministic: false,
    };
    let driver = Arc::new(EmulatedDriver::new(memory_bytes));
    let backend = CudaBackend::start(driver.clone(), config).expect("it has the memory");
    (backend, driver)
}

#[test]
fn blocks_of_a_copy_that_is_refused_midway_are_freed() {
    for call in ["cuMemHostAlloc", "cuMemcpyAsync", "cuEventRecord"] {
        for is_upload in [false, true] {
            let (backend, driver) = start(64 << 20);
            let buffer = backend.alloc("large", DType::U8, 20 << 20).unwrap();
            let before = driver.pinned_bytes();
            // What has an event for each block fails at the second.
            let after = usize::from(is_upload || call != "cuEventRecord");
            driver.refuse(call, after);
            if is_upload {
                backend.upload(&buffer, &vec![1u8; 20 << 20]);
            } else {
                drop(backend.read(&buffer));
            }
            let fault = backend.health().unwrap_err().to_string();
            let op = if is_upload { "upload" } else { "read" };
            assert!(
                fault.starts_with(&format!("op {op} faulted: {call}: ")),
                "{fault}"
            );
            let held = driver.pinned_bytes() - before;
            assert!(held <= 8 << 20, "{call}: {held} bytes of no use are kept");
            drop((backend, buffer));
            assert_eq!(driver.pinned_bytes(), 0, "{call} leaves pinned memory");
        }
    }
}

#[test]
fn blocks_beyond_those_that_are_kept_are_freed_when_they_come_back() {
    let (backend, driver) = start(1 << 20);
    let buffer = backend.alloc("small", DType::U32, 4).unwrap();
    let before = driver.pinned_bytes();
    let tickets: Vec<_> = (0..70).map(|_| backend.read(&buffer)).collect();
    assert_eq!(driver.pinned_bytes() - before, 70 * 4096);
    drop(tickets);
    assert_eq!(driver.pinned_bytes() - before, 64 * 4096);
    drop(backend.read(&buffer));
    assert_eq!(driver.pinned_bytes() - before, 64 * 4096);
}

#[test]
fn all_that_comes_after_a_fault_reports_the_fault() {
    let (backend, driver) = start(1 << 20);
    let buffer = backend.alloc("small", DType::U32, 4).unwrap();
    let ticket = backend.read(&buffer);
    driver.refuse("cuEventSynchronize", 0);
    let first = ticket.wait().unwrap_err();
    assert_eq!(
        first.to_string(),
        "op read faulted: cuEventSynchronize: CUDA_ERROR_UNKNOWN (as a test wants it); the queue runs nothing \
         after it"
    );
    let values = [1.0f32; 16];
    let source = matrix("late", 8, &values);
    driver.refuse("cuMemHostAlloc", 0);
    backend.upload(&buffer, &[1u32]);
    assert_eq!(backend.read(&buffer).wait().unwrap_err(), first);
    assert_eq!(
        backend.pack_linear(&[source], Packing::JOINED).unwrap_err(),
        first
    );
    let refused = backend.alloc("later", DType::U32, 4).unwrap_err();
    assert_eq!(refused, first);
    assert_eq!(backend.health().unwrap_err(), first);
}

#[test]
fn a_peers_memory_is_opened_within_its_bounds_and_as_often_as_wanted() {
    let (backend, driver) = start(1 << 20);
    let buffer = backend
        .alloc_exportable("pool", DType::U8, 128 << 10, Reach::Host)
        .unwrap();
    backend.upload(&buffer, &vec![7u8; 128 << 10]);
    backend.fence().wait().unwrap();
    let ExportHandle::Cuda(own) = backend.export(&buffer).unwrap().handle else {
        panic!("it is a device's");
    };
    let handle = own.share().unwrap();
    let opened: Vec<_> = (0..2)
        .map(|_| own.open_shared(&handle, own.len()).unwrap())
        .collect();
    for opened in opened {
        let mut last = [0];
        opened.read(own.len() as u64 - 1, &mut last).unwrap();
        assert_eq!(last, [7]);
    }
    let before = driver.pinned_bytes();
    let hostile = [
        (handle.offset, own.len() + 4096),
        (handle.offset, usize::MAX),
        (handle.offset + 4096, own.len()),
        (u64::MAX, 1),
        (u64::MAX - 4096, 8192),
    ];
    for (offset, len) in hostile {
        let refused = own.open_shared(&IpcHandle { offset, ..handle }, len);
        let reason = refused.unwrap_err().to_string();
        let said =
            format!("cuIpcOpenMemHandle: {len} bytes from {offset} on leave the peer's block");
        assert!(reason.starts_with(&said), "{reason}");
    }
    assert_eq!(driver.pinned_bytes(), before, "nothing stays open");
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
    let mut reported = 0;
    let measured = measure(&HOPPER.start(DType::BF16, false), &plan, &mut |_| {
        reported += 1;
    });
    // Copies, five linears and norms with one row and 70, attention of both kinds, sampling of four kinds.
    assert_eq!((measured.len(), reported), (19, 19), "{measured:#?}");
    assert!(measured.iter().all(|line| line.gb_per_s > 0.0));
}
