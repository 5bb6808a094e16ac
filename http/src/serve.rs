//! The loop of one listener.

use crate::body::{AnswerBody, Answering, RequestBody};
use crate::connections::{Connection, Connections, Limits, Order, Refusal, Room};
use crate::metrics::ListenerMetrics;
use crate::watched::Watched;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use axum::{BoxError, Router};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pd_identity::{Clients, PeerId, Peers, Stream};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

/// Deadlines are looked at this often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// A client that is refused reads why within this, or not at all.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);
/// Of a connection, what is read and not yet handed on; no head is longer. hyper's own bound is four times as much, which
/// a thousand large bodies would take each.
const READ_BYTES_MAX: usize = 128 << 10;
const REFUSAL_BODY: &str = r#"{"error":{"message":"this server has as many connections as it takes; try again later","type":"overloaded_error","param":null,"code":"too_many_connections"}}"#;

/// Who a request is of, as an extension of it: the process at the other end, or `None` if that has not proven to have
/// a key of the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPeer(pub Option<PeerId>);

/// What a connection is served with.
#[derive(Clone)]
struct Site {
    app: Router,
    peers: Peers,
    clients: Clients,
}

/// Serves `app` until `end`, then finishes the answers in flight. Handlers may ask for the client's address with
/// [`ConnectInfo`].
pub async fn serve<L>(
    listener: L,
    app: Router,
    counted: (Limits, ListenerMetrics),
    end: CancellationToken,
) where
    L: Listener<Addr = SocketAddr>,
{
    let strangers = (Peers::Plain, Clients::Optional);
    serve_peers(listener, strangers, app, counted, end).await;
}

/// As [`serve`], but to those that `clients` lets in, over TLS, if `peers` have a key. Handlers may ask who a client is
/// with [`Extension`](axum::Extension)`<`[`ClientPeer`]`>`. A client that does not finish its handshake owes as one with
/// half a head; one that comes where there is no room is closed without an answer.
pub async fn serve_peers<L>(
    mut listener: L,
    (peers, clients): (Peers, Clients),
    app: Router,
    (limits, metrics): (Limits, ListenerMetrics),
    end: CancellationToken,
) where
    L: Listener<Addr = SocketAddr>,
{
    let connections = Connections::new(limits, metrics);
    let tasks = TaskTracker::new();
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let site = Site {
        app,
        peers,
        clients,
    };
    loop {
        tokio::select! {
            (io, peer) = listener.accept() => match connections.admit(peer.ip()) {
                Room::For(connection) => {
                    tasks.spawn(run(io, peer, connection, site.clone()));
                }
                Room::Full(refusal) if site.peers.identity().is_none() => {
                    tasks.spawn(refuse(io, refusal));
                }
                // A handshake would cost more than the answer is worth.
                Room::Full(_) | Room::Swamped => {}
            },
            _ = sweep.tick() => {
                connections.sweep();
                connections.report_strangers();
            }
            () = end.cancelled() => break,
        }
    }
    drop(listener);
    connections.finish();
    tasks.close();
    let mut finished = pin!(tasks.wait());
    loop {
        tokio::select! {
            () = &mut finished => return,
            _ = sweep.tick() => connections.sweep(),
        }
    }
}

async fn run<I>(io: I, peer: SocketAddr, connection: Arc<Connection>, site: Site)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _open = Open(&connection);
    let io = Watched::new(io, Arc::clone(&connection));
    let ended = match accept(io, &connection, &site).await {
        Some(Ok(io)) => answer(io, peer, &connection, site.app).await,
        Some(Err(error)) => {
            // Others have closed, as probes of a port do, or said nothing.
            if error.kind() == io::ErrorKind::InvalidData {
                connection.is_strange(&error);
            }
            Some(Err(error.into()))
        }
        None => None,
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%peer, %error, "connection ended early"),
        None => tracing::debug!(%peer, "closed a connection whose client let it wait"),
    }
}

/// A connection after its handshake, if it needs one; `None` if the client took too long for it.
async fn accept<I>(
    io: Watched<I>,
    connection: &Connection,
    site: &Site,
) -> Option<io::Result<Stream<Watched<I>>>>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let mut accepting = pin!(site.peers.accept(io, site.clients));
    let accepted = poll_fn(|cx| match accepting.as_mut().poll(cx) {
        Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
        Poll::Pending if connection.order(cx.waker()) == Order::Serve => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    });
    let accepted = accepted.await;
    connection.awaits_request();
    accepted
}

/// Serves the requests of a connection; `None` if the client owed something for too long.
async fn answer<I>(
    io: Stream<Watched<I>>,
    peer: SocketAddr,
    connection: &Arc<Connection>,
    app: Router,
) -> Option<Result<(), BoxError>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = ClientPeer(io.peer());
    let service = service_fn(|request: Request<Incoming>| {
        connection.serves();
        let connection = Arc::clone(connection);
        let body = Arc::clone(&connection);
        let mut request = request.map(|inner| Body::new(RequestBody::new(inner, body)));
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(client);
        let mut app = app.clone();
        async move {
            let answer: Response<Body> = match app.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            Ok::<_, Infallible>(
                answer.map(|body| AnswerBody::new(body, Answering::new(connection))),
            )
        }
    });
    // Deadlines are those of the sweep.
    let serving = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(READ_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service);
    let mut serving = pin!(serving);
    let mut finishes = false;
    let ended = poll_fn(|cx| {
        match connection.order(cx.waker()) {
            Order::Serve => {}
            Order::Finish if finishes => {}
            Order::Finish => {
                finishes = true;
                serving.as_mut().graceful_shutdown();
            }
            Order::Close => return Poll::Ready(None),
        }
        serving.as_mut().poll(cx).map(Some)
    });
    Some(ended.await?.map_err(Into::into))
}

/// A connection in the table; also a handler's panic takes it out.
struct Open<'a>(&'a Connection);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Answers a connection for which there is no room.
async fn refuse<I: AsyncRead + AsyncWrite + Unpin>(mut io: I, refusal: Refusal) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{REFUSAL_BODY}",
        REFUSAL_BODY.len()
    );
    let written = async {
        // Clients take what comes before their request for a broken connection.
        if io.read(&mut [0; 1024]).await? == 0 {
            return Ok(0);
        }
        io.write_all(answer.as_bytes()).await?;
        io.shutdown().await?;
        // Closing with a request unread would take the answer away from the client.
        tokio::io::copy(&mut io, &mut tokio::io::sink()).await
    };
    if !matches!(timeout(REFUSAL_LIMIT, written).await, Ok(Ok(_))) {
        tracing::debug!("a client that was refused did not take the answer");
    }
    drop(refusal);
}
