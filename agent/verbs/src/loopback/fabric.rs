//! The whole fabric of the process, under one lock: NICs and the objects made on them.

use super::class;
use super::completion::{Channel, Cq, Entry};
use super::event_queue::EventQueue;
use super::memory::Region;
use super::objects::{ChannelId, ContextId, CqId, DomainId, Kept, NicId, QpId, RegionId};
use super::queue_pair::{Qp, State};
use crate::ffi;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

static FABRIC: Mutex<Fabric> = Mutex::new(Fabric::new());

/// Notified when an event is acknowledged: the object that it names may be waiting for destruction.
pub(super) static ACKNOWLEDGED: Condvar = Condvar::new();

/// Hardware reserves the numbers below for management.
const FIRST_QP_NUM: u32 = 2;

pub(super) fn lock() -> MutexGuard<'static, Fabric> {
    FABRIC.lock()
}

pub(super) struct Fabric {
    count: u32,
    nics_count: u32,
    orders: u64,
    pub(super) nics: BTreeMap<NicId, Nic>,
    pub(super) contexts: BTreeMap<ContextId, Context>,
    pub(super) domains: BTreeMap<DomainId, ContextId>,
    pub(super) regions: BTreeMap<RegionId, Region>,
    pub(super) channels: BTreeMap<ChannelId, Channel>,
    pub(super) cqs: BTreeMap<CqId, Cq>,
    pub(super) qps: BTreeMap<QpId, Qp>,
}

pub(super) struct Nic {
    pub(super) name: String,
    pub(super) gid: [u8; 16],
    /// Its `Loopback` exists, so it can be opened.
    pub(super) is_listed: bool,
    pub(super) is_cut: bool,
    pub(super) is_frozen: bool,
    pub(super) is_removed: bool,
    /// Connects that are still to time out.
    pub(super) unresolved: u32,
    pub(super) landed: u64,
    next_qp_num: u32,
}

/// An open device.
pub(super) struct Context {
    pub(super) nic: NicId,
    pub(super) events: EventQueue<Event>,
}

#[derive(Clone, Copy)]
pub(super) enum Event {
    /// `PORT_ACTIVE` or `PORT_ERR` of port 1.
    Port(u32),
    DeviceFatal,
    Qp(u32, QpId, Kept<ffi::Qp>),
}

// === impl Fabric ===

impl Fabric {
    const fn new() -> Self {
        Self {
            count: 0,
            nics_count: 0,
            orders: 0,
            nics: BTreeMap::new(),
            contexts: BTreeMap::new(),
            domains: BTreeMap::new(),
            regions: BTreeMap::new(),
            channels: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
        }
    }

    /// A number that is unique in the process's fabric.
    pub(super) fn next_number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.orders += 1;
        self.orders
    }

    pub(super) fn next_qp(&mut self, nic: NicId) -> QpId {
        let number = &mut self.nic_mut(nic).next_qp_num;
        let num = *number;
        *number += 1;
        QpId { nic, num }
    }

    pub(super) fn context(&mut self, id: ContextId) -> &mut Context {
        self.contexts.get_mut(&id).expect("a device is open")
    }

    pub(super) fn nic(&self, id: NicId) -> &Nic {
        &self.nics[&id]
    }

    pub(super) fn nic_mut(&mut self, id: NicId) -> &mut Nic {
        self.nics
            .get_mut(&id)
            .expect("objects that name a NIC keep it")
    }

    pub(super) fn channel(&mut self, id: ChannelId) -> &mut Channel {
        self.channels.get_mut(&id).expect("a channel is alive")
    }

    pub(super) fn cq(&mut self, id: CqId) -> &mut Cq {
        self.cqs.get_mut(&id).expect("a completion queue is alive")
    }

    pub(super) fn qp(&mut self, id: QpId) -> &mut Qp {
        self.qps.get_mut(&id).expect("a queue pair is alive")
    }

    /// The NIC of an open device, unless it was pulled.
    pub(super) fn working(&self, context: ContextId) -> Result<NicId, Errno> {
        let nic = self.contexts[&context].nic;
        if self.nic(nic).is_removed {
            Err(Errno::NODEV)
        } else {
            Ok(nic)
        }
    }

    pub(super) fn add_nic(&mut self, name: String) -> NicId {
        self.nics_count += 1;
        let id = NicId(self.nics_count);
        let gid = gid(id);
        class::add(&name, gid).expect("the folder of devices can be written");
        let nic = Nic {
            name,
            gid,
            is_listed: true,
            is_cut: false,
            is_frozen: false,
            is_removed: false,
            unresolved: 0,
            landed: 0,
            next_qp_num: FIRST_QP_NUM,
        };
        self.nics.insert(id, nic);
        id
    }

    pub(super) fn nic_of(&self, gid: &[u8; 16]) -> Option<NicId> {
        let mut found = self.nics.iter().filter(|(_, nic)| nic.gid == *gid);
        found.next().map(|(&id, _)| id)
    }

    pub(super) fn notify(&mut self, nic: NicId, event: Event) {
        let contexts = self.contexts.values_mut();
        for context in contexts.filter(|context| context.nic == nic) {
            context.events.push(event);
        }
    }

    pub(super) fn notify_of_qp(&mut self, id: QpId, event_type: u32) {
        let Qp { context, raw, .. } = *self.qp(id);
        let event = Event::Qp(event_type, id, raw);
        self.context(context).events.push(event);
    }

    pub(super) fn pull(&mut self, id: NicId) {
        let nic = self.nic_mut(id);
        if std::mem::replace(&mut nic.is_removed, true) {
            return;
        }
        class::remove(&nic.name.clone());
        self.notify(id, Event::DeviceFatal);
        let (contexts, channels) = (&mut self.contexts, &mut self.channels);
        for context in contexts.values_mut().filter(|context| context.nic == id) {
            context.events.close();
        }
        let its = |channel: &&mut Channel| contexts[&channel.context].nic == id;
        for channel in channels.values_mut().filter(its) {
            channel.events.close();
        }
        for (_, qp) in self.qps.iter_mut().filter(|(qp, _)| qp.nic == id) {
            qp.state = State::Error;
            qp.sends.clear();
            qp.receives.clear();
        }
        self.progress();
    }

    /// Removes NICs that nothing refers to any more.
    pub(super) fn forget_unused_nics(&mut self) {
        let contexts = &self.contexts;
        self.nics.retain(|&id, nic| {
            let is_used = nic.is_listed || contexts.values().any(|context| context.nic == id);
            if !is_used {
                class::remove(&nic.name);
            }
            is_used
        });
    }

    /// Puts a completion into its queue, and an event into its channel if one was asked for.
    pub(super) fn complete(&mut self, id: CqId, entry: Entry) {
        let cq = self.cq(id);
        cq.push(entry);
        let raw = cq.raw;
        if let (true, Some(channel)) = (std::mem::take(&mut cq.is_armed), cq.channel) {
            self.channel(channel).events.push((id, raw));
        }
    }
}

/// An address that no other NIC of the process has, in the network for benchmarks (RFC 2544), which
/// is not routed.
fn gid(NicId(number): NicId) -> [u8; 16] {
    let [_, above, high, low] = number.to_be_bytes();
    assert!(
        number < 1 << 17,
        "a process makes no more devices than that"
    );
    Ipv4Addr::new(198, 18 + above, high, low)
        .to_ipv6_mapped()
        .octets()
}
