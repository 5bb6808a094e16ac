//! A long run of random requests between two processes whose pools change their layout again and again, with
//! a tenth of the requests failing on purpose: all bytes are checked on arrival, each failure must be reported to
//! both sides once and in time, and nothing may be left behind.
#![expect(clippy::print_stdout, reason = "a proof reports on stdout")]

mod epoch;
mod rank;
mod worker;

use anyhow::{Context, bail, ensure};
use epoch::{Epoch, Side};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use worker::{Ended, Footprint, Order, Report};

/// Requests of an epoch.
const ROOMS: u64 = 500;
/// A failure is known to both sides within the heartbeat bound: 500 ms twice.
const BOUND: Duration = Duration::from_millis(1000);
/// The router reports what the other side has not heard of by then: where decode fails before it knows its
/// prefill, only the router can.
const ROUTER_AFTER: Duration = Duration::from_millis(1500);
/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Epochs after which a process has all the threads and buffers that it keeps.
const WARM: u64 = 12;
/// Resident memory that a process may gain from then on.
const GROWTH_KIB_MAX: u64 = 24 << 10;

/// A worker process.
struct Process {
    child: Child,
    orders: ChildStdin,
}

#[derive(Default)]
struct Tally {
    requests: u64,
    failed: u64,
    /// Of those, how many the router reported to the other side.
    routed: u64,
    furthest_apart: Duration,
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(String::as_str)
    };
    match arg("--side") {
        Some("prefill") => return worker::run(Side::Prefill),
        Some("decode") => return worker::run(Side::Decode),
        Some(other) => bail!("--side {other} is neither prefill nor decode"),
        None => {}
    }
    let minutes: f64 = arg("--minutes")
        .unwrap_or("20")
        .parse()
        .context("--minutes")?;
    let seed: u64 = match arg("--seed") {
        Some(seed) => seed.parse().context("--seed")?,
        None => rand::random(),
    };
    println!("seed {seed}, {minutes} minutes");
    soak(seed, Duration::from_secs_f64(minutes * 60.0))
}

fn soak(seed: u64, length: Duration) -> anyhow::Result<()> {
    let (report, inbox) = channel();
    let mut sides = [
        Process::start(Side::Prefill, report.clone())?,
        Process::start(Side::Decode, report)?,
    ];
    let began = Instant::now();
    let mut total = Tally::default();
    let mut warm: Option<[Footprint; 2]> = None;
    let mut number = 0;
    while began.elapsed() < length || number <= WARM {
        let epoch = Epoch::draw(seed, number);
        let tally = run_epoch(&epoch, &mut sides, &inbox);
        let tally = tally.with_context(|| format!("seed {seed}, epoch {epoch:?}"))?;
        let left = stop(&mut sides, &inbox)?;
        println!("{}", line(&epoch, &tally, &left));
        total.add(&tally);
        match &warm {
            None if number == WARM => warm = Some(left),
            None => {}
            Some(warm) => check_leaks(warm, &left)?,
        }
        number += 1;
    }
    let Tally {
        requests,
        failed,
        routed,
        furthest_apart,
    } = total;
    println!(
        "{number} epochs, {requests} requests, {failed} failed ({:.1} %), every one on both sides, at most \
         {furthest_apart:?} apart; {routed} of them reported by the router; nothing is left behind",
        100.0 * failed as f64 / requests as f64
    );
    Ok(())
}

/// Starts both pools and lets all requests end.
fn run_epoch(
    epoch: &Epoch,
    sides: &mut [Process; 2],
    inbox: &Receiver<(Side, Report)>,
) -> anyhow::Result<Tally> {
    let mut bootstrap_port = 0;
    for side in sides.iter_mut() {
        side.order(&Order::Start {
            epoch: epoch.clone(),
            bootstrap_port,
        })?;
        let (
            _,
            Report::Ready {
                bootstrap_port: port,
            },
        ) = inbox.recv_timeout(PATIENCE)?
        else {
            bail!("a side is not ready");
        };
        bootstrap_port = port;
    }
    let first = 1 + epoch.number * ROOMS;
    for side in sides.iter_mut() {
        side.order(&Order::Run {
            first,
            count: ROOMS,
        })?;
    }
    let mut ends: HashMap<u64, [Option<Ended>; 2]> = HashMap::new();
    let mut waiting: HashMap<u64, (Instant, usize)> = HashMap::new();
    let mut routed = Vec::new();
    let mut done = 0;
    let mut heard = Instant::now();
    while done < 2 {
        match inbox.recv_timeout(Duration::from_millis(100)) {
            Ok((_, Report::Done)) => done += 1,
            Ok((side, Report::Ended(ended))) => {
                heard = Instant::now();
                let (room, has_failed) = (ended.room, ended.failure.is_some());
                let both = ends.entry(room).or_default();
                ensure!(
                    both[side as usize].is_none(),
                    "room {room} ended twice on {side:?}"
                );
                both[side as usize] = Some(ended);
                let other = 1 - side as usize;
                if both[other].is_some() {
                    waiting.remove(&room);
                } else if has_failed {
                    waiting.insert(room, (Instant::now(), other));
                }
            }
            Ok((side, report)) => bail!("{side:?} says {report:?}"),
            Err(RecvTimeoutError::Timeout) => {
                ensure!(heard.elapsed() < PATIENCE, "hangs: {:?}", hanging(&ends));
            }
            Err(RecvTimeoutError::Disconnected) => bail!("both sides are gone"),
        }
        let due = |(_, (since, _)): &(&u64, &(Instant, usize))| since.elapsed() > ROUTER_AFTER;
        let late: Vec<(u64, usize)> = waiting
            .iter()
            .filter(due)
            .map(|(r, (_, o))| (*r, *o))
            .collect();
        for (room, other) in late {
            waiting.remove(&room);
            routed.push(room);
            sides[other].order(&Order::Cancel { room })?;
        }
    }
    tally(epoch, &ends, &routed)
}

fn hanging(ends: &HashMap<u64, [Option<Ended>; 2]>) -> Vec<u64> {
    let one = ends
        .iter()
        .filter(|(_, both)| both.iter().any(Option::is_none));
    one.map(|(room, _)| *room).collect()
}

/// How the requests of an epoch ended, if that is as it must be.
fn tally(
    epoch: &Epoch,
    ends: &HashMap<u64, [Option<Ended>; 2]>,
    routed: &[u64],
) -> anyhow::Result<Tally> {
    let mut tally = Tally {
        requests: ends.len() as u64,
        ..Tally::default()
    };
    ensure!(
        tally.requests == ROOMS,
        "{} of {ROOMS} requests ended",
        tally.requests
    );
    for (room, both) in ends {
        let [Some(prefill), Some(decode)] = both else {
            bail!("room {room} ended on one side only: {both:?}");
        };
        match (&prefill.failure, &decode.failure) {
            (None, None) => {}
            (Some(_), Some(_)) => tally.failed += 1,
            // What prefill gives up when decode has all of it is complete there.
            (Some(_), None) if epoch.request(*room).given_up_by == Some(Side::Prefill) => {
                tally.failed += 1;
            }
            _ => bail!("room {room} failed on one side only: {both:?}"),
        }
        if prefill.failure.is_none() && decode.failure.is_none() {
            continue;
        }
        if routed.contains(room) {
            let is_early = |why: &String| why.contains("on purpose at Bootstrap");
            let is_early = decode.failure.as_ref().is_some_and(is_early);
            ensure!(
                is_early,
                "room {room} had to be reported by the router: {both:?}"
            );
            tally.routed += 1;
            continue;
        }
        let apart = Duration::from_nanos(prefill.unix_ns.abs_diff(decode.unix_ns));
        ensure!(
            apart <= BOUND,
            "room {room} failed {apart:?} apart: {both:?}"
        );
        tally.furthest_apart = tally.furthest_apart.max(apart);
    }
    Ok(tally)
}

/// Ends both pools; what the processes still hold.
fn stop(
    sides: &mut [Process; 2],
    inbox: &Receiver<(Side, Report)>,
) -> anyhow::Result<[Footprint; 2]> {
    // Decode first: it goes from its prefill.
    let mut left = [None; 2];
    for side in sides.iter_mut().rev() {
        side.order(&Order::Stop)?;
        match inbox.recv_timeout(PATIENCE)? {
            (side, Report::Stopped(footprint)) => left[side as usize] = Some(footprint),
            (side, report) => bail!("{side:?} says {report:?} instead of a stop"),
        }
    }
    Ok(left.map(|left| left.expect("both have said it")))
}

fn check_leaks(warm: &[Footprint; 2], now: &[Footprint; 2]) -> anyhow::Result<()> {
    for (side, (warm, now)) in ["prefill", "decode"].iter().zip(warm.iter().zip(now)) {
        ensure!(
            now.files <= warm.files,
            "{side} leaks files: {warm:?}, now {now:?}"
        );
        ensure!(
            now.threads <= warm.threads,
            "{side} leaks threads: {warm:?}, now {now:?}"
        );
        let is_grown = now.rss_kib > warm.rss_kib + GROWTH_KIB_MAX;
        ensure!(!is_grown, "{side} leaks memory: {warm:?}, now {now:?}");
    }
    Ok(())
}

fn line(epoch: &Epoch, tally: &Tally, left: &[Footprint; 2]) -> String {
    let transport = if epoch.is_shm { "shm" } else { "tcp" };
    let (p, d) = (epoch.prefill, epoch.decode);
    let Tally {
        requests,
        failed,
        routed,
        furthest_apart,
    } = tally;
    let [prefill, decode] = left;
    format!(
        "{:4} {transport}  tp {} pp {} dp {} to tp {} pp {}: {requests} requests, {failed} failed ({routed} \
         routed), {:.0} ms apart; left: {}/{} files, {}/{} threads, {}/{} MiB",
        epoch.number,
        p.tp_size,
        p.pp_size,
        p.dp_size,
        d.tp_size,
        d.pp_size,
        furthest_apart.as_secs_f64() * 1e3,
        prefill.files,
        decode.files,
        prefill.threads,
        decode.threads,
        prefill.rss_kib >> 10,
        decode.rss_kib >> 10,
    )
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.routed += other.routed;
        self.furthest_apart = self.furthest_apart.max(other.furthest_apart);
    }
}

// === impl Process ===

impl Process {
    fn start(side: Side, report: Sender<(Side, Report)>) -> anyhow::Result<Self> {
        let name = match side {
            Side::Prefill => "prefill",
            Side::Decode => "decode",
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--side", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().context("it was piped")?;
        let out = child.stdout.take().context("it was piped")?;
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let said = serde_json::from_str(&line).expect("the child speaks our language");
                if report.send((side, said)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, orders })
    }

    fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.orders, order)?;
        self.orders.write_all(b"\n")?;
        Ok(self.orders.flush()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself as its standard input does; a hanging one is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
