//! Idempotency records as the layers use them: claims that renew themselves, settlements that aren't forgotten.

mod guard;
mod records;

pub use guard::ClaimGuard;
pub use records::{ClaimRequest, Claimed, Records};
