//! A prefill and a decode engine in one process, with the bootstrap server between them.

use crate::harness::{LLAMA, mk_config, start};
use pd_engine::engine::{DecodeConfig, DisaggregationMode, EngineConfig, EngineHandle};
use pd_engine::engine::{GenerateRequest, PrefillConfig, RequestStream};
use pd_kv_transfer::bootstrap::BootstrapServer;
use pd_kv_transfer::{Peers, TransferConfig, TransportChoice};
use pd_protocol::BootstrapRoom;
use pd_protocol::workers::BootstrapFields;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Fields are dropped in order: engines before their peers.
pub(crate) struct Pair {
    pub(crate) prefill: EngineHandle,
    pub(crate) decode: EngineHandle,
    pub(crate) bootstrap_port: u16,
    _server: BootstrapServer,
    _runtime: tokio::runtime::Runtime,
}

impl Pair {
    /// `change` is applied to both engines.
    pub(crate) fn start(
        transport: TransportChoice,
        change: impl Fn(EngineConfig) -> EngineConfig,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = TcpListener::bind((LOCALHOST, 0)).expect("a free port");
        let bootstrap_port = listener.local_addr().expect("a bound address").port();
        let prefill = start(change(mk_prefill(transport, bootstrap_port)));
        let decode = start(change(mk_decode(transport)));
        let server = runtime.block_on(async {
            let info = prefill.info();
            BootstrapServer::start(listener, &Peers::Plain, &info.boot_id, &info.kv_compat)
        });
        let server = server.expect("the listener is served");
        Self {
            prefill,
            decode,
            bootstrap_port,
            _server: server,
            _runtime: runtime,
        }
    }

    /// The request as either engine gets it.
    pub(crate) fn leg(&self, request: &GenerateRequest, room: u64) -> GenerateRequest {
        let bootstrap = mk_bootstrap("127.0.0.1", self.bootstrap_port, room);
        GenerateRequest {
            bootstrap,
            ..request.clone()
        }
    }

    /// Sends both legs of a request, as a router does: prefill's stream, then decode's.
    pub(crate) fn submit(
        &self,
        request: &GenerateRequest,
        room: u64,
    ) -> (RequestStream, RequestStream) {
        let request = self.leg(request, room);
        let prefill = self
            .prefill
            .submit(request.clone())
            .expect("a valid request");
        let decode = self.decode.submit(request).expect("a valid request");
        (prefill, decode)
    }

    /// As [`Self::submit`], of all before any stream is read; rooms count from 1.
    pub(crate) fn submit_all(
        &self,
        requests: &[GenerateRequest],
    ) -> Vec<(RequestStream, RequestStream)> {
        let rooms = requests.iter().zip(1..);
        rooms
            .map(|(request, room)| self.submit(request, room))
            .collect()
    }
}

fn mk_transfer(transport: TransportChoice) -> TransferConfig {
    TransferConfig {
        transport,
        ..TransferConfig::new(LOCALHOST)
    }
}

pub(crate) fn mk_prefill(transport: TransportChoice, bootstrap_port: u16) -> EngineConfig {
    let transfer = mk_transfer(transport);
    let mode = DisaggregationMode::Prefill(PrefillConfig {
        transfer,
        bootstrap_port,
        http_port: 0,
    });
    EngineConfig {
        mode,
        ..mk_config(LLAMA)
    }
}

pub(crate) fn mk_decode(transport: TransportChoice) -> EngineConfig {
    let mode = DisaggregationMode::Decode(DecodeConfig {
        transfer: mk_transfer(transport),
        num_reserved_decode_tokens: 16,
        extra_slots: None,
        polling_interval: 1,
    });
    EngineConfig {
        mode,
        ..mk_config(LLAMA)
    }
}

pub(crate) fn mk_bootstrap(host: &str, port: u16, room: u64) -> Option<BootstrapFields> {
    Some(BootstrapFields {
        bootstrap_host: host.to_owned(),
        bootstrap_port: port,
        bootstrap_room: BootstrapRoom::new(room).expect("a room"),
    })
}
