//! What a request looks like, by the present algorithm and by older ones.

use crate::backend::Fingerprint;

/// The fingerprints of one request: the one that a new record gets, and those of older algorithms whose records may still be
/// there. A rolling deploy compares a record with the algorithm that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    current: Fingerprint,
    older: Vec<Fingerprint>,
}

impl Fingerprints {
    /// Only the present algorithm's.
    #[must_use]
    pub const fn new(current: Fingerprint) -> Self {
        Self { current, older: Vec::new() }
    }

    /// And an older one's.
    #[must_use]
    pub fn or(mut self, older: Fingerprint) -> Self {
        self.older.push(older);
        self
    }

    /// The one for new records.
    #[must_use]
    pub const fn current(&self) -> Fingerprint {
        self.current
    }

    /// Whether a record with this fingerprint is about this request; `None` if its version is not known here.
    #[must_use]
    pub fn matches(&self, stored: &Fingerprint) -> Option<bool> {
        let same =
            std::iter::once(&self.current).chain(&self.older).find(|one| one.version == stored.version)?;
        Some(same.digest == stored.digest)
    }
}

impl From<Fingerprint> for Fingerprints {
    fn from(current: Fingerprint) -> Self {
        Self::new(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_compared_by_the_algorithm_that_made_it() {
        let print = |version, digit| Fingerprint { version, digest: [digit; 32] };
        let request = Fingerprints::new(print(2, 20)).or(print(1, 10));
        assert_eq!(request.matches(&print(2, 20)), Some(true));
        assert_eq!(request.matches(&print(1, 10)), Some(true));
        assert_eq!(request.matches(&print(1, 20)), Some(false));
        assert_eq!(request.matches(&print(3, 20)), None, "of a newer version: neither match nor mismatch");
    }
}
