//! What files of observations say of each request, both legs together.

use crate::observations::{EXTENSION, Observations};
use anyhow::{Context, Result, ensure};
use pd_engine::engine::{GenerateRequest, LogprobOptions};
use pd_engine::grammar::{Grammar, GrammarSource};
use pd_engine::observe::{Admitted, ObservedEngine, Point};
use pd_protocol::Role;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) struct Recordings {
    /// One of those that recorded; all of them mean the same by their KV.
    pub(super) engine: ObservedEngine,
    /// In the order in which they were admitted, file by file.
    pub(super) requests: Vec<Recording>,
}

/// A request.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) rid: String,
    pub(super) room: Option<u64>,
    /// By the leg's role.
    admitted: Vec<(Role, Admitted)>,
    /// Of both legs, but for steps that cannot be computed again.
    pub(super) points: Vec<Point>,
}

/// Legs of a request have one room; a request without is known to its engine by a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Room(u64),
    OfFile(usize, u64),
}

// === impl Recordings ===

impl Recordings {
    /// # Errors
    /// When a file is none of observations, or two were recorded with different models.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut of_all: Option<ObservedEngine> = None;
        let mut order: BTreeMap<Key, usize> = BTreeMap::new();
        let mut requests: Vec<Recording> = Vec::new();
        for (file, path) in files(paths)?.iter().enumerate() {
            let Some(Observations { engine, seen }) = Observations::read(path)? else {
                tracing::warn!(path = %path.display(), "skipped a file without observations: its engine has not started");
                continue;
            };
            let first = of_all.get_or_insert_with(|| engine.clone());
            ensure!(
                first.kv_compat == engine.kv_compat,
                "{} was recorded with another model, dtype or page size than the files before it; replay them apart",
                path.display()
            );
            for observation in seen {
                let own = Key::OfFile(file, observation.request);
                let key = observation.room.map_or(own, Key::Room);
                let place = *order.entry(key).or_insert_with(|| {
                    requests.push(Recording {
                        rid: observation.rid,
                        room: observation.room,
                        admitted: Vec::new(),
                        points: Vec::new(),
                    });
                    requests.len() - 1
                });
                let request = &mut requests[place];
                match observation.point {
                    Point::Admitted(admitted) => request.admitted.push((engine.role, admitted)),
                    point @ (Point::Computed(_)
                    | Point::BeforeSend(_)
                    | Point::Sent { .. }
                    | Point::AfterRestore(_)
                    | Point::Step { .. }) => request.points.push(point),
                }
            }
        }
        requests.retain(|request| !request.admitted.is_empty());
        for request in requests.iter_mut().filter(|it| it.drew_otherwise()) {
            request.drop_steps_of_decode();
        }
        Ok(Self {
            engine: of_all
                .context("no file has observations: no engine that wrote them has started")?,
            requests,
        })
    }
}

/// Folders stand for the files of observations in them.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found =
            in_folder(path).with_context(|| format!("cannot list {}", path.display()))?;
        ensure!(
            !found.is_empty(),
            "{} holds no file of observations (*.{EXTENSION})",
            path.display()
        );
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

fn in_folder(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = folder.read_dir()?.map(|entry| Ok(entry?.path()));
    let paths: std::io::Result<Vec<PathBuf>> = entries.collect();
    let is_of_ours = |path: &PathBuf| path.extension().is_some_and(|it| it == EXTENSION);
    Ok(paths?.into_iter().filter(is_of_ours).collect())
}

// === impl Recording ===

impl Recording {
    pub(super) fn name(&self) -> String {
        match self.room {
            Some(room) => format!("room {room}, rid {}", self.rid),
            None => format!("rid {}", self.rid),
        }
    }

    /// Tokens of prompt and recorded answer.
    pub(super) fn len(&self) -> usize {
        let prompt = self.leg().map_or(0, |leg| leg.input_ids.len());
        prompt + self.steps().max(1)
    }

    /// What is computed: as many tokens as were recorded, drawn from the recorded seed.
    ///
    /// # Errors
    /// When no leg recorded that it was admitted, and when its grammar cannot be read or compiled.
    pub(super) fn request(
        &self,
        compile: impl FnOnce(GrammarSource) -> Result<Grammar>,
    ) -> Result<GenerateRequest> {
        let leg = self.leg().context("no leg was admitted")?;
        let grammar = leg.grammar.as_ref().map(|grammar| {
            let source = grammar.source().context("its grammar cannot be read")?;
            compile(source).context("its grammar cannot be compiled")
        });
        let mut sampling = leg.sampling.clone();
        let recorded = u32::try_from(self.steps().max(1)).unwrap_or(u32::MAX);
        let wanted = sampling.max_new_tokens.unwrap_or(u32::MAX);
        let max_new_tokens = wanted.min(recorded);
        sampling.max_new_tokens = Some(max_new_tokens);
        sampling.min_new_tokens = sampling.min_new_tokens.min(max_new_tokens);
        sampling.seed = Some(leg.seed);
        Ok(GenerateRequest {
            rid: self.rid.clone(),
            input_ids: leg.input_ids.clone(),
            sampling,
            logprobs: LogprobOptions::default(),
            grammar: grammar.transpose()?,
            bootstrap: None,
            choice: leg.choice,
        })
    }

    /// Whether decode may have drawn from another seed than prefill drew the first token from: without `--random-seed` each
    /// worker has its own.
    pub(super) fn drew_otherwise(&self) -> bool {
        let Some(leg) = self.leg().filter(|leg| !leg.sampling.is_greedy()) else {
            return false;
        };
        let is_decode = |(role, _): &(Role, Admitted)| *role == Role::Decode;
        if self.admitted.iter().all(is_decode) {
            return leg.sampling.seed.is_none();
        }
        self.admitted
            .iter()
            .any(|(_, other)| other.seed != leg.seed)
    }

    /// The leg whose seed the first token was drawn from: prefill's, where it is known.
    fn leg(&self) -> Option<&Admitted> {
        let draws_first = |(role, _): &&(Role, Admitted)| *role != Role::Decode;
        let found = self.admitted.iter().find(draws_first);
        found.or(self.admitted.first()).map(|(_, leg)| leg)
    }

    fn steps(&self) -> usize {
        let is_step = |point: &&Point| matches!(point, Point::Step { .. });
        self.points.iter().filter(is_step).count()
    }

    fn drop_steps_of_decode(&mut self) {
        let prompt_len = self.leg().map_or(0, |leg| leg.input_ids.len());
        let is_of_decode = |point: &Point| matches!(point, Point::Step { position, .. } if *position >= prompt_len);
        self.points.retain(|point| !is_of_decode(point));
    }
}

#[cfg(test)]
mod tests;
