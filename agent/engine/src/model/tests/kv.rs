//! Keys and values in E4M3.

use super::emulated::{emulated, read_short};
use super::*;

const MODEL: &str = "tiny-mistral-full-fp8";

/// Where a key or value was rounded to bfloat16 first, it may become the next code, an eighth away.
const ROUNDED_TWICE_BOUND: f32 = 1.5e-1;

fn e4m3(model: &str, page_size: usize) -> Runner<CpuBackend> {
    let (backend, sizes) = (runner::backend(), sizes(page_size));
    Runner::with_kv(backend, &golden(model), sizes, DType::F8E4M3)
}

/// Rounded by torch, by the file's scales, as they are cached; some lie beyond 448.
#[test]
fn keys_and_values_in_e4m3_give_what_transformers_gives_with_a_cache_that_rounds() {
    let file = format!("{MODEL}/kv.safetensors");
    assert_golden_by(e4m3(MODEL, 16), MODEL, &file, GOLDEN_BOUND);
}

#[test]
fn bits_do_not_depend_on_chunks_and_pages_where_they_are_rounded() {
    let tokens: Vec<u32> = (0..150).map(|i| i * 7 % 384).collect();
    // Windows, sinks, states beside pages, latents; without scales in the file.
    for model in [MODEL, "tiny-gpt-oss", "tiny-qwen3-5", "tiny-deepseek-v3"] {
        let whole = e4m3(model, 16).forward(&[Piece::all(0, 0, &tokens)]);
        assert_ne!(whole, alone(model, &tokens), "{model} rounds nothing");
        let mut cut = e4m3(model, 1);
        let mut start = 0;
        for end in [1, 70, 71, 150] {
            let rows = cut.forward(&[Piece::all(0, start, &tokens[start..end])]);
            assert_eq!(rows, whole[start..end], "{model}");
            start = end;
        }
    }
}

#[test]
fn cuda_kernels_give_what_transformers_gives_with_a_cache_that_rounds() {
    let expected = read_short(&format!("{MODEL}/kv.safetensors"));
    for (dtype, bound) in [
        (DType::F32, GOLDEN_BOUND),
        (DType::BF16, ROUNDED_TWICE_BOUND),
    ] {
        let (backend, sizes) = (emulated(dtype), sizes(16));
        let runner = Runner::with_kv(backend, &golden(MODEL), sizes, DType::F8E4M3);
        assert_as(&expected, runner, MODEL, bound);
    }
}

#[test]
fn cuda_refuses_other_pools_than_its_own_and_e4m3_before_weights_are_read() {
    let needs = |dtype| needs_of(MODEL, dtype);
    let backend = emulated(DType::BF16);
    assert_eq!(backend.check_ops(&needs(DType::F8E4M3)), Ok(()));
    let refused = backend.check_ops(&needs(DType::F32)).unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("no KV pool of F32"), "{message}");
}
