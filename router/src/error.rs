//! Errors as OpenAI's clients expect them: a status, and `{"error": {message, type, param, code}}`;
//! and what each module below makes of its own.

use crate::client::ClientError;
use crate::headers::{self, TooManyHeaders};
use crate::queue::QueueError;
use crate::request::RequestError;
use crate::route::NoRoute;
use crate::workers::{InvalidWorker, RegistryError};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::response::Parts;
use serde::Serialize;
use std::fmt::Display;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    content: Content,
    retry_after_secs: Option<u64>,
}

#[derive(Debug)]
enum Content {
    Own(ErrorObject),
    /// A worker's own answer, passed through.
    Worker {
        head: Box<Parts>,
        body: Bytes,
    },
}

#[derive(Debug, Serialize)]
struct ErrorObject {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'static str>,
    code: Option<&'static str>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: &'a ErrorObject,
}

// === impl ApiError ===

impl ApiError {
    /// The client's fault.
    pub(crate) fn invalid(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message.into())
    }

    pub(crate) fn unknown_model(message: String) -> Self {
        let error = Self::invalid(StatusCode::NOT_FOUND, message);
        error.code("model_not_found").param(Some("model"))
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "the API key is missing or wrong: send it as `Authorization: Bearer KEY`";
        let error = Self::new(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            message.to_owned(),
        );
        error.code("invalid_api_key")
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let error = Self::new(status, "service_unavailable_error", message.into());
        error.retry_after(1)
    }

    pub(crate) fn bad_gateway(message: impl Into<String>) -> Self {
        Self::of_server(StatusCode::BAD_GATEWAY, message.into()).code("worker_unreached")
    }

    pub(crate) fn timeout(after: Duration) -> Self {
        let message = format!(
            "no worker answered within {} s (--request-timeout-secs)",
            after.as_secs()
        );
        Self::of_server(StatusCode::GATEWAY_TIMEOUT, message).code("timeout")
    }

    /// An answer that had begun was cut off.
    pub(crate) fn broken_off(cause: &impl Display) -> Self {
        Self::of_server(StatusCode::BAD_GATEWAY, cause.to_string()).code("broken_off")
    }

    /// A worker's own answer, which goes to the client as it is.
    pub(crate) fn of_worker(head: Box<Parts>, body: Bytes) -> Self {
        Self {
            status: head.status,
            content: Content::Worker { head, body },
            retry_after_secs: None,
        }
    }

    /// A failure of a worker or of the router.
    pub(crate) fn of_server(status: StatusCode, message: String) -> Self {
        Self::new(status, "server_error", message)
    }

    fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self {
            status,
            content: Content::Own(ErrorObject {
                message,
                kind,
                param: None,
                code: None,
            }),
            retry_after_secs: None,
        }
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        if let Content::Own(object) = &mut self.content {
            object.code = Some(code);
        }
        self
    }

    fn param(mut self, param: Option<&'static str>) -> Self {
        if let Content::Own(object) = &mut self.content {
            object.param = param;
        }
        self
    }

    fn retry_after(mut self, secs: u64) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// What programs know it by, if it is of the router.
    pub(crate) fn own_code(&self) -> Option<&'static str> {
        match &self.content {
            Content::Own(object) => object.code,
            Content::Worker { .. } => None,
        }
    }

    /// The error object; of a worker's answer, what it says.
    pub(crate) fn json(&self) -> String {
        match &self.content {
            Content::Own(error) => serde_json::to_string(&Envelope { error })
                .expect("an error object is made of strings"),
            Content::Worker { body, .. } => String::from_utf8_lossy(body).into_owned(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = match self.content {
            Content::Worker { head, body } => {
                let mut head = *head;
                headers::remove_hop_by_hop(&mut head.headers);
                // The body may have been cut short.
                head.headers.remove(CONTENT_LENGTH);
                Response::from_parts(head, Body::from(body))
            }
            Content::Own(_) => {
                let mut response = Response::new(Body::from(self.json()));
                *response.status_mut() = self.status;
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                if self.status == StatusCode::UNAUTHORIZED {
                    let scheme = HeaderValue::from_static("Bearer");
                    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                }
                response
            }
        };
        if let Some(secs) = self.retry_after_secs {
            let secs = HeaderValue::from(secs);
            response.headers_mut().insert(RETRY_AFTER, secs);
        }
        response
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let param = error.param();
        Self::invalid(StatusCode::BAD_REQUEST, error.to_string()).param(param)
    }
}

impl From<TooManyHeaders> for ApiError {
    fn from(error: TooManyHeaders) -> Self {
        Self::invalid(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            error.to_string(),
        )
    }
}

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        let message = error.to_string();
        let code = match error {
            QueueError::Full { .. } => "queue_full",
            QueueError::TimedOut { .. } => "queue_timeout",
        };
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
            .code(code)
            .retry_after(1)
    }
}

impl From<NoRoute> for ApiError {
    fn from(error: NoRoute) -> Self {
        let message = error.to_string();
        match error {
            NoRoute::UnknownModel { .. } => Self::unknown_model(message),
            NoRoute::NoWorker(_) => Self::unavailable(message).code("no_worker"),
        }
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        Self::bad_gateway(error.to_string())
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let status = match &error {
            RegistryError::Unknown(_) => StatusCode::NOT_FOUND,
            RegistryError::Conflict { .. } => StatusCode::CONFLICT,
            RegistryError::Invalid(InvalidWorker::Endpoint(_) | InvalidWorker::Id(_)) => {
                StatusCode::BAD_REQUEST
            }
        };
        Self::invalid(status, error.to_string())
    }
}
