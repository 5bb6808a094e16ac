//! The configuration in a GGUF file's metadata: `general.architecture`, then keys that begin with
//! its name. The sizes the metadata leaves out are taken from the tensors' shapes.

pub(crate) mod keys;

use super::{ConfigError, ModelConfig};
use crate::model::family::{self, GgufFamily};
use crate::weights::gguf::Gguf;
use keys::Keys;

/// Reads the configuration of the model in `gguf`, and how its family lies in such files.
///
/// # Errors
/// Names the file, the key, its value, and what is supported.
pub(crate) fn read_config(gguf: &Gguf) -> Result<(ModelConfig, &'static GgufFamily), ConfigError> {
    let file = gguf.path().display().to_string();
    let key = "general.architecture";
    let architecture = gguf.metadata().text(key);
    let architecture = architecture.map_err(|error| keys::from_metadata(&file, error))?;
    let Some(architecture) = architecture else {
        return Err(ConfigError::Missing {
            file,
            key: key.to_owned(),
        });
    };
    let found = family::of_gguf(architecture);
    let (family, form) = found.ok_or_else(|| ConfigError::Unsupported {
        file: file.clone(),
        key: key.to_owned(),
        value: format!("{architecture:?}"),
        supported: family::gguf_architectures().join(", "),
    })?;
    let keys = Keys::new(gguf, file.clone(), family, form);
    let config = (form.config)(&keys)?;
    config.check(&file)?;
    keys.refuse_unknown()?;
    Ok((config, form))
}
