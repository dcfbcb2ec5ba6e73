//! The guide: one page a question.
//!
//! Start with [getting started](getting_started); before you rely on a lock for something that must not happen twice, read
//! [guarantees and fencing](guarantees).

#[doc = include_str!("attribute.md")]
pub mod attribute {}

#[doc = include_str!("blocking.md")]
pub mod blocking {}

#[doc = include_str!("cancel_safety.md")]
pub mod cancel_safety {}

#[doc = include_str!("choosing_a_store.md")]
pub mod choosing_a_store {}

#[doc = include_str!("configuration.md")]
pub mod configuration {}

#[doc = include_str!("errors.md")]
pub mod errors {}

#[doc = include_str!("getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("idempotency.md")]
pub mod idempotency {}

#[doc = include_str!("kinds.md")]
pub mod kinds {}

#[doc = include_str!("migrating.md")]
pub mod migrating {}

#[doc = include_str!("observability.md")]
pub mod observability {}

#[doc = include_str!("shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("versions.md")]
pub mod versions {}

#[doc = include_str!("writing_a_store.md")]
pub mod writing_a_store {}
