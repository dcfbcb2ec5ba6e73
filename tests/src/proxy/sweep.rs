//! The faults that a sweep puts at each step of a scenario, and the server's own words for its refusals.

use super::rule::{Fault, Then};

/// Error lines of Redis 7.0, to the letter, for [`Fault::Answer`]. None of them has applied anything.
pub mod refusal {
    /// Starting up.
    pub const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
    /// Somebody's script runs for too long.
    pub const BUSY: &str =
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    /// The script isn't cached (any more).
    pub const NOSCRIPT: &str = "-NOSCRIPT No matching script. Please use EVAL.";
    /// A replica was asked to write.
    pub const READONLY: &str = "-READONLY You can't write against a read only replica.";
    /// A replica that lost its primary and may not serve what it has.
    pub const MASTERDOWN: &str =
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    /// Out of memory.
    pub const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
    /// The disk is full or gone.
    pub const MISCONF: &str = "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.";
    /// `min-replicas-to-write`.
    pub const NOREPLICAS: &str = "-NOREPLICAS Not enough good replicas to write.";
    /// Not logged in.
    pub const NOAUTH: &str = "-NOAUTH Authentication required.";
    /// The user may not touch the key.
    pub const NOPERM: &str =
        "-NOPERM this user has no permissions to access one of the keys used as arguments";
    /// Some slots are without a primary.
    pub const CLUSTERDOWN: &str = "-CLUSTERDOWN The cluster is down";
    /// A slot is on the move.
    pub const TRYAGAIN: &str = "-TRYAGAIN Multiple keys request during rehashing of slot";
}

/// The faults of a sweep with their names: a scenario is recorded once without faults, then run again with each of these at each
/// of its steps (`Rule::new(When::work(), fault).skip(step).once()`). A paused server is the one that a proxy can't play.
pub fn sweep() -> Vec<(&'static str, Fault)> {
    let answer = |line: &str| Fault::Answer(line.to_owned());
    vec![
        ("lost before apply, closed", Fault::DropRequest(Then::Close)),
        ("lost before apply, silent", Fault::DropRequest(Then::Silence)),
        ("cut in the middle of the request", Fault::TruncateRequest(20)),
        ("applied and reply lost, closed", Fault::DropReply(Then::Close)),
        ("applied and reply lost, silent", Fault::DropReply(Then::Silence)),
        ("applied and reset in the middle of the reply", Fault::TruncateReply(1)),
        ("held until released", Fault::Hold),
        ("reply held until released", Fault::HoldReply),
        ("LOADING", answer(refusal::LOADING)),
        ("BUSY", answer(refusal::BUSY)),
        ("NOSCRIPT", answer(refusal::NOSCRIPT)),
        ("READONLY", answer(refusal::READONLY)),
        ("OOM", answer(refusal::OOM)),
        ("MISCONF", answer(refusal::MISCONF)),
        ("NOAUTH", answer(refusal::NOAUTH)),
        ("NOPERM", answer(refusal::NOPERM)),
    ]
}
