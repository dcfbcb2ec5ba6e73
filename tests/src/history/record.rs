//! What a holder writes down.

use std::{fmt, io::Write};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in every process of this host.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.expect("it counts up from the start of the host") * 1_000_000_000
        + nanos.expect("a fraction of a second")
}

/// Records one hold on standard output: first `hold <id> <owner> <key> <token or -> <ns>`, then `valid <id> <ns>` for each
/// look.
#[derive(Debug)]
pub struct Recorder {
    id: String,
}

impl Recorder {
    /// Records a grant that `is_valid` confirms; `None`, and nothing recorded, if it has lapsed already.
    ///
    /// `owner` names who holds: holds of one owner may overlap. No blanks in `owner` and `key`.
    pub fn granted(
        owner: &str,
        key: &str,
        token: Option<u64>,
        is_valid: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let (now, valid) = look(is_valid);
        let id = format!("{}.{:x}", std::process::id(), now);
        let token: &dyn fmt::Display = token.as_ref().map_or(&"-", |token| token);
        valid.then(|| {
            emit(format_args!("hold {id} {owner} {key} {token} {now}"));
            Self { id }
        })
    }

    /// Looks once more; gives what `is_valid` said.
    pub fn look(&self, is_valid: impl FnOnce() -> bool) -> bool {
        let (now, valid) = look(is_valid);
        if valid {
            emit(format_args!("valid {} {now}", self.id));
        }
        valid
    }
}

/// The clock is read *before* the question: a hold that is valid then was valid at that time too, whatever pauses come between.
fn look(is_valid: impl FnOnce() -> bool) -> (u64, bool) {
    let now = monotonic_ns();
    (now, is_valid())
}

fn emit(line: fmt::Arguments<'_>) {
    // One write for the whole line: a process that is killed leaves whole lines. A closed pipe means that the test has gone.
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}
