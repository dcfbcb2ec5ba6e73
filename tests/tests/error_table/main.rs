//! Every reply that Redis may give, and what becomes of an acquire, a renewal and a release that meets it: scripted through the proxy,
//! and for each that a server can be brought to, from a server. Where each reply comes from a server:
//!
//! | reply | test |
//! |---|---|
//! | NOSCRIPT, READONLY, MASTERDOWN, NOREPLICAS, MISCONF, OOM, NOPERM, "can't run this command", NOAUTH | `servers::real_servers_in_trouble_are_what_the_table_says_and_holds_survive_them` |
//! | BUSY | `servers::a_busy_server_is_waited_for` |
//! | LOADING | `servers::a_server_that_loads_is_waited_for` |
//! | CROSSSLOT; MOVED to a client that knows no Cluster | `servers::a_server_of_a_cluster_tells_a_client_of_one_server_so` |
//! | MOVED, ASK, TRYAGAIN | `cluster::moving`, whose tests count them at the servers |
//! | CLUSTERDOWN | `cluster::replies::fault_a_cluster_that_is_down_is_an_outage_that_passes` |
//! | WRONGPASS | `bad_input::servers_that_say_no_say_why`, `redis_credentials::a_rotated_password_is_used_from_the_next_connection_on` |
//! | WRONGTYPE | `bad_input::what_is_somebody_elses_is_neither_taken_nor_deleted` |
//! | I/O error, end of the stream, no answer | `fault_sweep`, at every step of every scenario |
//! | "can't access at least one of the keys", UNKILLABLE, replies that nobody knows | none: all keys of our scripts are declared and none runs on. `scripted` alone |

mod scripted;
mod servers;

use std::time::Duration;

use distlock::{ErrorKind, LockError};

const LIMIT: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(3);

/// What an acquire does about a reply. Renewals and releases go on trying after every one of them, until the lease would have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acquire {
    /// Asks again within its budget; this is what it says at the end.
    Repeats(ErrorKind),
    /// Says this at once.
    Fails(ErrorKind),
    /// Nobody notices.
    Mends,
}

/// The text has the server's own words, also if the last try had no time for an answer; of another type under the key it says
/// what that means.
fn says_why(error: &LockError, line: &str) {
    let text = error.to_string();
    let words = match line[1..].split(' ').next().unwrap() {
        "WRONGTYPE" => "another kind of lock (or by another program)",
        code => code,
    };
    assert!(text.contains(words), "{line}: {text}");
    assert!(error.key().is_some(), "{line}: {text}");
}
