//! Programs that refuse to run as root: then they run as an account of their own.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use anyhow::Context;

use super::child;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs as `user` if we are root, else as we are.
pub(super) fn command(user: &str, program: impl AsRef<OsStr>) -> Command {
    as_user(user, program.as_ref(), &[])
}

/// The same, and killed by the kernel when this process ends.
pub(super) fn mortal_command(user: &str, program: impl AsRef<OsStr>) -> Command {
    if is_root() {
        return as_user(user, program.as_ref(), &["--pdeathsig", "KILL"]);
    }
    child::mortal_command(program)
}

fn as_user(user: &str, program: &OsStr, more: &[&str]) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).args(more).arg(program);
    command
}

/// Makes `user` the owner of a file or folder, if we may.
pub(super) fn give(user: &str, path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if is_root() {
        chown(path, Some(id(user, "-u")?), Some(id(user, "-g")?))?;
    }
    Ok(())
}

/// Lets other users pass through a folder of ours.
pub(super) fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

fn id(user: &str, which: &str) -> anyhow::Result<u32> {
    let output = Command::new("id").args([which, user]).output().context("run id")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("no account {user}: its package makes it"))
}

/// The processes that this one has started.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Whether a process does nothing any more. Nobody may have asked for its end yet: an orphan's is for the first process to ask, and
/// in containers that is often one that never does.
pub(super) fn has_ended(pid: u32) -> bool {
    stat(pid, 0).is_none_or(|state| state == "Z")
}

fn parent_of(pid: u32) -> Option<u32> {
    stat(pid, 1)?.parse().ok()
}

/// Behind the name, which may hold blanks and brackets: state, parent.
fn stat(pid: u32, place: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(place).map(str::to_owned)
}
