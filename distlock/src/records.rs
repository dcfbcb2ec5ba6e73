//! Idempotency records, for those who build on them without the layer: a message consumer, say.
//!
//! A record goes from *absent* to *in flight* to *completed*, *tombstone* or *unknown*. Each step is one atomic operation in
//! the store, compared on the claim's owner and fence, and judged by the store's clock. The claim is renewed while it is held.
//!
//! ```
//! use std::time::Duration;
//! use distlock::records::{ClaimRequest, Claimed, CrashPolicy, Fingerprint, RecordKey, RecordNote, RecordState, Settlement};
//! use distlock::{LockManager, Ttl};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock::LockError> {
//! let records = LockManager::connect("memory:").await?.records()?;
//! let day = Duration::from_secs(24 * 60 * 60);
//! let message = ClaimRequest {
//!     key: RecordKey::derive("payments", &[b"message-17"]),
//!     fingerprint: Fingerprint { version: 1, digest: [7; 32] }, // of the payload
//!     lease: Ttl::DEFAULT,
//!     after_crash: CrashPolicy::Reject,
//!     retain: day,
//!     note: RecordNote::new().with_label("message-17"), // for people
//! };
//!
//! let Claimed::Execute(claim) = records.claim(message.clone()).await? else { panic!("the first one executes") };
//! // do the work; pass claim.fence() to what it writes
//! claim.settle(Settlement::Complete { response: "paid".into(), retain: day }).await?;
//!
//! let Claimed::Present(record) = records.claim(message).await? else { panic!("the second one finds the result") };
//! assert!(matches!(record.state, RecordState::Completed { response } if response == "paid"));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "seal")]
#[doc(inline)]
pub use distlock_runtime::SealKeys;
#[doc(inline)]
pub use distlock_runtime::{
    ClaimGuard, ClaimRequest, Claimed, CrashPolicy, Executions, Fingerprint, Fingerprints, Packing, Purged,
    Quota, Record, RecordFilter, RecordInfo, RecordKey, RecordNote, RecordScope, RecordState, RecordStatus,
    Records, Resolved, Settled, Settlement, Standing,
};
#[cfg(feature = "idempotent")]
#[doc(inline)]
pub use distlock_runtime::{DetachedCall, Idempotent, OnCancel, OnFailure};
