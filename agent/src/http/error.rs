//! The error that a client receives: OpenAI's error object, as an answer of its own or as the last
//! event of a stream.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// A refused or failed request. 4xx is the client's fault; 503 may succeed on another worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {message}")]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// Path of the wrong field.
    pub(crate) param: Option<String>,
    /// A code for programs.
    pub(crate) code: Option<&'static str>,
}

/// OpenAI's error object.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody {
    error: ErrorFields,
}

#[derive(Debug, Serialize)]
struct ErrorFields {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

// === impl ApiError ===

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    /// 400 for one field.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(StatusCode::BAD_REQUEST, message)
        }
    }

    /// 400 for a field whose effect is not supported.
    pub(crate) fn unsupported(param: &str, what_to_do: &str) -> Self {
        let message = format!("`{param}` is not supported: {what_to_do}");
        Self::field(param, message).with_code("unsupported_parameter")
    }

    /// 404 for a model that this worker does not serve.
    pub(crate) fn unknown_model(asked: &str, served: &str) -> Self {
        let message = format!("model `{asked}` is not served here; this worker serves `{served}`");
        Self {
            param: Some("model".to_owned()),
            ..Self::new(StatusCode::NOT_FOUND, message).with_code("model_not_found")
        }
    }

    /// 503: another worker, or this one later, may take the request.
    pub(crate) fn retriable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("service_unavailable")
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    #[must_use]
    pub(crate) const fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn body(&self) -> ErrorBody {
        let kind = if self.status.is_server_error() {
            "server_error"
        } else {
            "invalid_request_error"
        };
        ErrorBody {
            error: ErrorFields {
                message: self.message.clone(),
                kind,
                param: self.param.clone(),
                code: self.code,
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self.status {
            // Normal while a worker loads, is cordoned or full; the metrics count these.
            StatusCode::SERVICE_UNAVAILABLE => tracing::debug!("refused: {self}"),
            status if status.is_server_error() => tracing::error!("failed: {self}"),
            _ => {}
        }
        let mut response = (self.status, axum::Json(self.body())).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
