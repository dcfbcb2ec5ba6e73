//! The kinds of failure, with code and remedy: the field's trouble list.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, retry: $retry:literal;)*) => {
        /// What kind of failure a [`LockError`](crate::LockError) is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            /// Every kind, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable code.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Whether trying again later may help without any change.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }

            const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// `BUSY`: a single try found the lock held. Wait for it, or do something else.
    Busy = "BUSY", "already held", retry: true;
    /// `CLOCK_DRIFT`: acquiring took so long that too little of the lease was left; it was given back. The store or
    /// the network is slow compared with the ttl: raise the ttl.
    ClockDrift = "CLOCK_DRIFT", "validity used up while acquiring", retry: true;
    /// `CONCURRENT_MODIFICATION`: a resource has already seen a larger fencing token, so the work of this hold is stale; or its
    /// version was another one at each attempt of an optimistic update.
    ConcurrentModification = "CONCURRENT_MODIFICATION", "others have written since", retry: false;
    /// `CONFIG`: a wrong URL, parameter, key, ttl or build feature. The text says which and how to mend it.
    Config = "CONFIG", "wrong configuration", retry: false;
    /// `CONNECTION`: the store can't be reached or doesn't serve now. Not the same as busy: nothing is known about the
    /// lock.
    Connection = "CONNECTION", "store not reachable", retry: true;
    /// `DEADLOCK`: this task holds the key already and would wait for itself, alone or in a circle of waiting tasks. Use
    /// `reentrant`, or don't nest; take several locks in one order.
    Deadlock = "DEADLOCK", "would wait for itself", retry: false;
    /// `IN_FLIGHT`: an execution under this idempotency key is under way, and was for the whole wait. Ask again later.
    InFlight = "IN_FLIGHT", "an execution under this key is in flight", retry: true;
    /// `KEY_CONFLICT`: the name holds something else in the store, or another kind of lock. Nothing was deleted; choose
    /// another key or namespace.
    KeyConflict = "KEY_CONFLICT", "the key is used for something else", retry: false;
    /// `KEY_REUSED`: the idempotency key was used for other arguments before. Choose keys that name the operation.
    KeyReused = "KEY_REUSED", "the key was used for something else before", retry: false;
    /// `LIMIT_MISMATCH`: the semaphore is in use with another limit, or the latch counts from another number. Use one number
    /// everywhere; a semaphore's can be changed on purpose with `resize`.
    LimitMismatch = "LIMIT_MISMATCH", "in use with another limit", retry: false;
    /// `WATCHDOG_RENEWAL_FAILED`: the lease was lost under the holder. Check what was done since, with the fencing token
    /// at the resource.
    Lost = "WATCHDOG_RENEWAL_FAILED", "lock lost", retry: false;
    /// `NOT_REPLICATED`: too few replicas confirmed the grant; it was given back.
    NotReplicated = "NOT_REPLICATED", "not confirmed by enough replicas", retry: true;
    /// `UNLOCK_FAILED`: the lock wasn't ours any more at the release (expired, taken over, or released by force).
    NotHeld = "UNLOCK_FAILED", "lock not held", retry: false;
    /// `OUTCOME_UNKNOWN`: an earlier execution under this idempotency key ended without a result; nothing runs again until
    /// somebody has looked. The operator guide says how.
    OutcomeUnknown = "OUTCOME_UNKNOWN", "the outcome of an earlier execution is not known", retry: false;
    /// `OUT_OF_MEMORY`: the store refuses writes for lack of memory.
    OutOfMemory = "OUT_OF_MEMORY", "store out of memory", retry: true;
    /// `PERMISSION`: the store's user may not do this, or the credentials are wrong. The operator guide has the rights that it needs.
    Permission = "PERMISSION", "not permitted", retry: false;
    /// `QUORUM_NOT_REACHED`: too few of the independent nodes said yes; the text has each node's vote.
    Quorum = "QUORUM_NOT_REACHED", "no quorum", retry: true;
    /// `QUOTA_EXCEEDED`: the scope has as many idempotency records, or keeps as many bytes, as it may.
    QuotaExceeded = "QUOTA_EXCEEDED", "the scope's quota of records is used up", retry: true;
    /// `RECORD_UNREADABLE`: an idempotency record can't be read: another version wrote it, its key is missing here, or it was
    /// changed. It says that something was executed, so nothing runs.
    RecordUnreadable = "RECORD_UNREADABLE", "the record can't be read", retry: true;
    /// `RESULT_NOT_RETAINED`: it was executed, its result was not kept (too large, or not encodable). Nothing runs again.
    ResultNotRetained = "RESULT_NOT_RETAINED", "executed before, its result was not kept", retry: false;
    /// `SCRIPT`: the store refused or failed a script in an unexpected way.
    Script = "SCRIPT", "script failed", retry: false;
    /// `SHUTDOWN`: the manager is shutting down and grants nothing any more.
    Shutdown = "SHUTDOWN", "manager shut down", retry: false;
    /// `SUPERSEDED`: the execution outlived its claim; its result was refused and doesn't count.
    Superseded = "SUPERSEDED", "the execution was superseded", retry: false;
    /// `LOCK_TIMEOUT`: the lock was held by others for the whole wait budget.
    Timeout = "LOCK_TIMEOUT", "wait budget used up", retry: true;
    /// `TOO_MANY_WAITERS`: the bound of waiting tasks per key or process is reached.
    TooManyWaiters = "TOO_MANY_WAITERS", "too many waiters", retry: true;
    /// `UNSUPPORTED`: the store can't do this kind of lock; `guarantees()` says what it can.
    Unsupported = "UNSUPPORTED", "not supported by this store", retry: false;
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
