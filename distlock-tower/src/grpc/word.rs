//! A handler's word about its execution, where it can't set an extension: in the metadata of an error.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use distlock_runtime::problem::Outcome;
use http::HeaderMap;

/// The metadata key by which a handler says what it knows about its execution, where it can't set an
/// [`Outcome`] in the response's extensions: with an error.
///
/// ```
/// # mod distlock { pub use distlock_tower as tower; }
/// use distlock::tower::{Outcome, grpc};
/// # struct Metadata;
/// # impl Metadata { fn insert(&mut self, _: &'static str, _: &'static str) {} }
/// # struct Status; impl Status { fn metadata_mut(&mut self) -> Metadata { Metadata } }
/// # let mut status = Status;
/// // let mut status = tonic::Status::unavailable("the bank is closed"); the value wants a `MetadataValue::from_static`
/// status.metadata_mut().insert(grpc::OUTCOME, grpc::outcome(Outcome::NotStarted));
/// ```
///
/// The word counts in the process that said it and nowhere else: a service that passes an error of another one on, metadata and
/// all, says nothing about itself by that.
pub const OUTCOME: &str = "idempotency-outcome";

const OUTCOMES: [(Outcome, &str); 3] =
    [(Outcome::Final, "final"), (Outcome::NotStarted, "not-started"), (Outcome::Unknown, "unknown")];

/// The value for [`OUTCOME`].
#[must_use]
pub fn outcome(outcome: Outcome) -> &'static str {
    let place = OUTCOMES.iter().position(|(other, _)| *other == outcome);
    // An outcome that isn't known here: to run nothing again is safe.
    &words()[place.unwrap_or(OUTCOMES.len() - 1)]
}

/// The word of a handler of this process.
pub(super) fn in_metadata(metadata: &HeaderMap) -> Option<Outcome> {
    let word = metadata.get(OUTCOME)?;
    let place = words().iter().position(|other| word == other)?;
    Some(OUTCOMES[place].0)
}

/// With a mark of this process.
fn words() -> &'static [String; 3] {
    static WORDS: OnceLock<[String; 3]> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mark = RandomState::new().build_hasher().finish();
        OUTCOMES.map(|(_, name)| format!("{name};{mark:016x}"))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_word_of_this_process_counts() {
        let read = |word| {
            in_metadata(&HeaderMap::from_iter([(
                http::HeaderName::from_static(OUTCOME),
                HeaderValue::from_static(word),
            )]))
        };
        for (known, _) in OUTCOMES {
            assert_eq!(read(outcome(known)), Some(known));
        }
        for forwarded in ["not-started", "not-started;0123456789abcdef", ""] {
            assert_eq!(read(forwarded), None, "{forwarded}");
        }
        assert_eq!(in_metadata(&HeaderMap::new()), None);
    }
}
