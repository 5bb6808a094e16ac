//! Open files: as many as the process may have, and as many connections as fit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files beside those of connections: listeners, epoll, the model, logs, the control plane.
const RESERVED: u64 = 48;
/// Where the process may open few files, at least so many connections are taken.
const LEAST: usize = 4;

/// Raises the number of files that this process may open to the most that it may ask for. Programs that use `select`
/// need the low default; ours do not.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, ?current, ?maximum, "could not raise the limit of open files");
    }
}

/// How many connections fit into the files that this process may open, if each needs `each` of them, `wanted` at most.
#[must_use]
pub fn connections_for(wanted: usize, each: u64) -> usize {
    fitting(getrlimit(Resource::Nofile).current, wanted, each)
}

fn fitting(files: Option<u64>, wanted: usize, each: u64) -> usize {
    let Some(files) = files else {
        return wanted;
    };
    let fit = files.saturating_sub(RESERVED) / each.max(1);
    usize::try_from(fit)
        .unwrap_or(usize::MAX)
        .clamp(LEAST.min(wanted), wanted)
}

#[cfg(test)]
mod tests;
