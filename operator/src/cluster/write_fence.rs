//! The write fence: every request to the apiserver passes it, and once this process no longer leads, one that
//! would change something is refused. Decision 0035.

use super::error::NotLeading;
use super::metrics::Metrics;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tower::{BoxError, Layer, Service};

/// Open while this process may write; shared by the renewal and the writes.
#[derive(Clone, Debug)]
pub(crate) struct WriteFence {
    until: Arc<Mutex<Until>>,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// There is no other operator.
    Always,
    Time(Instant),
    Ended,
}

/// Puts the fence before every request, and counts them.
#[derive(Clone)]
pub(crate) struct FenceLayer {
    pub(crate) fence: WriteFence,
    pub(crate) metrics: Arc<Metrics>,
}

#[derive(Clone)]
pub(crate) struct Fenced<S> {
    inner: S,
    layer: FenceLayer,
}

// === impl WriteFence ===

impl WriteFence {
    /// For an operator that is alone.
    pub(crate) fn open() -> Self {
        Self::new(Until::Always)
    }

    /// For one that has to be elected first.
    pub(crate) fn closed() -> Self {
        Self::new(Until::Ended)
    }

    fn new(until: Until) -> Self {
        Self {
            until: Arc::new(Mutex::new(until)),
        }
    }

    pub(crate) fn open_until(&self, until: Instant) {
        *self.until.lock() = Until::Time(until);
    }

    pub(crate) fn close(&self) {
        *self.until.lock() = Until::Ended;
    }

    pub(crate) fn is_open(&self) -> bool {
        match *self.until.lock() {
            Until::Always => true,
            Until::Time(until) => Instant::now() < until,
            Until::Ended => false,
        }
    }
}

// === impl FenceLayer ===

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced {
            inner,
            layer: self.clone(),
        }
    }
}

// === impl Fenced ===

impl<S, B> Service<Request<Body>> for Fenced<S>
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
        if method != Method::GET && !self.layer.fence.is_open() {
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let metrics = Arc::clone(&self.layer.metrics);
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
    //! Facts about the write fence.

    use super::*;
    use std::convert::Infallible;
    use std::time::Duration;
    use tower::{ServiceExt, service_fn};

    async fn send(fence: &WriteFence, method: Method) -> Result<(), BoxError> {
        let answer = service_fn(|_: Request<Body>| async {
            let response = Response::new(());
            Ok::<_, Infallible>(response)
        });
        let layer = FenceLayer {
            fence: fence.clone(),
            metrics: Arc::new(Metrics::new()),
        };
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        let service = layer.layer(answer.map_err(BoxError::from));
        service.oneshot(request).await.map(|_| ())
    }

    #[tokio::test]
    async fn a_closed_fence_lets_reads_pass_and_no_write() {
        let fence = WriteFence::closed();
        assert!(send(&fence, Method::GET).await.is_ok());
        let refused = send(&fence, Method::PATCH).await;
        assert!(refused.unwrap_err().is::<NotLeading>());
        fence.open_until(Instant::now() + Duration::from_secs(60));
        assert!(send(&fence, Method::POST).await.is_ok());
        fence.open_until(Instant::now());
        assert!(send(&fence, Method::POST).await.is_err());
        assert!(send(&WriteFence::open(), Method::DELETE).await.is_ok());
    }
}
