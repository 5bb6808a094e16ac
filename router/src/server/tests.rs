//! What keeps a server from starting.

use super::*;
use crate::Args;
use clap::Parser;

#[tokio::test]
async fn a_taken_port_is_reported_once_with_the_flag_to_change() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let line = format!(
        "pd-router --host 127.0.0.1 --port 0 --admin-port {}",
        address.port()
    );
    let config = Args::parse_from(line.split_whitespace()).into_config();
    let config = config.expect("good flags");
    let refused = Server::bind(config).await.err().unwrap();
    assert_eq!(
        crate::in_one_line(&refused.into()),
        format!(
            "cannot listen on {address}: Address already in use (os error 98); give another \
             --admin-host or --admin-port, or stop the process that listens there"
        )
    );
}
