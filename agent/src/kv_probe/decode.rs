//! Decode's side of a probe: rounds, with every byte compared, and their results.

use super::args::{Format, KvProbeArgs};
use super::clock::{Reading, Span};
use super::pool::PAGE_BYTES;
use super::report::{Latency, Report, Row};
use super::session::Session;
use super::shape::{Shape, shapes};
use super::wire::Sent;
use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use pd_identity::Peers;
use pd_kv_transfer::BootstrapAddr;
use serde::Serialize;
use std::io::Write;

/// Single pages that are timed one after the other.
const LATENCY_WRITES: u32 = 200;
/// Orders pages on both sides.
const SRC_SEED: u64 = 1;
const DST_SEED: u64 = 2;

/// All decode ranks of a probe.
struct Decode {
    sessions: Vec<Session>,
    /// Per session.
    pages: u32,
}

/// The result of one concurrent transfer, over all sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) bytes: u64,
    /// From the first `send` to the last `Success`, by prefill's clocks.
    pub(super) prefill: Span,
    /// The same as decode sees it, including its requests and offers.
    pub(super) decode: Span,
}

/// A round as a line of JSON.
#[derive(Serialize)]
struct RoundLine {
    bytes: u64,
    seconds: f64,
    /// Sum of both processes.
    cpu_seconds: f64,
}

/// Measures and prints.
///
/// # Errors
/// Prefill is unreachable or incompatible, or a received byte is wrong.
pub(super) async fn measure(args: &KvProbeArgs, peer: &BootstrapAddr, peers: &Peers) -> Result<()> {
    let mut decode = Decode {
        sessions: Vec::new(),
        pages: args.session_pages()?,
    };
    for _ in 0..args.sessions {
        decode
            .sessions
            .push(Session::open(args, peer, peers).await?);
    }
    if args.rounds_from_stdin {
        return decode.answer_stdin().await;
    }
    let report = decode.report(args, peer).await?;
    let text = match args.format {
        Format::Text => report.to_string(),
        Format::Json => serde_json::to_string(&report)? + "\n",
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

// === impl Decode ===

impl Decode {
    async fn report(&mut self, args: &KvProbeArgs, peer: &BootstrapAddr) -> Result<Report> {
        let mut rows = Vec::new();
        for shape in shapes(self.pages) {
            let rounds = self.rounds(shape, args.rounds).await?;
            rows.push(Row::new(shape, &rounds));
        }
        let writes = self.rounds(Shape::SMALLEST, LATENCY_WRITES).await?;
        let link = self.sessions.first().and_then(Session::link);
        Ok(Report {
            peer: peer.to_string(),
            link: link.with_context(|| format!("the connection to {peer} is lost"))?,
            sessions: args.sessions,
            rounds: args.rounds,
            rows,
            latency: Latency::new(&writes),
        })
    }

    /// Runs `count` rounds after a warm-up round.
    async fn rounds(&mut self, shape: Shape, count: u32) -> Result<Vec<Round>> {
        self.round(shape).await?;
        let mut rounds = Vec::new();
        for _ in 0..count {
            rounds.push(self.round(shape).await?);
        }
        Ok(rounds)
    }

    /// Transfers a shape to every session concurrently, and compares the received bytes.
    async fn round(&mut self, shape: Shape) -> Result<Round> {
        let dst = shape.scatter(self.pages, DST_SEED);
        // Each session has its own part of prefill's pool.
        let firsts = (0..).step_by(self.pages as usize);
        let src = shape.scatter(self.pages, SRC_SEED);
        let src: Vec<Vec<u32>> = firsts
            .take(self.sessions.len())
            .map(|first: u32| src.iter().map(|page| first + page).collect())
            .collect();
        for session in &self.sessions {
            session.pool().clear(dst.iter().copied())?;
        }
        let started = Reading::now();
        let sessions = self.sessions.iter_mut().zip(&src);
        let sent = sessions.map(|(session, src)| session.receive(src, &dst));
        let sent = try_join_all(sent).await?;
        let decode = started.until_now();
        for (session, src) in self.sessions.iter().zip(&src) {
            session.pool().check(src, &dst)?;
        }
        let spans = sent.into_iter().map(|Sent(span)| span);
        Ok(Round {
            bytes: u64::from(shape.pages()) * PAGE_BYTES as u64 * self.sessions.len() as u64,
            prefill: spans.reduce(Span::and).context("there is a session")?,
            decode,
        })
    }

    /// Runs a round for each line of standard input. Nothing else runs on this thread, so it may
    /// block.
    async fn answer_stdin(&mut self) -> Result<()> {
        for line in std::io::stdin().lines() {
            let shape = parse_shape(&line?, self.pages)?;
            let Round {
                bytes,
                prefill,
                decode,
            } = self.round(shape).await?;
            let line = RoundLine {
                bytes,
                seconds: prefill.seconds(),
                cpu_seconds: prefill.cpu_seconds() + decode.cpu_seconds(),
            };
            let line = serde_json::to_string(&line)? + "\n";
            std::io::stdout().write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

fn parse_shape(line: &str, pool_pages: u32) -> Result<Shape> {
    let numbers: Result<Vec<u32>, _> = line.split_whitespace().map(str::parse).collect();
    let shape = match numbers.as_deref() {
        Ok(&[pieces, piece_bytes]) => Shape {
            pieces,
            piece_pages: piece_bytes / u32::try_from(PAGE_BYTES)?,
        },
        Ok(_) | Err(_) => anyhow::bail!("{line:?} is not PIECES PIECE_BYTES"),
    };
    let pages = shape.pieces.checked_mul(shape.piece_pages);
    ensure!(
        pages.is_some_and(|pages| (1..=pool_pages).contains(&pages)),
        "{line:?} is not 1 to {pool_pages} pages of {PAGE_BYTES} bytes"
    );
    Ok(shape)
}
