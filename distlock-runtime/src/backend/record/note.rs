//! What a record says to people: whose it is, what it is about, where it was executed.

use std::fmt;

use sha2::{Digest, Sha256};

/// The longest label that is kept, in bytes.
const LONGEST_LABEL: usize = 200;
/// The longest trace that is kept, in bytes: a W3C `traceparent` has 55.
const LONGEST_TRACE: usize = 128;

/// Whose a record is: a principal or a tenant, as a digest. Records can be listed and purged by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordScope([u8; 16]);

impl RecordScope {
    /// The scope that these parts name; no choice of text shifts a border between them.
    ///
    /// A layer's `Scope::new("tenant-7").and("user-42")` is `RecordScope::derive(&[b"tenant-7", b"user-42"])`.
    #[must_use]
    pub fn derive(parts: &[&[u8]]) -> Self {
        let mut framed = Vec::new();
        for part in parts {
            framed.extend_from_slice(
                &u64::try_from(part.len()).expect("a length fits in 64 bits").to_be_bytes(),
            );
            framed.extend_from_slice(part);
        }
        Self::of_framed(&framed)
    }

    /// The scope of parts that have their lengths in front of them already.
    #[doc(hidden)]
    #[must_use]
    pub fn of_framed(parts: &[u8]) -> Self {
        let digest: [u8; 32] =
            Sha256::new().chain_update(b"distlock.scope.1").chain_update(parts).finalize().into();
        Self(*digest.first_chunk().expect("32 bytes begin with 16"))
    }

    /// 32 hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest itself.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for RecordScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordScope({}…)", &self.to_hex()[..8])
    }
}

/// What a claim leaves in its record for people; nothing is decided by it but what a purge takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordNote {
    scope: Option<RecordScope>,
    trace: Option<String>,
    label: Option<String>,
}

impl RecordNote {
    /// It says nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { scope: None, trace: None, label: None }
    }

    /// Whose it is.
    #[must_use]
    pub const fn with_scope(mut self, scope: RecordScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Where it is executed: a `traceparent`, or another name for a trace. One that isn't made of visible ASCII, or that has more
    /// than 128 bytes, is left out.
    #[must_use]
    pub fn with_trace(mut self, trace: &str) -> Self {
        let is_fit = !trace.is_empty()
            && trace != "-"
            && trace.len() <= LONGEST_TRACE
            && trace.bytes().all(|byte| byte.is_ascii_graphic());
        self.trace = is_fit.then(|| trace.to_owned());
        self
    }

    /// What it is about. Cut after 200 bytes, control characters become `_`.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        let end = label.floor_char_boundary(LONGEST_LABEL);
        let clean: String = label[..end].chars().map(|c| if c.is_control() { '_' } else { c }).collect();
        self.label = (!clean.is_empty()).then_some(clean);
        self
    }

    /// Whose it is.
    #[must_use]
    pub const fn scope(&self) -> Option<RecordScope> {
        self.scope
    }

    /// Where it was executed.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// What it is about.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// As stores keep it: `<scope, or -> <trace, or -> <label>`; empty if it says nothing.
    #[must_use]
    pub fn to_text(&self) -> String {
        if *self == Self::new() {
            return String::new();
        }
        let scope = self.scope.map_or_else(|| "-".to_owned(), RecordScope::to_hex);
        format!("{scope} {} {}", self.trace().unwrap_or("-"), self.label().unwrap_or_default())
    }

    /// Reads what [`to_text`](Self::to_text) wrote. What can't be read says nothing.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut parts = text.splitn(3, ' ');
        let [Some(scope), Some(trace), Some(label)] = [parts.next(), parts.next(), parts.next()] else {
            return Self::new();
        };
        let note = Self { scope: RecordScope::from_hex(scope), ..Self::new() };
        note.with_trace(trace).with_label(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip() {
        let scope = RecordScope::derive(&[b"tenant"]);
        let whole =
            RecordNote::new().with_scope(scope).with_trace("00-ab-cd-01").with_label("payment:42 of é");
        for note in [
            RecordNote::new(),
            whole.clone(),
            RecordNote::new().with_scope(scope),
            RecordNote::new().with_trace("t"),
            RecordNote::new().with_label("  - "),
        ] {
            assert_eq!(RecordNote::from_text(&note.to_text()), note);
        }
        assert_eq!(whole.to_text(), format!("{} 00-ab-cd-01 payment:42 of é", scope.to_hex()));
        assert_eq!(RecordNote::new().to_text(), "");
    }

    #[test]
    fn what_does_not_fit_is_cut_or_left_out() {
        let note = RecordNote::new().with_trace("two words").with_label(&"é\n".repeat(100));
        assert_eq!(note.trace(), None);
        assert!(note.label().unwrap().len() <= LONGEST_LABEL && !note.label().unwrap().contains('\n'));
        assert_eq!(RecordNote::new().with_trace(&"t".repeat(129)).trace(), None);
        for text in ["", "x", "x y", "zz - "] {
            assert_eq!(RecordNote::from_text(text), RecordNote::new(), "{text}");
        }
    }

    #[test]
    fn scopes_are_framed() {
        assert_ne!(RecordScope::derive(&[b"ab", b"c"]), RecordScope::derive(&[b"a", b"bc"]));
    }
}
