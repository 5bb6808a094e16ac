//! What must hold on every device: each op beside the CPU backend's, and what a backend promises
//! beyond numbers. A check panics with what is wrong.

mod attention;
mod delta;
mod e4m3;
mod experts;
mod forms;
mod latents;
mod linears;
mod order;
mod sampling;

use crate::cases::attention::KvShape;
use crate::cases::rows::{self, QkvCase};
use crate::cases::steps::{Steps, indices};
use crate::cases::{Subject, compare, matrix, pages, reference, values};
use attention::{
    a_querys_bits_depend_on_its_own_keys_only, attention_of_many_queries_is_the_cpus,
    attention_of_one_query_each_is_the_cpus,
};
use delta::{
    a_sequences_bits_do_not_depend_on_how_it_is_cut, convolutions_go_on_from_states,
    heads_are_normed_and_gated, states_come_back_from_the_host_as_they_went,
    the_delta_rule_goes_on_from_states,
};
use e4m3::{
    attention_reads_e4m3_as_the_cpus_does,
    keys_and_values_become_the_nearest_codes_and_those_beyond_are_counted,
    pages_and_bits_of_e4m3_stay_what_they_are,
};
use experts::{
    a_rows_bits_do_not_depend_on_those_that_choose_its_experts,
    experts_are_chosen_run_and_added_up, experts_of_other_ranks_are_left_to_them,
};
use forms::{
    attention_has_windows_sinks_caps_and_gates, embeddings_are_scaled_and_norms_added,
    linears_add_biases_and_have_more_epilogues,
};
use latents::{
    a_querys_bits_depend_on_its_own_latents_only, a_rows_bits_depend_on_the_latents_before_it_only,
    latents_are_kept_and_attended, queries_attend_to_latents_as_the_cpus_do,
};
use linears::{
    a_linears_bits_do_not_depend_on_the_number_of_rows, linears_multiply_add_and_gate,
    narrow_linears_take_any_number_of_rows, normed_rows_multiply_as_after_a_norm,
    ranks_with_some_of_k_add_up_to_the_bits_of_one,
};
use order::kernels_in_a_row_see_what_those_before_wrote;
use pd_compute::{Backend, DType, Embed, NO_TOKEN, Packing, Ticket};
use sampling::{
    asked_tokens_have_the_logprobs_of_drawn_ones, draws_fall_where_the_cpus_do,
    draws_over_many_splits_fall_where_the_cpus_do, equal_logits_are_drawn_by_id,
    greedy_rows_take_the_first_of_the_likeliest, masked_rows_draw_what_is_allowed,
    penalties_and_bias_come_before_the_draw, penalties_and_bias_reach_every_split,
    rows_without_a_finite_logit_yield_no_token, sampling_reads_its_parameters_at_every_replay,
    splits_without_numbers_are_passed_over, the_likeliest_are_found_in_all_splits,
};
use std::cell::RefCell;

/// Something that backends run on.
pub trait Device {
    type Backend: Backend;

    /// A fresh backend that computes in `dtype`.
    fn start(&self, dtype: DType, deterministic: bool) -> Subject<Self::Backend>;
}

/// One thing that must hold.
#[derive(Debug)]
pub struct Check<D: Device> {
    pub name: &'static str,
    pub run: fn(&D),
}

macro_rules! checks {
    ($($name:ident)*) => {
        /// All of them.
        pub fn checks<D: Device>() -> Vec<Check<D>> {
            vec![$(Check { name: stringify!($name), run: $name::<D> }),*]
        }
    };
}

checks! {
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

const DTYPES: [DType; 2] = [DType::F32, DType::BF16];

/// What results were held to.
#[derive(Clone, Copy, Debug)]
pub struct Closeness {
    pub bound: f32,
    /// As [`compare`] counts it.
    pub largest_error: f32,
}

thread_local! {
    static CLOSENESS: RefCell<Vec<Closeness>> = RefCell::default();
}

/// How close results were in the checks of this thread since the last call, for each bound.
pub fn take_closeness() -> Vec<Closeness> {
    CLOSENESS.take()
}

fn assert_close(actual: &[f32], expected: &[f32], bound: f32, what: &dyn std::fmt::Debug) {
    let error = compare(actual, expected, bound).unwrap_or_else(|off| panic!("{what:?}: {off}"));
    CLOSENESS.with_borrow_mut(|all| {
        if let Some(same) = all
            .iter_mut()
            .find(|one| one.bound.total_cmp(&bound).is_eq())
        {
            same.largest_error = same.largest_error.max(error);
        } else {
            all.push(Closeness {
                bound,
                largest_error: error,
            });
        }
    });
}

fn embedding_rows_are_those_of_the_table<D: Device>(device: &D) {
    let ids = [2, 0, NO_TOKEN, 6, 6];
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        for hidden in [8, 20, 64] {
            let expected = rows::embed(&reference(), 7, hidden, None, &ids);
            let actual = rows::embed(&subject, 7, hidden, None, &ids);
            assert_close(
                &actual,
                &expected,
                subject.rounding() / 2.0,
                &(dtype, hidden),
            );
        }
    }
}

fn norms_add_first_and_write_the_sum_back<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        for hidden in [8, 60, 64, 1000, 4096] {
            for (adds, in_place) in [(false, false), (true, false), (true, true)] {
                let shape = (3, hidden);
                let (expected, sum) = rows::rms_norm(&reference(), dtype, shape, adds, in_place);
                let (actual, actual_sum) = rows::rms_norm(&subject, dtype, shape, adds, in_place);
                let what = (dtype, hidden, adds, in_place);
                assert_close(&actual, &expected, 2.0 * subject.rounding(), &what);
                assert_close(&actual_sum, &sum, 2.0 * subject.rounding(), &what);
            }
        }
    }
}

fn rotary_tables_are_the_cpus<D: Device>(device: &D) {
    let positions = [0, 1, 63, 1000, 40_959];
    let expected = rows::rope_table(&reference(), &positions, 32);
    let actual = rows::rope_table(&device.start(DType::BF16, false), &positions, 32);
    assert_close(&actual, &expected, 1e-7, &"table");
}

fn gathered_rows_leave_those_that_are_not_wanted<D: Device>(device: &D) {
    let subject = device.start(DType::BF16, false);
    for row_len in [1, 3, 4, 64] {
        assert_eq!(
            rows::gather_rows(&subject, row_len),
            rows::gather_rows(&reference(), row_len)
        );
    }
}

fn qkv_becomes_queries_and_cached_keys_and_values<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        for (head_dim, rotary_dim, page_size) in [
            (16, 16, 4),
            (64, 16, 16),
            (64, 0, 4),
            (80, 80, 1),
            (128, 128, 8),
        ] {
            for (has_bias, has_norms, following) in
                [(false, false, 0), (true, true, 0), (true, false, 64)]
            {
                let case = QkvCase {
                    kv: KvShape {
                        num_pages: 9,
                        page_size,
                        num_kv_heads: 2,
                        head_dim,
                        num_layers: 3,
                    },
                    num_q_heads: 6,
                    rotary_dim,
                    following,
                    has_bias,
                    has_norms,
                    dtype,
                    kv_dtype: dtype,
                };
                let (queries, pool) = rows::qkv_prep(&reference(), &case);
                let (actual_queries, actual_pool) = rows::qkv_prep(&subject, &case);
                assert_close(&actual_queries, &queries, 2.0 * subject.rounding(), &case);
                assert_close(&actual_pool, &pool, 2.0 * subject.rounding(), &case);
            }
        }
    }
}

const SMALL_POOL: KvShape = KvShape {
    num_pages: 5,
    page_size: 3,
    num_kv_heads: 2,
    head_dim: 8,
    num_layers: 2,
};

fn pages_come_back_from_the_host_as_they_went<D: Device>(device: &D) {
    for dtype in DTYPES {
        assert_eq!(
            pages::there_and_back(&device.start(dtype, false), &SMALL_POOL, dtype),
            pages::there_and_back(&reference(), &SMALL_POOL, dtype)
        );
    }
}

fn large_buffers_go_and_come_in_parts<D: Device>(device: &D) {
    let subject = device.start(DType::F32, false);
    let many = values(1, 5 << 20);
    let buffer = subject.floats(&many);
    assert_eq!(subject.read(&buffer), many);
}

fn steps_that_come_again_yield_what_new_ones_do<D: Device>(device: &D) {
    // With few rows kernels of our own multiply, with many the library.
    let rows = [3, 3, 70, 3, 70, 70, 3, 9, 70];
    let (steps, plain) = (
        Steps::new(&device.start(DType::BF16, false), 70),
        Steps::new(&device.start(DType::BF16, false), 70),
    );
    for (turn, rows) in (0..).zip(rows) {
        let indices = indices(rows, turn);
        let expected = plain.run(&indices, false);
        assert_eq!(steps.run(&indices, true), expected, "turn {turn}");
    }
}

fn a_wrong_index_faults_the_stream_and_names_the_op<D: Device>(device: &D) {
    let subject = device.start(DType::BF16, false);
    let table = [0.0f32; 24];
    let source = matrix("embed", 8, &table);
    let table = subject
        .backend
        .pack_embedding(&source)
        .expect("it is taken");
    let out = subject.zeros(DType::BF16, 8);
    assert_eq!(subject.backend.health(), Ok(()));
    subject.backend.embed(Embed {
        table: &table,
        token_ids: &subject.words(&[3]),
        out: &out,
        scale: None,
        rows: 1,
    });
    let fault = subject.try_read(&out).expect_err("it is refused");
    assert_eq!(
        fault.to_string(),
        "op embed faulted: token id 3 is beyond the vocabulary of 3; the queue runs nothing after it"
    );
    assert_eq!(subject.backend.health(), Err(fault.clone()));
    assert_eq!(
        subject.backend.fence().wait().expect_err("it is refused"),
        fault
    );
}

fn weights_that_the_kernels_cannot_load_are_refused<D: Device>(device: &D) {
    let subject = device.start(DType::BF16, false);
    let values = values(1, 6 * 12);
    let source = |k| matrix("odd", k, &values);
    let refused = subject.backend.pack_linear(&[source(12)], Packing::JOINED);
    assert_eq!(
        refused.expect_err("it is refused").to_string(),
        "weight odd: has 12 columns; the CUDA backend takes multiples of 8, use the CPU's"
    );
    let refused = subject
        .backend
        .pack_linear(&[source(8), source(24)], Packing::JOINED);
    assert_eq!(
        refused.expect_err("it is refused").to_string(),
        "weight odd: has 24 columns, odd has 8"
    );
}
