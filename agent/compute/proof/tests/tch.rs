//! The suite on libtorch: every op beside the CPU backend's, and how close they are.

use pd_compute::tch::{TchBackend, TchConfig, usual_device};
use pd_compute::{
    Backend, ComputeError, DType, DeviceBuffer, Embed, Reach, WeightFormat, WeightSource,
};
use pd_compute_proof::cases::{Subject, reference, values};
use pd_compute_proof::suite::{Device, checks, take_closeness};
use std::time::Instant;

/// A GPU if libtorch finds one.
struct Torch;

impl Device for Torch {
    type Backend = TchBackend;

    fn start(&self, dtype: DType, _deterministic: bool) -> Subject<TchBackend> {
        let config = TchConfig {
            device: usual_device(),
            dtype,
        };
        let backend = TchBackend::start(config).expect("the usual device is there");
        Subject { backend }
    }
}

/// What torch promises less of, or what is of our kernels only, such as KV in E4M3.
const NOT_OF_TORCH: [&str; 11] = [
    "keys_and_values_become_the_nearest_codes_and_those_beyond_are_counted",
    "attention_reads_e4m3_as_the_cpus_does",
    "pages_and_bits_of_e4m3_stay_what_they_are",
    "a_sequences_bits_do_not_depend_on_how_it_is_cut",
    "a_rows_bits_do_not_depend_on_those_that_choose_its_experts",
    "a_rows_bits_depend_on_the_latents_before_it_only",
    "a_querys_bits_depend_on_its_own_latents_only",
    "a_linears_bits_do_not_depend_on_the_number_of_rows",
    "ranks_with_some_of_k_add_up_to_the_bits_of_one",
    "a_querys_bits_depend_on_its_own_keys_only",
    "weights_that_the_kernels_cannot_load_are_refused",
];

macro_rules! torch {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let checks = checks::<Torch>();
            let check = checks.iter().find(|check| check.name == stringify!($name));
            let started = Instant::now();
            (check.unwrap().run)(&Torch);
            print!("{:?}, {:.2} s", usual_device(), started.elapsed().as_secs_f64());
            for held in take_closeness() {
                print!(", off by {:.1e} of {:.1e}", held.largest_error, held.bound);
            }
            print!(": ");
        })*

        #[test]
        fn every_check_of_the_suite_is_a_test_here_or_not_of_torch() {
            let names = checks::<Torch>().into_iter().map(|check| check.name);
            let names: Vec<_> = names.filter(|name| !NOT_OF_TORCH.contains(name)).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

torch! {
    embedding_rows_are_those_of_the_table
    norms_add_first_and_write_the_sum_back
    rotary_tables_are_the_cpus
    gathered_rows_leave_those_that_are_not_wanted
    qkv_becomes_queries_and_cached_keys_and_values
    linears_multiply_add_and_gate
    narrow_linears_take_any_number_of_rows
    normed_rows_multiply_as_after_a_norm
    attention_of_one_query_each_is_the_cpus
    attention_of_many_queries_is_the_cpus
    attention_has_windows_sinks_caps_and_gates
    linears_add_biases_and_have_more_epilogues
    embeddings_are_scaled_and_norms_added
    convolutions_go_on_from_states
    the_delta_rule_goes_on_from_states
    heads_are_normed_and_gated
    states_come_back_from_the_host_as_they_went
    experts_are_chosen_run_and_added_up
    experts_of_other_ranks_are_left_to_them
    latents_are_kept_and_attended
    queries_attend_to_latents_as_the_cpus_do
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
}

/// Rows of a table in `format`.
fn rows_of<B: Backend>(subject: &Subject<B>, format: WeightFormat, bytes: &[u8]) -> Vec<f32> {
    let (n, k) = (3, 512);
    let table = WeightSource {
        name: "table",
        format,
        n,
        k,
        bytes,
        scales: &[],
    };
    let out = subject.zeros(subject.dtype(), n * k);
    subject.backend.embed(Embed {
        table: &subject.backend.pack_embedding(&table).expect("it fits"),
        token_ids: &subject.words(&[2, 0, 1]),
        out: &out,
        scale: None,
        rows: n,
    });
    subject.read(&out)
}

#[test]
fn quantised_weights_are_the_cpus() {
    for format in [
        WeightFormat::F16,
        WeightFormat::BF16,
        WeightFormat::Q8_0,
        WeightFormat::Q4_0,
        WeightFormat::Q4_1,
        WeightFormat::Q4K,
        WeightFormat::Q6K,
    ] {
        let len = 3 * format.row_bytes(512).expect("whole blocks");
        // Any bytes are weights, as long as scales are numbers: their exponents lie in the upper bits.
        let bytes = values(len as u64, len.div_ceil(4));
        let mut bytes = bytemuck::cast_slice::<f32, u8>(&bytes)[..len].to_vec();
        bytes.iter_mut().for_each(|byte| *byte &= 0xbb);
        assert_eq!(
            rows_of(&Torch.start(DType::F32, false), format, &bytes),
            rows_of(&reference(), format, &bytes),
            "{format:?}"
        );
    }
}

#[test]
fn memory_of_torch_is_not_exported() {
    let Subject { backend } = Torch.start(DType::BF16, false);
    let pool = backend.alloc_exportable("pool", DType::BF16, 8, Reach::Process);
    let refused = backend.export(&pool.expect("it fits").slice(0..8));
    assert!(matches!(refused, Err(ComputeError::NotExportable { .. })));
}
