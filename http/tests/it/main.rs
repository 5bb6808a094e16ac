//! Real sockets against a server with small limits.

mod peers;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::routing::{get, post};
use bytes::Bytes;
use pd_http::{BodyBudget, BodyError, Limits, ListenerMetrics, read_body, serve};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

struct Server {
    address: SocketAddr,
    end: CancellationToken,
    task: JoinHandle<()>,
}

const SHORT: Duration = Duration::from_millis(300);
/// Of one body, and of all together.
const BODY_BYTES: usize = 128 << 10;
/// A sweep comes each second.
const SOON: Duration = Duration::from_secs(10);

fn limits() -> Limits {
    Limits {
        connections: 64,
        idle: SHORT,
        head: SHORT,
        body: SHORT,
        read: SHORT,
    }
}

async fn read_whole(State(all): State<Arc<BodyBudget>>, request: Request) -> String {
    let (head, body) = request.into_parts();
    match read_body(&head.headers, body, BODY_BYTES, &all).await {
        Ok(body) => format!("{} bytes", body.bytes.len()),
        Err(BodyError::Incomplete { why, .. }) => why,
        Err(error) => format!("{error:?}"),
    }
}

fn routes() -> Router {
    let endless = async || {
        let bytes = Bytes::from(vec![b'x'; 1 << 16]);
        let frames = std::iter::repeat_with(move || Ok::<_, io::Error>(bytes.clone()));
        Body::from_stream(futures_util::stream::iter(frames))
    };
    let slow = async || {
        sleep(SHORT * 3).await;
        "slow"
    };
    Router::new()
        .route("/", get(async || "yes"))
        .route(
            "/peer",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()),
        )
        .route("/endless", get(endless))
        .route("/slow", get(slow))
        .route("/panic", get(panics))
        .route("/body", post(read_whole))
        .with_state(Arc::new(BodyBudget::new(BODY_BYTES)))
}

async fn panics() -> &'static str {
    panic!("a handler's own")
}

async fn start(limits: Limits) -> Server {
    start_with(|listener, end| {
        serve(
            listener,
            routes(),
            (limits, ListenerMetrics::default()),
            end,
        )
    })
    .await
}

async fn start_with<F>(serving: impl FnOnce(TcpListener, CancellationToken) -> F) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let end = CancellationToken::new();
    let task = tokio::spawn(serving(listener, end.clone()));
    Server { address, end, task }
}

// === impl Server ===

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address)
            .await
            .expect("a connection")
    }

    async fn ask(&self, request: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream
            .write_all(request.as_bytes())
            .await
            .expect("a request");
        stream
    }
}

/// What comes until the server closes.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut all = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut all)).await;
    // A connection that is cut is at its end, too.
    drop(read.expect("the server closes"));
    String::from_utf8_lossy(&all).into_owned()
}

async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut part = [0; 4096];
    let len = timeout(SOON, stream.read(&mut part))
        .await
        .expect("an answer");
    String::from_utf8_lossy(&part[..len.expect("bytes")]).into_owned()
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn silent_clients_and_half_heads_are_closed_and_others_served() {
    let server = start(limits()).await;
    let mut silent = server.connect().await;
    let mut half = server.ask("GET / HT").await;
    let mut kept = server.ask(GET).await;
    assert!(answer(&mut kept).await.ends_with("yes"));
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(rest(&mut half).await, "");
    assert_eq!(rest(&mut kept).await, "", "idle after its answer");
    assert!(answer(&mut server.ask(GET).await).await.ends_with("yes"));
}

#[tokio::test]
async fn a_body_that_stalls_is_an_error_of_its_reader_and_a_slow_one_is_none() {
    let server = start(limits()).await;
    let head = "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\n";
    let mut stalls = server.ask(&format!("{head}four")).await;
    assert!(
        answer(&mut stalls)
            .await
            .ends_with("nothing of the body came for 300ms")
    );
    let mut slow = server.ask(head).await;
    for _ in 0..8 {
        sleep(SHORT / 3).await;
        slow.write_all(b"1").await.expect("a byte");
    }
    assert!(answer(&mut slow).await.ends_with("8 bytes"));
}

#[tokio::test]
async fn bodies_that_are_read_leave_no_room_for_more_and_are_bounded_one_by_one() {
    let server = start(Limits {
        body: SOON,
        ..limits()
    })
    .await;
    let post =
        |bytes: usize| format!("POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: {bytes}\r\n\r\n");
    let text = |bytes: usize| "x".repeat(bytes);
    let holds = format!("{}{}", post(BODY_BYTES), text(BODY_BYTES - 1));
    let mut holds = server.ask(&holds).await;
    let other = format!("{}{}", post(BODY_BYTES), text(BODY_BYTES));
    let began = Instant::now();
    while !answer(&mut server.ask(&other).await)
        .await
        .ends_with("NoRoom")
    {
        assert!(began.elapsed() < SOON, "both are read at once");
    }
    holds.write_all(b"x").await.expect("the last byte");
    assert!(answer(&mut holds).await.ends_with("131072 bytes"));
    assert!(
        answer(&mut server.ask(&other).await)
            .await
            .ends_with("131072 bytes")
    );
    let more = format!("{}{}", post(BODY_BYTES + 1), text(BODY_BYTES + 1));
    assert!(
        answer(&mut server.ask(&more).await)
            .await
            .ends_with("TooLarge")
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_a_slow_answer_waited_for() {
    let server = start(limits()).await;
    let unread = server.ask("GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut waits = server.ask("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer(&mut waits).await.ends_with("slow"));
    let began = Instant::now();
    // Once the server has closed it, what the kernel holds can be read to its end.
    sleep(SHORT + Duration::from_secs(2)).await;
    let mut unread = unread;
    rest(&mut unread).await;
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn a_crowd_of_silent_clients_keeps_no_one_out() {
    let few = Limits {
        connections: 8,
        idle: SOON * 6,
        ..limits()
    };
    let server = start(few).await;
    let mut crowd = Vec::new();
    for _ in 0..64 {
        crowd.push(server.connect().await);
    }
    // Those of the crowd that were let in are given a moment to ask.
    while !answer(&mut server.ask(GET).await).await.ends_with("yes") {}
    for _ in 0..32 {
        assert!(answer(&mut server.ask(GET).await).await.ends_with("yes"));
    }
}

#[tokio::test]
async fn where_all_are_served_a_client_reads_that_it_is_refused() {
    let full = Limits {
        connections: 1,
        ..limits()
    };
    let server = start(full).await;
    let mut served = server.ask("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sleep(SHORT / 3).await;
    let refused = rest(&mut server.ask(GET).await).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("too_many_connections"), "{refused}");
    assert!(answer(&mut served).await.ends_with("slow"));
}

#[tokio::test]
async fn answers_in_flight_are_finished_at_the_end_and_idle_connections_closed() {
    let server = start(Limits::default()).await;
    let mut idle = server.ask(GET).await;
    assert!(answer(&mut idle).await.ends_with("yes"));
    let mut served = server.ask("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sleep(SHORT / 3).await;
    server.end.cancel();
    assert_eq!(rest(&mut idle).await, "");
    assert!(rest(&mut served).await.ends_with("slow"));
    timeout(SOON, server.task)
        .await
        .expect("an end")
        .expect("no panic");
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_handler_may_ask_who_its_client_is() {
    let server = start(limits()).await;
    let mut stream = server.ask("GET /peer HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let own = stream.local_addr().expect("an address").to_string();
    assert!(answer(&mut stream).await.ends_with(&own));
}

#[tokio::test]
async fn a_handler_that_panics_leaves_its_place_to_others() {
    let one = Limits {
        connections: 1,
        ..limits()
    };
    let server = start(one).await;
    for _ in 0..2 {
        let mut panicked = server.ask("GET /panic HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(rest(&mut panicked).await, "");
    }
    assert!(answer(&mut server.ask(GET).await).await.ends_with("yes"));
}
