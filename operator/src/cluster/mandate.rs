//! The right to write: every request to the apiserver passes here, and one that would change
//! something is refused once this process does not lead any more.

use super::metrics::Metrics;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tower::{BoxError, Layer, Service};

/// Until when this process may write; shared by the renewal and the writes.
#[derive(Clone, Debug)]
pub(crate) struct Mandate {
    until: Arc<Mutex<Until>>,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// There is no other operator.
    Always,
    Time(Instant),
    Ended,
}

#[derive(Debug, thiserror::Error)]
#[error("this operator does not lead, and writes nothing")]
pub(crate) struct NotLeading;

/// Puts the check before every request, and counts them.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) mandate: Mandate,
    pub(crate) metrics: Arc<Metrics>,
}

#[derive(Clone)]
pub(crate) struct Guarded<S> {
    inner: S,
    guard: Guard,
}

// === impl Mandate ===

impl Mandate {
    /// For an operator that is alone.
    pub(crate) fn always() -> Self {
        Self::new(Until::Always)
    }

    /// For one that has to be elected first.
    pub(crate) fn none() -> Self {
        Self::new(Until::Ended)
    }

    fn new(until: Until) -> Self {
        Self {
            until: Arc::new(Mutex::new(until)),
        }
    }

    pub(crate) fn extend(&self, until: Instant) {
        *self.until.lock() = Until::Time(until);
    }

    pub(crate) fn end(&self) {
        *self.until.lock() = Until::Ended;
    }

    pub(crate) fn holds(&self) -> bool {
        match *self.until.lock() {
            Until::Always => true,
            Until::Time(until) => Instant::now() < until,
            Until::Ended => false,
        }
    }
}

// === impl Guard ===

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            guard: self.clone(),
        }
    }
}

// === impl Guarded ===

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        if method != Method::GET && !self.guard.mandate.holds() {
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let metrics = Arc::clone(&self.guard.metrics);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let status = answer.as_ref().ok().map(Response::status);
            metrics.count_request(&method, status);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    //! Facts about the right to write.

    use super::*;
    use std::convert::Infallible;
    use std::time::Duration;
    use tower::{ServiceExt, service_fn};

    async fn send(mandate: &Mandate, method: Method) -> Result<(), BoxError> {
        let answer = service_fn(|_: Request<Body>| async {
            let response = Response::new(());
            Ok::<_, Infallible>(response)
        });
        let guard = Guard {
            mandate: mandate.clone(),
            metrics: Arc::new(Metrics::new()),
        };
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        let service = guard.layer(answer.map_err(BoxError::from));
        service.oneshot(request).await.map(|_| ())
    }

    #[tokio::test]
    async fn without_a_mandate_nothing_is_written_and_everything_can_be_read() {
        let mandate = Mandate::none();
        assert!(send(&mandate, Method::GET).await.is_ok());
        let refused = send(&mandate, Method::PATCH).await;
        assert!(refused.unwrap_err().is::<NotLeading>());
        mandate.extend(Instant::now() + Duration::from_secs(60));
        assert!(send(&mandate, Method::POST).await.is_ok());
        mandate.extend(Instant::now());
        assert!(send(&mandate, Method::POST).await.is_err());
        assert!(send(&Mandate::always(), Method::DELETE).await.is_ok());
    }
}
