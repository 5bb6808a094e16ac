//! Estimators find what made the figures, and say nothing before they can.

use super::super::estimates::arrivals::Arrivals;
use super::super::estimates::decayed_ratio::DecayedRatio;
use super::super::estimates::itl::ItlModel;
use super::super::estimates::start_times::StartTimes;
use super::super::window::WindowMax;
use super::seconds;

fn assert_near(found: f64, truth: f64) {
    let off = (found - truth).abs() / truth;
    assert!(off < 0.02, "{found}, not {truth}");
}

/// 8 ms, 0.2 ms for each request, 1 µs for each token.
fn itl_s(running: f64, kv_tokens: f64) -> f64 {
    0.008 + 0.000_2 * running + 1e-6 * kv_tokens
}

#[test]
fn the_interval_model_finds_its_coefficients() {
    let mut model = ItlModel::default();
    for step in 0..200u32 {
        let running = f64::from(4 + step % 37);
        let kv_tokens = running * f64::from(500 + 40 * (step % 11));
        model.observe(running, kv_tokens, itl_s(running, kv_tokens));
    }
    let line = model.line(1000.0).unwrap();
    assert_near(line.base_s, 0.008);
    assert_near(line.slope_s, 0.000_2 + 1e-6 * 1000.0);
}

#[test]
fn the_interval_model_is_not_trusted_without_spread() {
    let mut model = ItlModel::default();
    for _ in 0..100 {
        model.observe(10.0, 10_000.0, itl_s(10.0, 10_000.0));
    }
    assert_eq!(model.line(1000.0), None);
    let mut model = ItlModel::default();
    for running in [2.0, 8.0, 16.0, 32.0] {
        model.observe(running, running * 1000.0, itl_s(running, running * 1000.0));
    }
    assert_eq!(model.line(1000.0), None, "four observations are too few");
}

#[test]
fn a_model_that_fits_badly_is_not_trusted() {
    let mut model = ItlModel::default();
    for octave in 0..8 {
        let kv_tokens = 1000.0 * 2f64.powi(octave);
        let far_off = if octave % 2 == 0 { 0.2 } else { 5.0 };
        model.observe(4.0, kv_tokens, far_off * itl_s(4.0, kv_tokens));
    }
    assert_eq!(model.line(800.0), None);
}

#[test]
fn a_long_time_at_one_load_does_not_spoil_the_model() {
    let mut model = ItlModel::default();
    for running in (1..60u32).map(f64::from) {
        model.observe(running, running * 900.0, itl_s(running, running * 900.0));
    }
    for step in 0..20_000u32 {
        let jitter = 1.0 + 0.02 * f64::from(step % 5) - 0.04;
        model.observe(30.0, 27_000.0, jitter * itl_s(30.0, 27_000.0));
    }
    let line = model.line(900.0).unwrap();
    assert!((line.base_s + line.slope_s * 30.0 - itl_s(30.0, 27_000.0)).abs() < 0.002);
    assert!((line.base_s + line.slope_s * 45.0 - itl_s(45.0, 40_500.0)).abs() < 0.006);
}

#[test]
fn a_steady_stream_has_no_trend() {
    let mut arrivals = Arrivals::default();
    for _ in 0..300 {
        arrivals.observe(5.0, 0.0, 1.0);
    }
    assert_near(arrivals.rate(), 5.0);
    assert_near(arrivals.forecast(600.0), 5.0);
}

#[test]
fn a_ramp_is_forecast() {
    let mut arrivals = Arrivals::default();
    for second in 0..600u32 {
        arrivals.observe(f64::from(second) / 10.0, 0.0, 1.0);
    }
    let forecast = arrivals.forecast(30.0);
    assert!((62.0..64.0).contains(&forecast), "{forecast}, not 63");
    assert_near(arrivals.forecast(6000.0), 2.0 * arrivals.rate());
}

#[test]
fn the_first_seconds_are_no_trend() {
    let mut arrivals = Arrivals::default();
    for _ in 0..5 {
        arrivals.observe(8.0, 0.0, 1.0);
    }
    assert_near(arrivals.rate(), 8.0);
    assert_near(arrivals.forecast(60.0), 8.0);
}

#[test]
fn silence_decays_no_ratio() {
    let mut speed = DecayedRatio::default();
    assert_eq!(speed.get(0.1), None);
    speed.add(1000.0, 0.5, 30.0);
    for _ in 0..1000 {
        speed.add(0.0, 0.0, 30.0);
    }
    assert_eq!(speed.get(0.1), Some(2000.0));
    for _ in 0..200 {
        speed.add(500.0, 1.0, 30.0);
    }
    assert_near(speed.get(0.1).unwrap(), 500.0);
}

#[test]
fn the_start_time_is_the_ninetieth_percentile_of_the_last() {
    let mut starts = StartTimes::default();
    assert_eq!(starts.p90(), None);
    (1..=100).for_each(|took| starts.push(seconds(took)));
    assert_eq!(starts.p90(), Some(seconds(99)));
}

#[test]
fn the_window_knows_its_most_once_it_is_covered() {
    let mut window = WindowMax::default();
    for (at, value) in [(0, 3), (10, 7), (20, 5), (30, 5)] {
        window.push(seconds(at), value);
    }
    assert_eq!(window.get(seconds(30), seconds(40)), None);
    assert_eq!(window.get(seconds(30), seconds(30)), Some(7));
    assert_eq!(window.get(seconds(31), seconds(15)), Some(5));
}
