//! State of the HTTP routes: the loaded model, in a slot that is empty while the first one loads, behind a gate that is closed
//! while another takes its place.

pub(crate) mod answer_forms;
pub(crate) mod body_limit;
pub(crate) mod gate;
mod text_threads;

use crate::gpu::sampler::GpuSampler;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::metrics::HttpMetrics;
use crate::weights::WeightsBoard;
use answer_forms::AnswerForms;
use axum::response::{IntoResponse, Response};
use gate::{Entered, Gate};
use http::header::CONTENT_TYPE;
use parking_lot::{Mutex, RwLock};
use pd_engine::engine::EngineHandle;
use pd_engine::sample::stop_regex::StopRegex;
use pd_engine::text::{EncodeError, TextLength};
use pd_http::BodyBudget;
use pd_identity::Peers;
use pd_kv_transfer::TransportReport;
use pd_protocol::Role;
use pd_spans::Spans;
use std::sync::Arc;
use text_threads::TextThreads;

/// Longest text that is tokenised on an HTTP thread; it takes about a millisecond.
const SHORT_TEXT_BYTES: usize = 4096;

/// Of the budget of texts, for compiling expressions: classes of all letters take some MiB before they prove too large.
const STOP_REGEX_BUDGET: usize = 256 << 10;

/// A model that answers.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) engine: EngineHandle,
    pub(crate) answer_forms: AnswerForms,
    text_threads: TextThreads,
}

/// What the admin API asks of new requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    #[default]
    Serve,
    Cordon,
    /// Nothing leads back.
    Drain,
}

/// The state of the HTTP and admin APIs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) role: Role,
    pub(crate) served_model_name: String,
    /// Port of this worker's bootstrap server; on prefill only.
    pub(crate) bootstrap_port: Option<u16>,
    pub(crate) transfer_backend: &'static str,
    pub(crate) started_unix_secs: u64,
    pub(crate) metrics: HttpMetrics,
    pub(crate) gpus: GpuSampler,
    /// Of requests, where they are traced.
    pub(crate) spans: Option<Spans>,
    /// Whom the HTTP API, the bootstrap server and KV transfer serve.
    pub(crate) peers: Peers,
    /// On decode: the transport to each prefill.
    pub(crate) transport_report: TransportReport,
    /// Of a request, if the command line says.
    body_bytes_max: Option<usize>,
    /// Of all requests until their texts are tokens.
    pub(crate) body_budget: BodyBudget,
    /// What is said of weights, and who is asked for others.
    pub(crate) weights: WeightsBoard,
    pub(crate) gate: Gate,
    service: RwLock<Option<Arc<Service>>>,
    wish: Mutex<Wish>,
}

/// What an [`App`] is built from.
#[derive(Debug)]
pub(crate) struct AppSpec {
    pub(crate) role: Role,
    pub(crate) served_model_name: String,
    /// Port of this worker's bootstrap server; on prefill only.
    pub(crate) bootstrap_port: Option<u16>,
    pub(crate) transfer_backend: &'static str,
    pub(crate) started_unix_secs: u64,
    pub(crate) gpus: GpuSampler,
    pub(crate) spans: Option<Spans>,
    pub(crate) peers: Peers,
    pub(crate) metrics: HttpMetrics,
    /// Of a request; the model says without.
    pub(crate) body_bytes_max: Option<usize>,
    /// Of all requests together.
    pub(crate) bodies_bytes_max: usize,
    /// Requests that may wait while weights are replaced.
    pub(crate) waiting_max: u32,
    pub(crate) weights: WeightsBoard,
}

// === impl Service ===

impl Service {
    pub(crate) fn new(engine: EngineHandle, answer_forms: AnswerForms) -> Self {
        Self {
            engine,
            answer_forms,
            text_threads: TextThreads::new(),
        }
    }

    /// The token ids of each of `texts`. `add_special_tokens` adds the special tokens that the
    /// model expects around a prompt. Long texts are tokenised off the HTTP threads, which must
    /// keep relaying tokens; dropping the future cancels this.
    ///
    /// # Errors
    /// 400 when a text is longer than the context, with its length in bytes, or cannot be
    /// represented in the model's vocabulary.
    pub(crate) async fn encode(
        &self,
        texts: Vec<String>,
        add_special_tokens: bool,
        dialect: Dialect,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let context_length = self.engine.info().context_length;
        let encoded = self
            .encode_up_to(context_length as usize, texts, add_special_tokens)
            .await?;
        encoded.map_err(|why| dialect.untokenised(&why, context_length))
    }

    /// As [`Self::encode`], for texts of `max_tokens` tokens.
    ///
    /// # Errors
    /// 500 when a job panics.
    pub(crate) async fn encode_up_to(
        &self,
        max_tokens: usize,
        texts: Vec<String>,
        add_special_tokens: bool,
    ) -> Result<Result<Vec<Vec<u32>>, EncodeError>, ApiError> {
        let bytes: usize = texts.iter().map(String::len).sum();
        if bytes <= SHORT_TEXT_BYTES {
            let encode = |text: &String| self.engine.tokenizer().encode(text, add_special_tokens);
            return Ok(texts.iter().map(encode).collect());
        }
        let mut encoded = Vec::with_capacity(texts.len());
        for text in texts {
            let ids = self
                .encode_on_text_threads(max_tokens, text.into(), add_special_tokens)
                .await?;
            match ids {
                Ok(ids) => encoded.push(ids),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(encoded))
    }

    /// The ids of one text, computed on the text threads: measured piece by piece until
    /// it is known that its ids are at most `max_tokens`, then tokenised whole.
    async fn encode_on_text_threads(
        &self,
        max_tokens: usize,
        text: Arc<str>,
        add_special_tokens: bool,
    ) -> Result<Result<Vec<u32>, EncodeError>, ApiError> {
        let tokenizer = self.engine.tokenizer();
        let mut length = match TextLength::new(tokenizer, Arc::clone(&text), max_tokens) {
            Ok(length) => length,
            Err(too_long) => return Ok(Err(too_long.into())),
        };
        while !length.is_measured() {
            let tokenizer = Arc::clone(tokenizer);
            let measure = move |_: &_| length.measure_piece(&tokenizer).map(|()| length);
            length = match self
                .text_threads
                .run(TextLength::PIECE_BYTES, measure)
                .await?
            {
                Ok(length) => length,
                Err(why) => return Ok(Err(why)),
            };
        }
        let tokenizer = Arc::clone(tokenizer);
        let bytes = text.len();
        self.text_threads
            .run(bytes, move |cancelled| {
                tokenizer.encode_unless(cancelled, &text, add_special_tokens)
            })
            .await
    }

    /// Expressions behind whose match an answer ends, compiled off the HTTP threads.
    ///
    /// # Errors
    /// 400 with what is wrong, and where.
    pub(crate) async fn stop_regex(&self, patterns: &[String]) -> Result<StopRegex, ApiError> {
        if patterns.is_empty() {
            return Ok(StopRegex::default());
        }
        let patterns = patterns.to_vec();
        let compile = move |_: &_| StopRegex::new(patterns);
        let compiled = self.text_threads.run(STOP_REGEX_BUDGET, compile).await?;
        compiled.map_err(|why| ApiError::field(why.param, why.to_string()))
    }

    /// The answer whose JSON `write` makes of `tokens` tokens: off the HTTP threads if they are many.
    ///
    /// # Errors
    /// 500 when `write` panics.
    pub(crate) async fn write(
        &self,
        tokens: usize,
        write: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let json = if tokens <= SHORT_TEXT_BYTES {
            write()
        } else {
            let bytes = tokens.saturating_mul(self.engine.tokenizer().longest_token_bytes());
            self.text_threads.run(bytes, |_| write()).await?
        };
        Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
    }

    /// The text of every part's prompt, item-major.
    pub(crate) fn echoes(&self, prompts: &[Vec<u32>], choices: u32) -> Vec<String> {
        let texts = prompts
            .iter()
            .map(|ids| self.engine.tokenizer().decode(ids, true));
        let repeated = texts.flat_map(|text| std::iter::repeat_n(text, choices as usize));
        repeated.collect()
    }
}

// === impl Wish ===

impl Wish {
    fn then(self, next: Self) -> Self {
        match self {
            Self::Serve | Self::Cordon => next,
            Self::Drain => Self::Drain,
        }
    }

    fn apply(self, engine: &EngineHandle) {
        match self {
            Self::Serve => engine.uncordon(),
            Self::Cordon => engine.cordon(),
            Self::Drain => engine.drain(),
        }
    }
}

// === impl App ===

impl App {
    pub(crate) fn new(spec: AppSpec) -> Self {
        let AppSpec {
            role,
            served_model_name,
            bootstrap_port,
            transfer_backend,
            started_unix_secs,
            gpus,
            spans,
            peers,
            metrics,
            body_bytes_max,
            bodies_bytes_max,
            waiting_max,
            weights,
        } = spec;
        metrics.show_keys(&peers);
        Self {
            role,
            served_model_name,
            bootstrap_port,
            transfer_backend,
            started_unix_secs,
            metrics,
            gpus,
            spans,
            peers,
            body_bytes_max,
            body_budget: BodyBudget::new(bodies_bytes_max),
            transport_report: TransportReport::default(),
            weights,
            gate: Gate::new(waiting_max),
            service: RwLock::default(),
            wish: Mutex::default(),
        }
    }

    /// Serves this model from now on, unless the process is cordoned or drains.
    pub(crate) fn open(&self, service: Service) {
        let wish = self.wish.lock();
        wish.apply(&service.engine);
        *self.service.write() = Some(Arc::new(service));
    }

    /// Has the model, and each that takes its place, accept new requests, refuse them, or refuse them for good.
    ///
    /// # Errors
    /// 503 while the first one loads.
    pub(crate) fn set_wish(&self, wish: Wish) -> Result<Arc<Service>, ApiError> {
        let mut current = self.wish.lock();
        let service = self.service()?;
        *current = current.then(wish);
        current.apply(&service.engine);
        Ok(service)
    }

    /// The model that was loaded last, of which something is to be known.
    ///
    /// # Errors
    /// 503 while the first one loads.
    pub(crate) fn service(&self) -> Result<Arc<Service>, ApiError> {
        let loading = || ApiError::retriable("the model is still loading; retry here or elsewhere");
        self.service.read().clone().ok_or_else(loading)
    }

    /// The model, for a request that is to be answered by it. Waits while another takes its place.
    ///
    /// # Errors
    /// 503 while the first one loads, and when too many wait.
    pub(crate) async fn enter(&self) -> Result<Entered, ApiError> {
        self.service()?;
        let pass = self.gate.pass().await?;
        Ok(Entered::new(self.service()?, pass))
    }
}

#[cfg(test)]
pub(crate) mod tests;
