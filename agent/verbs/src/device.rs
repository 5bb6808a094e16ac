//! The library, its devices, and their capabilities.

use crate::endpoint::Mtu;
use crate::error::CallError;
use crate::ffi::{self, Api, LibraryError};
use crate::locality::Locality;
use crate::memory::{HostMemory, ProtectionDomain, Registration};
use crate::port::{self, LinkLayer, LocalPort, Port, PortError, PortState, PortWish};
use crate::sysfs::{CLASS, PortFolder};
use std::ffi::CStr;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// The opened libibverbs. Cheap to copy; the library stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Verbs {
    api: &'static Api,
    /// Where the kernel, or its substitute, describes the library's devices.
    class: &'static Path,
}

/// An open device; cheap to clone, closed with the last clone and everything made from it.
#[derive(Clone)]
pub struct Device {
    context: Arc<Context>,
}

struct Context {
    api: &'static Api,
    raw: NonNull<ffi::Context>,
    name: String,
    class: &'static Path,
}

/// Limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub firmware: String,
    pub ports: u8,
    pub queue_pairs_max: u32,
    /// Work requests that one send or receive queue can hold.
    pub queue_depth_max: u32,
    /// Local ranges that one request can gather.
    pub ranges_max: u32,
    pub completion_queues_max: u32,
    pub completion_queue_depth_max: u32,
    pub regions_max: u32,
    pub region_bytes_max: u64,
}

/// Features that no limit reports and only a trial shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Regions over a dma-buf can be registered (GPU memory).
    pub dma_buf: bool,
    /// Regions need not be pinned.
    pub on_demand_paging: bool,
    /// Regions accept relaxed ordering. The kernel silently drops it where the bus lacks it, so
    /// this is all that can be known.
    pub relaxed_ordering: bool,
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Library(#[from] Arc<LibraryError>),
    #[error(
        "this machine has no RDMA device: load the NIC's driver, pass /dev/infiniband to the \
         container, or use a transfer backend that needs no RDMA"
    )]
    NoDevice,
    #[error("there is no RDMA device {name}; this machine has {known}")]
    UnknownDevice { name: String, known: String },
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why a device's ports cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    #[error("{device}: {reason}")]
    Port { device: String, reason: PortError },
    #[error(transparent)]
    Call(#[from] CallError),
}

// SAFETY: libibverbs allows any thread to use a context; nothing here is tied to the opening one.
unsafe impl Send for Context {}
// SAFETY: as above, at the same time: the library and its providers lock what they share.
unsafe impl Sync for Context {}

// === impl Verbs ===

impl Verbs {
    /// Opens libibverbs, once per process.
    ///
    /// # Errors
    /// It is not installed, or too old. That is not a defect of the machine: it explains why RDMA
    /// is unavailable.
    pub fn open() -> Result<Self, OpenError> {
        static API: OnceLock<Result<Api, Arc<LibraryError>>> = OnceLock::new();
        match API.get_or_init(|| Api::open().map_err(Arc::new)) {
            Ok(api) => Ok(Self {
                api,
                class: Path::new(CLASS),
            }),
            Err(error) => Err(OpenError::Library(Arc::clone(error))),
        }
    }

    /// Another library than libibverbs, whose devices `class` describes.
    #[cfg(any(test, feature = "loopback"))]
    pub(crate) fn over(api: &'static Api, class: &'static Path) -> Self {
        Self { api, class }
    }

    /// Names of the present devices, at least one.
    ///
    /// # Errors
    /// There is no device, or the kernel cannot be queried.
    pub fn device_names(&self) -> Result<Vec<String>, OpenError> {
        let list = DeviceList::read(self.api)?;
        let names: Vec<String> = list.iter().map(|(name, _)| name).collect();
        if names.is_empty() {
            return Err(OpenError::NoDevice);
        }
        Ok(names)
    }

    /// Opens a device by its name.
    ///
    /// # Errors
    /// There is no device of that name, or it cannot be opened.
    pub fn open_device(&self, name: &str) -> Result<Device, OpenError> {
        let list = DeviceList::read(self.api)?;
        let Some((_, device)) = list.iter().find(|(found, _)| found == name) else {
            let known: Vec<String> = list.iter().map(|(name, _)| name).collect();
            if known.is_empty() {
                return Err(OpenError::NoDevice);
            }
            return Err(OpenError::UnknownDevice {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        // SAFETY: the device is in a list that is not yet freed.
        let raw = unsafe { (self.api.ibv_open_device)(device) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("ibv_open_device", name))?;
        let context = Context {
            api: self.api,
            raw,
            name: name.to_owned(),
            class: self.class,
        };
        context.make_events_non_blocking()?;
        Ok(Device {
            context: Arc::new(context),
        })
    }
}

/// The devices present at one moment.
struct DeviceList {
    api: &'static Api,
    raw: NonNull<*mut ffi::Device>,
    len: usize,
}

impl DeviceList {
    fn read(api: &'static Api) -> Result<Self, OpenError> {
        let mut len = 0;
        // SAFETY: `len` can be written.
        let raw = unsafe { (api.ibv_get_device_list)(&raw mut len) };
        let Some(raw) = NonNull::new(raw) else {
            let error = CallError::last("ibv_get_device_list", "this machine");
            // Without the kernel's RDMA support there are no devices either.
            return Err(if error.is_unsupported() {
                OpenError::NoDevice
            } else {
                error.into()
            });
        };
        let len = usize::try_from(len).unwrap_or(0);
        Ok(Self { api, raw, len })
    }

    fn iter(&self) -> impl Iterator<Item = (String, *mut ffi::Device)> {
        (0..self.len).map(|i| {
            // SAFETY: the library states that the list has `len` entries before its null.
            let device = unsafe { *self.raw.as_ptr().add(i) };
            // SAFETY: the device is in a list that is not yet freed; its name ends with a zero
            // and lives as long.
            let name = unsafe { CStr::from_ptr((self.api.ibv_get_device_name)(device)) };
            (name.to_string_lossy().into_owned(), device)
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list came from the library and is freed once; open devices outlive it.
        unsafe { (self.api.ibv_free_device_list)(self.raw.as_ptr()) };
    }
}

// === impl Device ===

impl Device {
    pub fn name(&self) -> &str {
        &self.context.name
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.context.api
    }

    pub(crate) fn raw(&self) -> *mut ffi::Context {
        self.context.raw.as_ptr()
    }

    /// The device's limits.
    ///
    /// # Errors
    /// The device does not respond.
    pub fn capabilities(&self) -> Result<Capabilities, CallError> {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut attr: ffi::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `attr` is the structure that the call fills.
        let code = unsafe { (self.api().ibv_query_device)(self.raw(), &raw mut attr) };
        if code != 0 {
            return Err(CallError::new("ibv_query_device", self.name(), code));
        }
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let firmware = attr.fw_ver.map(i8::cast_unsigned);
        let firmware = firmware.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Capabilities {
            firmware: String::from_utf8_lossy(firmware).into_owned(),
            ports: attr.phys_port_cnt,
            queue_pairs_max: count(attr.max_qp),
            queue_depth_max: count(attr.max_qp_wr),
            ranges_max: count(attr.max_sge),
            completion_queues_max: count(attr.max_cq),
            completion_queue_depth_max: count(attr.max_cqe),
            regions_max: count(attr.max_mr),
            region_bytes_max: attr.max_mr_size,
        })
    }

    /// Tests what limits do not show, with a temporary protection domain and page.
    ///
    /// # Errors
    /// The device cannot even register a page.
    pub fn probe_features(&self) -> Result<Features, CallError> {
        let domain = ProtectionDomain::new(self)?;
        let page = Arc::new(HostMemory::zeroed(4096));
        let takes = |registration: Registration| domain.register(Arc::clone(&page), registration);
        let plain = Registration::default();
        takes(plain)?;
        let relaxed = takes(Registration {
            relaxed_ordering: true,
            ..plain
        })?;
        Ok(Features {
            dma_buf: domain.takes_dma_buf(),
            on_demand_paging: domain.takes_on_demand(&page),
            relaxed_ordering: relaxed.has_relaxed_ordering(),
        })
    }

    /// All ports, in their present state.
    ///
    /// # Errors
    /// The device does not respond.
    pub fn ports(&self) -> Result<Vec<Port>, CallError> {
        let count = self.capabilities()?.ports;
        (1..=count).map(|number| self.port(number)).collect()
    }

    fn port(&self, number: u8) -> Result<Port, CallError> {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut attr: ffi::PortAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `attr` is as much as the call fills.
        let code = unsafe { (self.api().ibv_query_port)(self.raw(), number, &raw mut attr) };
        if code != 0 {
            let object = format!("{} port {number}", self.name());
            return Err(CallError::new("ibv_query_port", object, code));
        }
        let folder = PortFolder::new(self.context.class, self.name(), number);
        let gids_len = u8::try_from(attr.gid_tbl_len.max(0)).unwrap_or(u8::MAX);
        Ok(Port {
            number,
            state: match attr.state {
                ffi::IBV_PORT_DOWN => PortState::Down,
                ffi::IBV_PORT_INIT => PortState::Init,
                ffi::IBV_PORT_ARMED => PortState::Armed,
                ffi::IBV_PORT_ACTIVE => PortState::Active,
                other => PortState::Other(other),
            },
            link_layer: match u32::from(attr.link_layer) {
                // Drivers older than RoCE leave it unspecified.
                0 | ffi::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                ffi::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Other(attr.link_layer),
            },
            active_mtu: Mtu::from_code(attr.active_mtu).unwrap_or(Mtu::B1024),
            lid: attr.lid,
            mbit_per_s: folder.mbit_per_s(),
            message_bytes_max: attr.max_msg_sz,
            gids: folder.gids(gids_len),
        })
    }

    /// Its position in the machine, as the kernel reports it now.
    pub fn locality(&self) -> Locality {
        Locality::read(self.context.class, self.name())
    }

    /// Reads the ports and chooses one with its GID.
    ///
    /// # Errors
    /// The device does not respond, or no port matches.
    pub fn choose_port(&self, wish: &PortWish) -> Result<LocalPort, ChooseError> {
        let ports = self.ports()?;
        port::choose_port(&ports, wish).map_err(|reason| ChooseError::Port {
            device: self.name().to_owned(),
            reason,
        })
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.context.name).finish()
    }
}

// === impl Context ===

impl Context {
    fn make_events_non_blocking(&self) -> Result<(), CallError> {
        // SAFETY: the context is open, so the library keeps its event file open.
        let file = unsafe { crate::events::borrow_async_file(self.raw.as_ptr()) };
        crate::events::make_non_blocking(file, &self.name)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened once; all objects made from it hold a clone of the device, so they are
        // gone. A failure leaves the kernel's part until the process ends.
        unsafe { (self.api.ibv_close_device)(self.raw.as_ptr()) };
    }
}
