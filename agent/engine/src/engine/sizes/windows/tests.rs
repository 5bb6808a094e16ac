//! How many tokens fit.

use super::*;
use crate::engine::config::EngineConfig;

/// Of gemma-3-4b in bfloat16: 5 of 34 layers see all tokens, and keys and values have 4 heads of 256.
const GEMMA: PerSpace = PerSpace {
    full: 5 * 2 * 4 * 256 * 2,
    window: 29 * 2 * 4 * 256 * 2,
};
const GEMMA_WINDOW: usize = 1024;

fn mk_config() -> EngineConfig {
    EngineConfig {
        chunked_prefill_size: Some(2048),
        disable_radix_cache: true,
        ..EngineConfig::new("unused")
    }
}

fn tokens(config: &EngineConfig, memory: usize) -> PerSpace {
    let pages = divide(config, Some(GEMMA_WINDOW), GEMMA, memory).expect("a valid ratio");
    PerSpace {
        full: pages.full * 16,
        window: pages.window * 16,
    }
}

#[test]
fn a_model_without_a_window_space_has_all_memory_in_the_other() {
    let bytes = PerSpace {
        full: 1000,
        window: 0,
    };
    let pages = divide(&mk_config(), None, bytes, 1_000_000).expect("no ratio is needed");
    assert_eq!((pages.full, pages.window), (62, 0));
}

#[test]
fn windows_take_what_their_requests_can_use_and_the_rest_is_for_contexts() {
    let memory = 16 << 30;
    let before = memory / (GEMMA.full + GEMMA.window);
    let PerSpace { full, window } = tokens(&mk_config(), memory);
    assert_eq!(window, 32 * (1024 + 2 * 16) + 2 * 2048);
    assert!(full * GEMMA.full + window * GEMMA.window <= memory);
    assert!((full + 16) * GEMMA.full + window * GEMMA.window > memory);
    assert_eq!((before, full), (123_361, 619_104));
}

#[test]
fn a_pool_for_many_requests_has_windows_for_those_that_it_holds() {
    let config = EngineConfig {
        max_running_requests: 256,
        ..mk_config()
    };
    let PerSpace { full, window } = tokens(&config, 16 << 30);
    let each = GEMMA_WINDOW + 2 * 16;
    let (requests, windows) = (full / (each + 2048), window / each);
    assert!(windows.abs_diff(requests) <= 1, "{windows} for {requests}");
    assert_eq!((full, requests), (282_128, 90));
}

#[test]
fn requests_that_are_no_longer_than_their_window_need_as_much_of_each_space() {
    let config = EngineConfig {
        context_length: Some(1024),
        max_running_requests: 256,
        ..mk_config()
    };
    let PerSpace { full, window } = tokens(&config, 16 << 30);
    assert_eq!((full, window), (123_360, 123_360));
    let somewhat_longer = EngineConfig {
        context_length: Some(1024 + 2 * 16 + 32),
        ..config
    };
    let PerSpace { full, window } = tokens(&somewhat_longer, 16 << 30);
    assert!(
        window.abs_diff(full * 1056 / 1088) <= 16,
        "{window} of {full}"
    );
}

#[test]
fn a_ratio_is_held() {
    let config = EngineConfig {
        swa_full_tokens_ratio: Some(0.5),
        ..mk_config()
    };
    let PerSpace { full, window } = tokens(&config, 16 << 30);
    assert!(window.abs_diff(full / 2) <= 16, "{window} of {full}");
}

#[test]
fn a_request_alone_can_always_go_on() {
    let config = EngineConfig {
        swa_full_tokens_ratio: Some(0.001),
        ..mk_config()
    };
    assert!(tokens(&config, 1 << 30).window >= 1024 + 2048);
    let whole = EngineConfig {
        chunked_prefill_size: None,
        ..config
    };
    let tokens = tokens(&whole, 1 << 30);
    assert_eq!(tokens.full, tokens.window, "prompts are computed whole");
}

#[test]
fn a_ratio_beyond_its_bounds_is_refused() {
    for ratio in [0.0, -1.0, 1.5, f32::NAN] {
        let config = EngineConfig {
            swa_full_tokens_ratio: Some(ratio),
            ..mk_config()
        };
        let error = divide(&config, Some(8), GEMMA, 1 << 30).expect_err("refused");
        assert!(error.to_string().contains("--swa-full-tokens-ratio"));
    }
}
