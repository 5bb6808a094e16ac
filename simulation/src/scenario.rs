//! One seed from its plan to its judgement.

use crate::client::{Answers, Outcome};
use crate::faults::Places;
use crate::health::Health;
use crate::invariants::{self, Bounds};
use crate::libc;
use crate::plan::{ACTIVE, Plan};
use crate::software::{self, CLIENT_SLACK, Shown, Workers};
use crate::trace::Trace;
use crate::world::World;
use pd_protocol::Role;
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

/// Bounds are checked this often.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// After everything is well again, until nothing may be held any more.
const REST: Duration = Duration::from_secs(40);
/// Nothing must be held for so long before a run ends sooner.
const REST_STEADY: Duration = Duration::from_secs(3);
const REST_INTERVAL: Duration = Duration::from_millis(500);
/// The longest that a circuit is open by the plan's flags, and that a question to a peer waits which was cut off.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// Until enough requests have reached each worker by chance.
const LATE_ROUNDS: usize = 20;

/// Panics of this process; the product catches some of them.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Runs a seed on a thread of its own.
#[must_use]
pub fn run(seed: u64, prints: bool) -> Report {
    let simulated = std::thread::Builder::new()
        .name("simulation".to_owned())
        .spawn(move || {
            libc::begin(seed);
            let scenario = Scenario::new(seed, prints);
            count_panics();
            scenario.run()
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
    workers: Workers,
    health: Health,
    bounds: Bounds,
}

// === impl Scenario ===

impl Scenario {
    fn new(seed: u64, prints: bool) -> Self {
        let plan = Plan::draw(seed);
        if prints {
            eprintln!("{plan:#?}");
        } else {
            plan.log.begin().expect("standard error can be another");
        }
        let mut world = World::new(seed, plan.links(), Trace::new(prints));
        let workers = Workers::default();
        let mut pool = |role: Role, first: usize, count: usize| -> Vec<_> {
            let nrs = first..first + count;
            nrs.map(|nr| world.add(software::of_worker(&plan, role, nr, &workers)))
                .collect()
        };
        let prefills = pool(Role::Prefill, 0, plan.prefills);
        let decodes = pool(Role::Decode, plan.prefills, plan.decodes);
        let router = Shown::default();
        let router_host = world.add(software::of_router(&plan, &router));
        let answers = Answers::default();
        let client = world.add(software::of_client(&plan, &answers));
        let late_answers = Answers::default();
        let late_client = world.add(software::of_late_client(&plan, &late_answers));
        let network = Arc::clone(&world.network);
        let stranger = world.add(software::of_stranger(&plan, &network));
        Self {
            plan,
            world,
            places: Places {
                router: router_host,
                prefills,
                decodes,
                client,
                late_client,
                stranger,
                ills: workers.ills.clone(),
                shown: Arc::clone(&router),
                specs: Arc::default(),
            },
            router,
            answers,
            late_answers,
            workers,
            health: Health::default(),
            bounds: Bounds::default(),
        }
    }

    fn run(mut self) -> Report {
        let broken = self.play().err();
        let panics = PANICS.load(Ordering::Relaxed);
        // What else is broken may follow from it.
        let broken = match panics {
            0 => broken,
            _ => Some(format!("{panics} panics")),
        };
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

    /// Everything is well, so every request must be answered by all workers, and circuits must close.
    fn ask_again(&mut self) -> Result<(), String> {
        if !self.plan.faults.is_empty() || self.has_open_circuit() {
            self.run_until(self.world.now + SETTLED_WITHIN)?;
        }
        for _ in 0..LATE_ROUNDS {
            self.ask_late()?;
            if !self.has_open_circuit() {
                return Ok(());
            }
        }
        let router = self.router.lock().clone();
        let workers = router.map(|router| router.workers()).unwrap_or_default();
        let open = workers.into_iter().filter(|worker| worker.circuit_open);
        let open: Vec<String> = open.map(|worker| worker.spec.id).collect();
        Err(format!(
            "all is well, and the circuit of {open:?} does not close"
        ))
    }

    /// Each when nothing of the last is left, since a circuit that is half open takes one request at a time.
    fn ask_late(&mut self) -> Result<(), String> {
        self.late_answers.lock().clear();
        let late = Arc::clone(&self.late_answers);
        for nr in 0..self.plan.late_asks.len() {
            self.run_while("a request is in flight", CLIENT_SLACK, Self::is_busy)?;
            self.world.boot(self.places.late_client);
            let limit = self.plan.request_timeout + CLIENT_SLACK * 2;
            self.run_while("a late request has no answer", limit, |_| {
                late.lock().len() <= nr
            })?;
        }
        let answers = late.lock().clone();
        for answer in &answers {
            self.world.network.note(answer);
        }
        invariants::answered(&self.plan, &answers)
    }

    fn run_while(
        &mut self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        let ends = self.world.now + limit;
        while holds(self) {
            if self.world.now >= ends {
                return Err(format!("all is well, and for {limit:?} {what}"));
            }
            self.run_until(self.world.now + CHECK_INTERVAL)?;
        }
        Ok(())
    }

    /// Whether the router has a leg of a request anywhere.
    fn is_busy(&self) -> bool {
        let router = self.router.lock().clone();
        let workers = router.map(|router| router.workers()).unwrap_or_default();
        workers.iter().any(|worker| worker.in_flight > 0)
    }

    fn has_open_circuit(&self) -> bool {
        let router = self.router.lock().clone();
        let workers = router.map(|router| router.workers()).unwrap_or_default();
        workers.iter().any(|worker| worker.circuit_open)
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
        invariants::knows(&router, &self.workers.boot_ids.lock())?;
        let engines = self.workers.engines.lock();
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
            let now = self.world.now;
            self.health.look(&self.world, &self.places);
            let engines = self.workers.engines.lock();
            self.health.are_let_go(&engines, &self.plan, now)?;
            drop(engines);
            self.bounds.hold(&self.plan, &self.answers.lock(), now)?;
            let runs = self.world.host(self.places.router).is_running();
            if let Some(router) = router.filter(|_| runs) {
                invariants::bounded(&router, &self.plan, now)?;
                self.health.is_truth(&router, &self.plan, now)?;
                self.health.are_spared(&router)?;
            }
        }
        Ok(())
    }
}
