//! Scales of keys and values that are kept in E4M3: a number for each in a layer, where the file's maker measured them
//! (vLLM's names). Files without have 1.

use super::fp8::{SCALE_DTYPES, reader};
use super::{LayerRole, Role, TensorView, Weights, WeightsError};
use pd_compute::KvScales;

/// Why a scale is refused.
#[derive(Debug, thiserror::Error)]
pub enum KvScaleError {
    #[error(
        "{file}: tensor {name} is {scale:e}, expected a number from 1e-30 to 1e30; remove it to keep KV unscaled"
    )]
    Range {
        file: String,
        name: String,
        scale: f32,
    },
}

// === impl Weights ===

impl Weights {
    /// Of a layer of attention, and the names of the tensors that they are from. Latents have those of keys.
    ///
    /// # Errors
    /// When a tensor of them is no positive number.
    pub fn kv_scales(&self, layer: usize) -> Result<(KvScales, Vec<String>), WeightsError> {
        let k = self.kv_scale(layer, LayerRole::K, "k")?;
        let v = self.kv_scale(layer, LayerRole::V, "v")?;
        let scale = |found: &Option<(f32, String)>| found.as_ref().map_or(1.0, |found| found.0);
        let scales = KvScales {
            k: scale(&k),
            v: scale(&v),
        };
        Ok((
            scales,
            [k, v].into_iter().flatten().map(|found| found.1).collect(),
        ))
    }

    /// The scale beside the projection of a role, or in it, and its tensor.
    fn kv_scale(
        &self,
        layer: usize,
        projection: LayerRole,
        kind: &str,
    ) -> Result<Option<(f32, String)>, WeightsError> {
        let (Self::Hf { files, .. }, Some(name)) =
            (self, self.name(Role::Layer(layer, projection)))
        else {
            return Ok(None);
        };
        let Some(attention) = name.strip_suffix(&format!("{kind}_proj.weight")) else {
            return Ok(None);
        };
        let names =
            ["", &format!("{kind}_proj.")].map(|part| format!("{attention}{part}{kind}_scale"));
        let view = |name: &String| files.view(name, reader, SCALE_DTYPES).transpose();
        let Some(tensor) = names.iter().find_map(view).transpose()? else {
            return Ok(None);
        };
        let TensorView {
            name,
            format: read,
            bytes,
            ..
        } = tensor;
        self.check_shape(&tensor, 1, 1)?;
        let scale = read(bytes)[0];
        if (1e-30..=1e30).contains(&scale) {
            return Ok(Some((scale, name.to_owned())));
        }
        Err(KvScaleError::Range {
            file: self.path().display().to_string(),
            name: name.to_owned(),
            scale,
        }
        .into())
    }
}

#[cfg(test)]
mod tests;
