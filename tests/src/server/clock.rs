//! A server whose wall clock a test can move.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use super::RedisServer;

/// Goes between a server and the C library.
const SOURCE: &str = include_str!("clock.c");

/// The file that says how far the clock is off.
pub(super) fn shift_file(folder: &Path) -> PathBuf {
    folder.join("clock-shift")
}

/// Makes what has to be preloaded, and the file.
pub(super) fn prepare(folder: &Path) -> anyhow::Result<PathBuf> {
    if !cfg!(target_os = "linux") {
        bail!("a server's clock can be moved on Linux only");
    }
    let library = folder.join("clock.so");
    if !library.exists() {
        let source = folder.join("clock.c");
        fs::write(&source, SOURCE)?;
        fs::write(shift_file(folder), 0_i64.to_ne_bytes())?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let output =
            compiler.output().context("`cc` isn't installed; run `apt-get install -y gcc libc6-dev`")?;
        if !output.status.success() {
            bail!("cc: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(library)
}

/// Moves the clock of the server in this folder.
pub(super) fn shift(folder: &Path, seconds: i64) {
    let file = shift_file(folder);
    assert!(file.exists(), "start it with movable_clock()");
    // In place: the server has it mapped.
    let mut options = fs::OpenOptions::new();
    let written = options
        .write(true)
        .open(file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &(seconds * 1_000_000).to_ne_bytes()));
    written.expect("a file of ours");
}

impl RedisServer {
    /// From now on the server's wall clock is off by so many seconds, which may be negative.
    ///
    /// # Panics
    /// If it wasn't started with [`movable_clock`](super::RedisOptions::movable_clock).
    pub fn shift_clock(&self, seconds: i64) {
        shift(self.folder(), seconds);
    }
}
