//! The first breath of a pod's process: `pd-operator run-child PARENT PROGRAM ARGS…` ties its life
//! to the operator's and then becomes the program, which keeps the tie.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Why a child did not become its program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    #[error(
        "cannot tie the life of {program} to the operator's: prctl(PR_SET_PDEATHSIG): {source}"
    )]
    Tie {
        program: PathBuf,
        source: rustix::io::Errno,
    },
    #[error("the operator ended before {program} began")]
    Orphaned { program: PathBuf },
    #[error("cannot run {program}: {source}")]
    Exec {
        program: PathBuf,
        source: std::io::Error,
    },
}

/// Becomes `program`; returns only if that fails. When the operator dies, however it dies, the
/// program gets a SIGTERM and drains.
pub(crate) fn become_program(parent: i32, program: PathBuf, args: Vec<OsString>) -> ChildError {
    if let Err(source) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return ChildError::Tie { program, source };
    }
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return ChildError::Orphaned { program };
    }
    let source = Command::new(&program).args(args).exec();
    ChildError::Exec { program, source }
}
