//! Facts about norms.

use crate::buffer::DeviceBuffer as _;
use crate::cpu::backend::tests::{floats, isas, mk_backend, noise_floats, read_floats, zeros};
use crate::ops::{Backend, RmsNorm, WriteMode};

#[test]
fn a_norm_is_x_over_its_root_mean_square_times_the_weight() {
    for hidden in [1, 16, 40, 576] {
        let rows = 3;
        let (x, add) = (
            noise_floats(1, rows * hidden),
            noise_floats(2, rows * hidden),
        );
        let weight = noise_floats(3, hidden);
        for isa in isas() {
            let backend = mk_backend(2, isa);
            let x_buffer = floats(&backend, &x);
            let (add_buffer, out) = (floats(&backend, &add), zeros(&backend, rows * hidden));
            backend.rms_norm(RmsNorm {
                x: &x_buffer,
                add: Some(&add_buffer),
                weight: &floats(&backend, &weight),
                eps: 1e-5,
                out: &out,
                into: WriteMode::Store,
                rows,
            });
            let sums: Vec<f32> = x.iter().zip(&add).map(|(x, a)| x + a).collect();
            assert_eq!(
                read_floats(&backend, &x_buffer),
                sums,
                "the residual is kept"
            );
            for (i, y) in read_floats(&backend, &out).into_iter().enumerate() {
                let row = &sums[i / hidden * hidden..][..hidden];
                let mean = row.iter().map(|x| f64::from(x * x)).sum::<f64>() / hidden as f64;
                let expected = f64::from(sums[i]) / (mean + 1e-5).sqrt();
                let expected = expected * f64::from(weight[i % hidden]);
                assert!(
                    (f64::from(y) - expected).abs() < 1e-6,
                    "{y} beside {expected}"
                );
            }
        }
    }
}

#[test]
fn a_row_is_normed_to_the_same_bits_alone_in_place_and_among_others() {
    let hidden = 100;
    let x = noise_floats(1, 40 * hidden);
    let weight = noise_floats(3, hidden);
    let mut results = Vec::new();
    for isa in isas() {
        let backend = mk_backend(3, isa);
        let weight = floats(&backend, &weight);
        let all = floats(&backend, &x);
        let norm = |x: &_, out: &_, rows| {
            backend.rms_norm(RmsNorm {
                x,
                add: None,
                weight: &weight,
                eps: 1e-6,
                out,
                into: WriteMode::Store,
                rows,
            });
        };
        let one = zeros(&backend, hidden);
        norm(&all.slice(7 * hidden..8 * hidden), &one, 1);
        results.push(read_floats(&backend, &one));
        norm(&all, &all, 40);
        results.push(read_floats(&backend, &all)[7 * hidden..8 * hidden].to_vec());
    }
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn an_added_norm_is_the_stored_one_added() {
    for hidden in [8, 40, 576] {
        let rows = 3;
        let (x, stream) = (
            noise_floats(1, rows * hidden),
            noise_floats(2, rows * hidden),
        );
        for isa in isas() {
            let backend = mk_backend(2, isa);
            let weight = floats(&backend, &noise_floats(3, hidden));
            let norm = |into| {
                let out = floats(&backend, &stream);
                let x = floats(&backend, &x);
                backend.rms_norm(RmsNorm {
                    x: &x,
                    add: None,
                    weight: &weight,
                    eps: 1e-5,
                    out: &out,
                    into,
                    rows,
                });
                read_floats(&backend, &out)
            };
            let stored = norm(WriteMode::Store);
            let sums: Vec<f32> = stream.iter().zip(stored).map(|(a, y)| a + y).collect();
            assert_eq!(norm(WriteMode::Add), sums, "{}", isa.name());
        }
    }
}
