//! The largest request body: what one prompt of the model may take, so that more is refused before it is read.

use super::App;
use pd_engine::engine::EngineHandle;

/// Without a model, or for one with a long context.
const BYTES_MOST: usize = 32 << 20;
/// Of all requests together, unless one may be larger.
const ALL_BYTES: usize = 256 << 20;
/// For a model with a short context: a body may hold several prompts.
const BYTES_LEAST: usize = 4 << 20;
/// Of a request, everything but its prompt.
const OTHER_FIELDS_BYTES: usize = 1 << 20;
/// JSON may write each byte of a text so: `\u0061`.
const JSON_BYTES_PER_BYTE: usize = 6;

// === impl App ===

impl App {
    /// Of a request, in bytes: as the command line says, or else by the model.
    pub(crate) fn body_bytes_max(&self) -> usize {
        let by_model = || {
            let service = self.service.read();
            service
                .as_ref()
                .map_or(BYTES_MOST, |service| of_model(&service.engine))
        };
        self.body_bytes_max.unwrap_or_else(by_model)
    }
}

/// Bytes of the bodies of all requests whose texts are not tokens yet, if one may have so many.
pub(crate) fn all_together(one: Option<usize>) -> usize {
    one.map_or(ALL_BYTES, |bytes| bytes.max(ALL_BYTES))
}

fn of_model(engine: &EngineHandle) -> usize {
    of_prompt(
        engine.info().context_length as usize,
        engine.tokenizer().longest_token_bytes(),
    )
}

/// For prompts of `tokens` at most, each of which stands for at most so many bytes.
fn of_prompt(tokens: usize, token_bytes: usize) -> usize {
    let text = tokens.saturating_mul(token_bytes);
    let json = text.saturating_mul(JSON_BYTES_PER_BYTE);
    json.saturating_add(OTHER_FIELDS_BYTES)
        .clamp(BYTES_LEAST, BYTES_MOST)
}

#[cfg(test)]
mod tests;
