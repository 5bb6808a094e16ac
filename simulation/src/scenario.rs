//! One seed from its plan to its judgement.

use crate::client::{self, Answers, Ask, Outcome};
use crate::engine;
use crate::faults::Places;
use crate::host::Software;
use crate::invariants::{self, Health};
use crate::libc;
use crate::plan::{ACTIVE, Plan};
use crate::trace::Trace;
use crate::worker::{self, Kv};
use crate::world::World;
use clap::Parser;
use futures_util::FutureExt;
use parking_lot::Mutex;
use pd_engine::engine::EngineHandle;
use pd_protocol::Role;
use pd_router::{Args, Router, Server};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The result of a seed.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    /// Of everything that happened, in order.
    pub hash: u64,
    pub entries: u64,
    pub asked: usize,
    /// Requests that got their tokens.
    pub answered: usize,
    pub faults: usize,
    /// Whether its workers had engines.
    pub engines: bool,
    /// What did not hold.
    pub broken: Option<String>,
}

/// The router as a host's software leaves it for the judge; `None` while it does not run.
type Shown = Arc<Mutex<Option<Arc<Router>>>>;
/// The engine of each worker's last start.
type Engines = Arc<Mutex<BTreeMap<usize, EngineHandle>>>;

const API_PORT: u16 = 8000;
/// Bounds are checked this often.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// What a client allows beyond the router's own limit: its way there and back, with losses.
const CLIENT_SLACK: Duration = Duration::from_secs(15);
/// After everything is well again, until nothing may be held any more.
const REST: Duration = Duration::from_secs(40);
/// Nothing must be held for so long before a run ends sooner.
const REST_STEADY: Duration = Duration::from_secs(3);
const REST_INTERVAL: Duration = Duration::from_millis(500);
/// The longest that a circuit is open by the plan's flags.
const CIRCUIT_OPEN_MAX: Duration = Duration::from_secs(10);

/// Panics of this process; the product catches some of them.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Runs a seed on a thread of its own.
#[must_use]
pub fn run(seed: u64, prints: bool) -> Report {
    let simulated = std::thread::Builder::new()
        .name("simulation".to_owned())
        .spawn(move || {
            libc::begin(seed);
            count_panics();
            Scenario::new(seed, prints).run()
        });
    let simulated = simulated.expect("a thread starts");
    simulated.join().unwrap_or_else(|_| Report {
        seed,
        hash: 0,
        entries: 0,
        asked: 0,
        answered: 0,
        faults: 0,
        engines: false,
        broken: Some("the simulation panicked".to_owned()),
    })
}

fn count_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        print(panic);
    }));
}

struct Scenario {
    plan: Plan,
    world: World,
    places: Places,
    router: Shown,
    answers: Answers,
    late_answers: Answers,
    engines: Engines,
    health: Health,
}

// === impl Scenario ===

impl Scenario {
    fn new(seed: u64, prints: bool) -> Self {
        let plan = Plan::draw(seed);
        if prints {
            eprintln!("{plan:#?}");
        }
        let mut world = World::new(seed, plan.links(), Trace::new(prints));
        let kv = Kv::default();
        let engines = Engines::default();
        let mut workers = |role: Role, first: usize, count: usize| -> Vec<_> {
            let nrs = first..first + count;
            nrs.map(|nr| world.add(worker_software(&plan, role, nr, &kv, &engines)))
                .collect()
        };
        let prefills = workers(Role::Prefill, 0, plan.prefills);
        let decodes = workers(Role::Decode, plan.prefills, plan.decodes);
        let router = Shown::default();
        let router_host = world.add(router_software(&plan, &router));
        let answers = Answers::default();
        let client = world.add(client_software(&plan, &answers));
        let late_answers = Answers::default();
        let late_client = world.add(late_client_software(&plan, &late_answers));
        Self {
            plan,
            world,
            places: Places {
                router: router_host,
                prefills,
                decodes,
                client,
                late_client,
            },
            router,
            answers,
            late_answers,
            engines,
            health: Health::default(),
        }
    }

    fn run(mut self) -> Report {
        let broken = self.play().err();
        let panics = PANICS.load(Ordering::Relaxed);
        let broken = broken.or_else(|| (panics > 0).then(|| format!("{panics} panics")));
        let (hash, entries) = self.world.network.state.lock().trace.hash();
        let answers = self.answers.lock();
        let is_answer = |outcome: &Outcome| matches!(outcome, Outcome::Tokens(_));
        Report {
            seed: self.plan.seed,
            hash,
            entries,
            asked: self.plan.asks.len(),
            answered: answers.iter().filter(|(.., o)| is_answer(o)).count(),
            faults: self.plan.faults.len(),
            engines: self.plan.engines.is_some(),
            broken,
        }
    }

    fn play(&mut self) -> Result<(), String> {
        for host in self.places.at_first() {
            self.world.boot(host);
        }
        let ends = self.play_faults()?;
        let longest = ACTIVE + self.plan.request_timeout + CLIENT_SLACK;
        let longest = longest.max(ends);
        while self.world.now < longest && self.answers.lock().len() < self.plan.asks.len() {
            self.run_until(self.world.now + REST_INTERVAL)?;
        }
        self.rest()?;
        let answers = self.answers.lock().clone();
        for answer in &answers {
            self.world.network.note(answer);
        }
        invariants::ended(&self.plan, &answers)?;
        self.ask_again()?;
        self.rest()
    }

    /// Everything is well, so every request must be answered, whichever workers it reaches.
    fn ask_again(&mut self) -> Result<(), String> {
        let router = self.router.lock().clone();
        let workers = router.map(|router| router.workers()).unwrap_or_default();
        if workers.iter().any(|worker| worker.circuit_open) {
            self.run_until(self.world.now + CIRCUIT_OPEN_MAX)?;
        }
        self.world.boot(self.places.late_client);
        let late = Arc::clone(&self.late_answers);
        let ends = self.world.now + CLIENT_SLACK * 8;
        while self.world.now < ends && late.lock().len() < self.plan.late_asks.len() {
            self.run_until(self.world.now + REST_INTERVAL)?;
        }
        let answers = late.lock().clone();
        for answer in &answers {
            self.world.network.note(answer);
        }
        invariants::answered(&self.plan, &answers)
    }

    /// Waits until nothing is held, and that for a while.
    fn rest(&mut self) -> Result<(), String> {
        let ends = self.world.now + REST;
        let mut rested = Duration::ZERO;
        while rested < REST_STEADY {
            self.run_until(self.world.now + REST_INTERVAL)?;
            match self.is_at_rest() {
                Ok(()) => rested += REST_INTERVAL,
                Err(_) if self.world.now < ends => rested = Duration::ZERO,
                Err(held) => return Err(held),
            }
        }
        Ok(())
    }

    fn is_at_rest(&self) -> Result<(), String> {
        let router = self.router.lock().clone();
        let router = router.ok_or("the router does not run")?;
        invariants::at_rest(&router)?;
        let engines = self.engines.lock();
        engines.values().try_for_each(invariants::engine_at_rest)
    }

    /// Begins and ends each fault at its time.
    fn play_faults(&mut self) -> Result<Duration, String> {
        let faults = self.plan.faults.clone();
        let begins = faults.iter().enumerate().map(|(nr, f)| (f.at, true, nr));
        let ends = faults
            .iter()
            .enumerate()
            .map(|(nr, f)| (f.at + f.lasts, false, nr));
        let mut turns: Vec<_> = begins.chain(ends).collect();
        turns.sort_unstable();
        for (at, begins, nr) in turns {
            self.run_until(at)?;
            if begins {
                faults[nr].begin(&mut self.world, &self.places);
            } else {
                faults[nr].end(&mut self.world, &self.places);
            }
        }
        self.world.network.state.lock().links.mend_all();
        Ok(self.world.now)
    }

    fn run_until(&mut self, to: Duration) -> Result<(), String> {
        while self.world.now < to {
            self.world.run((self.world.now + CHECK_INTERVAL).min(to));
            let router = self.router.lock().clone();
            self.health.look(&self.world, &self.places);
            if let Some(router) =
                router.filter(|_| self.world.host(self.places.router).is_running())
            {
                invariants::bounded(&router, &self.plan, self.world.now)?;
                self.health.is_truth(&router, &self.plan, self.world.now)?;
            }
        }
        Ok(())
    }
}

/// The address of the `nr`th host.
fn address(nr: usize) -> IpAddr {
    let last = u8::try_from(nr + 1).expect("a simulation has few hosts");
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn worker_software(plan: &Plan, role: Role, nr: usize, kv: &Kv, engines: &Engines) -> Software {
    let Some(shape) = plan.engines else {
        let kv = Arc::clone(kv);
        let role = if role == Role::Prefill {
            "prefill"
        } else {
            "decode"
        };
        let token_time = plan.token_time;
        return Box::new(move || worker::run(role, Arc::clone(&kv), token_time).boxed());
    };
    let engines = Arc::clone(engines);
    Box::new(move || {
        let engines = Arc::clone(&engines);
        let show = move |engine| drop(engines.lock().insert(nr, engine));
        engine::run(role, address(nr), shape, show).boxed()
    })
}

fn router_software(plan: &Plan, shown: &Shown) -> Software {
    let mut flags = vec!["pd-router".to_owned(), "--pd-disaggregation".to_owned()];
    flags.extend(plan.router_flags.iter().cloned());
    let port = API_PORT.to_string();
    flags.extend(["--port".to_owned(), port]);
    let url = |nr: usize| format!("http://{}:{}", address(nr), worker::PORT);
    for nr in 0..plan.prefills {
        flags.extend(["--prefill".to_owned(), url(nr), "8998".to_owned()]);
    }
    for nr in plan.prefills..plan.prefills + plan.decodes {
        flags.extend(["--decode".to_owned(), url(nr)]);
    }
    let shown = Arc::clone(shown);
    Box::new(move || {
        let (flags, shown) = (flags.clone(), Arc::clone(&shown));
        async move {
            let args = Args::try_parse_from(flags).expect("the flags are the router's");
            let config = args.into_config().expect("the flags agree");
            let server = Server::bind(config).await.expect("the ports are free");
            *shown.lock() = Some(Arc::clone(&server.router));
            let never = std::future::pending();
            let ended = server.run(never).await;
            tracing::error!(?ended, "the router ended");
        }
        .boxed()
    })
}

fn client_software(plan: &Plan, answers: &Answers) -> Software {
    let router = (address(plan.prefills + plan.decodes), API_PORT);
    let asks: Vec<Ask> = plan.asks.clone();
    let limit = plan.request_timeout + CLIENT_SLACK;
    let answers = Arc::clone(answers);
    Box::new(move || client::run(router, asks.clone(), limit, Arc::clone(&answers)).boxed())
}

fn late_client_software(plan: &Plan, answers: &Answers) -> Software {
    let router = (address(plan.prefills + plan.decodes), API_PORT);
    let asks = plan.late_asks.clone();
    let limit = plan.request_timeout + CLIENT_SLACK;
    let answers = Arc::clone(answers);
    Box::new(move || client::run_in_turn(router, asks.clone(), limit, Arc::clone(&answers)).boxed())
}
