//! How the weights of a folder are quantised, as config.json says. Which of them are is seen in the tensors.

use crate::model::config::fields::Fields;
use crate::model::config::{ConfigError, invalid};
use crate::model::family::{FP8, FamilyDef};
use crate::weights::Fp8;
use std::num::NonZero;

const KEY: &str = "quantization_config";
const METHOD: &str = "quant_method";
const BLOCK: &str = "weight_block_size";

/// Names of modules that are not quantised, and how activations were when the file was made: here they are not.
const NEUTRAL: &[&str] = &[
    "activation_scheme",
    "ignored_layers",
    "modules_to_not_convert",
];

/// The scales of matrices of E4M3, if the file says that it has some.
///
/// # Errors
/// Refuses weights that are quantised in another way than those of the family may be.
pub(super) fn read(fields: &Fields, def: &FamilyDef) -> Result<Option<Fp8>, ConfigError> {
    let Some(quantization) = fields.object(KEY)? else {
        return Ok(None);
    };
    let method = quantization.text(METHOD)?;
    let method = method.ok_or_else(|| quantization.missing(METHOD))?;
    if method != def.quant_method {
        let supported = match def.quant_method {
            FP8 => "fp8, unquantised safetensors, or a quantised GGUF file",
            other => other,
        };
        return Err(quantization.unsupported(METHOD, method, supported));
    }
    let fp8 = (method == FP8).then(|| fp8(&quantization)).transpose()?;
    quantization.refuse_unknown(def.family(), NEUTRAL)?;
    Ok(fp8)
}

fn fp8(quantization: &Fields) -> Result<Fp8, ConfigError> {
    quantization.expect_text("fmt", "e4m3")?;
    quantization.expect_text("scale_fmt", "ue8m0")?;
    let sizes = quantization.sizes(BLOCK)?;
    let nonzero = |size: &usize| NonZero::new(*size);
    let sizes: Option<Vec<_>> = sizes.iter().map(nonzero).collect();
    match sizes.as_deref() {
        Some([]) => Ok(Fp8::WholeMatrix),
        Some(&[rows, columns]) => Ok(Fp8::Blocks([rows, columns])),
        Some(_) | None => {
            let given = quantization.get(BLOCK).cloned().unwrap_or_default();
            let expected = "the rows and columns of a block, 1 at least".to_owned();
            Err(invalid(
                quantization.file(),
                &format!("{KEY}.{BLOCK}"),
                given,
                expected,
            ))
        }
    }
}
