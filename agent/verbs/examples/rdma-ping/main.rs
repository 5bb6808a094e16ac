//! Two ends of RDMA writes, to try a fabric and to test the crate on one: `rdma-ping receive` on
//! one host, `rdma-ping write` on the other, `rdma-ping devices` and `rdma-ping hold` on any.
#![expect(clippy::print_stdout, reason = "what it sees is its output")]

mod devices;
mod hold;
mod pattern;
mod receive;
mod wait;
mod wire;
mod write;

use clap::{Parser, Subcommand};
use pd_verbs::{IpFamily, PortWish, Retry};
use std::net::SocketAddr;
use std::process::ExitCode;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    /// Print what this machine has.
    Devices,
    /// Offer memory to one writer, and print the result.
    Receive {
        #[arg(long)]
        listen: SocketAddr,
        /// Use RoCE over IPv6, like the writer.
        #[arg(long)]
        ipv6: bool,
    },
    /// Write into a receiver's memory.
    Write {
        #[arg(long)]
        peer: SocketAddr,
        #[arg(long, value_enum, default_value = "pieces")]
        what: write::What,
        /// Use RoCE over IPv6, like the receiver.
        #[arg(long)]
        ipv6: bool,
        /// How long to wait for an acknowledgement before a packet is sent again: 4.096 µs ·
        /// 2^this.
        #[arg(long, default_value_t = Retry::default().ack_timeout, value_parser = clap::value_parser!(u8).range(1..=31))]
        ack_timeout: u8,
    },
    /// Keep a device open and print its events, until it fails.
    Hold,
}

fn wish(ipv6: bool) -> PortWish {
    PortWish {
        family: ipv6.then_some(IpFamily::V6),
        ..PortWish::default()
    }
}

fn main() -> ExitCode {
    let done = match Args::parse().side {
        Side::Devices => devices::run(),
        Side::Receive { listen, ipv6 } => receive::run(listen, wish(ipv6)),
        Side::Write {
            peer,
            what,
            ipv6,
            ack_timeout,
        } => {
            let retry = Retry {
                ack_timeout,
                ..Retry::default()
            };
            write::run(peer, what, wish(ipv6), retry)
        }
        Side::Hold => hold::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
