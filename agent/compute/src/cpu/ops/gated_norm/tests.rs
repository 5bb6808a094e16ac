//! Facts about norms with a gate.

use crate::cpu::backend::tests::{floats, isas, mk_backend, noise_floats, read_floats};
use crate::ops::{Backend, GatedNorm, Strided};

#[test]
fn each_head_is_normed_and_multiplied_by_its_gate() {
    for (num_heads, head_dim) in [(1, 1), (3, 16), (2, 40)] {
        let (rows, row_len) = (3, num_heads * head_dim);
        let z_row_stride = row_len + 5;
        let x = noise_floats(1, rows * row_len);
        let z: Vec<f32> = noise_floats(2, rows * z_row_stride)
            .into_iter()
            .map(|z| 9.0 * z)
            .collect();
        let weight = noise_floats(3, head_dim);
        let mut results = Vec::new();
        for isa in isas() {
            let backend = mk_backend(2, isa);
            let normed = floats(&backend, &x);
            backend.gated_norm(GatedNorm {
                x: &normed,
                z: Strided {
                    values: &floats(&backend, &z),
                    row_stride: z_row_stride,
                },
                weight: &floats(&backend, &weight),
                eps: 1e-5,
                num_heads,
                rows,
            });
            let normed = read_floats(&backend, &normed);
            for (i, y) in normed.iter().enumerate() {
                let head = &x[i / head_dim * head_dim..][..head_dim];
                let mean = head.iter().map(|x| f64::from(x * x)).sum::<f64>() / head_dim as f64;
                let z = f64::from(z[i / row_len * z_row_stride + i % row_len]);
                let expected = f64::from(x[i]) / (mean + 1e-5).sqrt();
                let expected = expected * f64::from(weight[i % head_dim]) * z / (1.0 + (-z).exp());
                assert!(
                    (f64::from(*y) - expected).abs() < 1e-5,
                    "{y} beside {expected}"
                );
            }
            results.push(normed);
        }
        assert!(results.iter().all(|result| *result == results[0]));
    }
}
