//! A rail comes up: queue pairs, the connection to decode's, a probe over each lane.

use super::fault::{of_device, of_network, of_peer};
use super::{Ends, PROBE_TAG, Poller, Rail, SEND_DEPTH, State, Target, not_connected};
use crate::clock::Instant;
use crate::failure::FailureReason;
use crate::transport::rdma::completions::Completions;
use crate::transport::rdma::connecting::{Connecting, Step};
use crate::transport::rdma::conversion::{to_endpoints, to_region};
use crate::transport::rdma::fabric::PROBE_BYTES;
use crate::transport::rdma::immediate::PROBE;
use crate::transport::rdma::writer::handle::Event;
use pd_protocol::control::RailAnswer;
use pd_verbs::queue_pair::Rtr;
use pd_verbs::{PathOptions, QueuePair, QueuePairOptions, RemoteRegion, Retry, Write};
use std::mem;
use tokio::sync::mpsc;

impl Rail {
    /// Makes queue pairs for another epoch.
    pub(super) fn make_ends(
        &mut self,
        events: &mpsc::Sender<Event>,
        now: Instant,
    ) -> Result<(), String> {
        let nic = &self.nic;
        let depth = SEND_DEPTH * u32::try_from(self.lanes).expect("few lanes");
        let completions = Completions::new(&nic.device, depth).map_err(|e| e.to_string())?;
        let options = QueuePairOptions {
            send_depth: SEND_DEPTH,
            receive_depth: 0,
            ranges_max: u32::try_from(nic.gather_max).expect("few"),
            inline_bytes: 0,
        };
        let mut ends = Vec::new();
        for _ in 0..self.lanes {
            let queue = &completions.queue;
            let end = QueuePair::new(&nic.domain, queue, queue, options);
            let end = end.map_err(|e| e.to_string())?;
            let end = end.init(&nic.local, rand::random());
            ends.push(end.map_err(|e| e.to_string())?);
        }
        self.epoch += 1;
        self.state = State::Offered {
            ends,
            poller: self.poll(completions, events.clone()),
            sent_at: now,
        };
        Ok(())
    }

    fn poll(&self, completions: Completions, events: mpsc::Sender<Event>) -> Poller {
        let (rail, epoch) = (self.number as usize, self.epoch);
        let task = self.tasks.spawn("rail completions", async move {
            loop {
                let (event, is_broken) = match completions.next().await {
                    Ok(completions) => {
                        let completed = Event::Completed {
                            rail,
                            epoch,
                            completions,
                        };
                        (completed, false)
                    }
                    Err(error) => {
                        let broken = Event::Broken {
                            rail,
                            epoch,
                            reason: error.to_string(),
                        };
                        (broken, true)
                    }
                };
                if events.send(event).await.is_err() || is_broken {
                    return;
                }
            }
        });
        Poller(task)
    }

    /// Connects to decode's ends, as far as they are found, and writes a probe over each lane. Decode's memory
    /// must have at least `region_lens` bytes. After an error decode has ends that it has to close.
    pub(in super::super) fn connect(
        &mut self,
        answer: &RailAnswer,
        region_lens: &[u64],
        via: (PathOptions, Retry),
    ) -> Result<(), FailureReason> {
        let closing = not_connected();
        let State::Offered { ends, poller, .. } = mem::replace(&mut self.state, closing) else {
            return Err(FailureReason::peer("it was not offered"));
        };
        let remotes = to_endpoints(&answer.ends).map_err(of_peer)?;
        if remotes.len() != ends.len() {
            let (got, wanted) = (remotes.len(), ends.len());
            let why = format!("decode answers with {got} ends to {wanted}");
            return Err(FailureReason::peer(why));
        }
        let mut regions: Vec<RemoteRegion> =
            answer.regions.iter().copied().map(to_region).collect();
        let scratch = regions.pop();
        let fits = |(region, &len): (&RemoteRegion, &u64)| region.at(0, len).is_ok();
        if regions.len() != region_lens.len() || !regions.iter().zip(region_lens).all(fits) {
            let why = "decode's regions are not those of its layout";
            return Err(FailureReason::peer(why));
        }
        let scratch =
            scratch.ok_or_else(|| FailureReason::peer("decode has no place for probes"))?;
        let target = Target {
            regions,
            scratch,
            poller,
        };
        self.go_on(Connecting::new(ends.into_iter().zip(remotes)), target, via)
    }

    /// Looks again for a peer that was not found in time; as [`Self::connect`].
    pub(in super::super) fn connect_rest(
        &mut self,
        via: (PathOptions, Retry),
    ) -> Result<(), FailureReason> {
        if !self.is_connecting() {
            return Ok(());
        }
        let State::Connecting(rest, target) = mem::replace(&mut self.state, not_connected()) else {
            unreachable!("it was looked at above");
        };
        self.go_on(rest, target, via)
    }

    fn go_on(
        &mut self,
        lanes: Connecting,
        target: Target,
        (path, retry): (PathOptions, Retry),
    ) -> Result<(), FailureReason> {
        match lanes.step(path).map_err(of_network)? {
            Step::Connected(lanes) => self.prove(lanes, target, retry),
            Step::Later(rest) => {
                self.state = State::Connecting(rest, target);
                Ok(())
            }
        }
    }

    /// All lanes are connected.
    fn prove(
        &mut self,
        connected: Vec<QueuePair<Rtr>>,
        target: Target,
        retry: Retry,
    ) -> Result<(), FailureReason> {
        let Target {
            regions,
            scratch,
            poller,
        } = target;
        let own = &self.nic.regions[0];
        let len = own.remote().len.min(PROBE_BYTES.into());
        let len = u32::try_from(len).expect("no more than PROBE_BYTES");
        let probe = Write {
            src: &[own.range(0, len).map_err(of_device)?],
            dst: scratch.at(0, len.into()).map_err(of_peer)?,
            immediate: Some(PROBE),
            tag: PROBE_TAG,
            signalled: true,
        };
        let mut lanes = Vec::new();
        for end in connected {
            let mut end = end.start(retry).map_err(of_device)?;
            end.post(&[probe]).map_err(of_device)?;
            lanes.push(end);
        }
        self.state = State::Proving {
            unproven: lanes.len(),
            since: Instant::now(),
            ends: Ends {
                lanes,
                regions,
                _poller: poller,
            },
        };
        Ok(())
    }
}
