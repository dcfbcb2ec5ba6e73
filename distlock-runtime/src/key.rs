//! Lock keys: what a lock is called, checked and bounded.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

use crate::error::{ErrorKind, LockError};

/// Longest key text, in bytes, that is kept as it stands; a longer one becomes prefix + hash.
pub const MAX_KEY_BYTES: usize = 200;
/// Longest name, in bytes, that [`LockKey::raw`] takes.
pub const MAX_RAW_KEY_BYTES: usize = 1024;
/// How much of a long key stays readable in front of its hash.
const VISIBLE_PREFIX: usize = 120;

/// What a value in a template keeps unescaped. Everything else becomes `%XX`, so the characters that
/// separate placeholders never come from a value.
const VALUE_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-');

/// The name of a lock, below the manager's namespace: 1 to 200 bytes of text without control characters.
///
/// Longer text is cut to a readable prefix followed by `~` and the SHA-256 of the whole, so keys are bounded
/// and distinct texts stay distinct. Build keys from values with [`KeyWriter`], which escapes them: plain
/// concatenation lets `a:b` + `c` meet `a` + `b:c`.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{KeyWriter, LockKey};
/// let fixed = LockKey::new("nightly-report")?;
/// let built = KeyWriter::new().literal("order:").value(&42).finish()?;
/// assert_eq!(built.as_str(), "order:42");
/// # Ok::<(), distlock::LockError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey {
    /// [`PLAIN`] or [`RAW`], then the text: every lock keeps its key several times, so it had better be small.
    marked: Arc<str>,
}

const PLAIN: char = '=';
const RAW: char = '!';

impl LockKey {
    /// A key from text that stands as it is.
    ///
    /// # Errors
    /// `CONFIG` for empty text and for control characters (build such keys with [`KeyWriter::value`], which
    /// escapes them).
    pub fn new(text: impl AsRef<str>) -> Result<Self, LockError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(invalid("the lock key is empty", "give the lock a name, such as \"order:42\""));
        }
        if let Some(c) = text.chars().find(|c| c.is_control()) {
            return Err(invalid(
                format!("the lock key contains the control character {c:?}"),
                "build the key with KeyWriter::value or a template, which escape such characters",
            ));
        }
        if text.len() <= MAX_KEY_BYTES {
            return Ok(Self { marked: marked(text) });
        }
        let mut writer = KeyWriter::new();
        writer.push(text);
        Ok(Self { marked: writer.bounded() })
    }

    /// The name as it stands in the store, without namespace: shares a lock with other clients that use the
    /// plain `SET key token NX PX` form on the same name.
    ///
    /// # Errors
    /// `CONFIG` for an empty name or one of more than 1024 bytes (it can't be shortened, others know it as it is).
    pub fn raw(name: impl AsRef<str>) -> Result<Self, LockError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(invalid("the raw lock key is empty", "give the name that the other system uses"));
        }
        if name.len() > MAX_RAW_KEY_BYTES {
            return Err(invalid(
                format!("the raw lock key has {} bytes, more than {MAX_RAW_KEY_BYTES}", name.len()),
                "use a shorter name, or LockKey::new, which shortens long keys",
            ));
        }
        Ok(Self { marked: format!("{RAW}{name}").into() })
    }

    /// The key's text (below the namespace, unless raw).
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.marked[PLAIN.len_utf8()..]
    }

    /// Whether the key is used as it stands, without namespace.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.marked.starts_with(RAW)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_raw() { write!(f, "raw({:?})", self.as_str()) } else { write!(f, "{:?}", self.as_str()) }
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<&str> for LockKey {
    type Error = LockError;
    fn try_from(text: &str) -> Result<Self, LockError> {
        Self::new(text)
    }
}

impl TryFrom<&&str> for LockKey {
    type Error = LockError;
    fn try_from(text: &&str) -> Result<Self, LockError> {
        Self::new(*text)
    }
}

impl TryFrom<&String> for LockKey {
    type Error = LockError;
    fn try_from(text: &String) -> Result<Self, LockError> {
        Self::new(text)
    }
}

impl TryFrom<String> for LockKey {
    type Error = LockError;
    fn try_from(text: String) -> Result<Self, LockError> {
        Self::new(text)
    }
}

impl TryFrom<&LockKey> for LockKey {
    type Error = LockError;
    fn try_from(key: &LockKey) -> Result<Self, LockError> {
        Ok(key.clone())
    }
}

/// Builds a [`LockKey`] from literal text and escaped values, in bounded memory whatever the values' size.
///
/// Values are rendered with `Display` and percent-encoded except for `A-Z a-z 0-9 _ . -`.
#[derive(Clone)]
pub struct KeyWriter {
    /// The mark of a plain key, then text.
    head: String,
    /// Of the whole text, once it is longer than the bound.
    hash: Option<Box<Sha256>>,
    /// How many there have been, for errors to name one.
    values: usize,
    error: Option<LockError>,
}

impl Default for KeyWriter {
    fn default() -> Self {
        let mut head = String::with_capacity(64);
        head.push(PLAIN);
        Self { head, hash: None, values: 0, error: None }
    }
}

impl KeyWriter {
    /// An empty key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text as it stands.
    #[must_use]
    pub fn literal(mut self, text: &str) -> Self {
        self.push(text);
        self
    }

    /// Adds a value, escaped. An empty value makes [`finish`](Self::finish) fail: `order:` is no order's key.
    #[must_use]
    pub fn value<T: fmt::Display + ?Sized>(mut self, value: &T) -> Self {
        self.values += 1;
        let mut sink = ValueSink { writer: &mut self, empty: true };
        let written = write!(sink, "{value}");
        let empty = sink.empty;
        if written.is_err() {
            self.fail("failed to format", "mend its Display implementation");
        } else if empty {
            self.fail("is empty", "check the arguments before the call, or use a default");
        }
        self
    }

    /// The finished key.
    ///
    /// # Errors
    /// `CONFIG` if a value was empty or couldn't be formatted (the text says which, counted from 1), or if nothing was added.
    pub fn finish(self) -> Result<LockKey, LockError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.text().is_empty() {
            return Err(invalid("the lock key is empty", "add literal text or a value"));
        }
        Ok(LockKey { marked: self.bounded() })
    }

    fn fail(&mut self, what: &'static str, remedy: &'static str) {
        if self.error.is_none() {
            self.error = Some(invalid(format!("value {} of the lock key {what}", self.values), remedy));
        }
    }

    /// Appends; what goes beyond the bound is only hashed.
    fn push(&mut self, text: &str) {
        if self.hash.is_none() {
            if self.text().len() + text.len() <= MAX_KEY_BYTES {
                self.head.push_str(text);
                return;
            }
            self.hash = Some(Box::new(Sha256::new_with_prefix(self.text())));
        }
        if let Some(hash) = &mut self.hash {
            hash.update(text.as_bytes());
        }
        let room = VISIBLE_PREFIX.saturating_sub(self.text().len());
        self.head.push_str(&text[..text.floor_char_boundary(room)]);
    }

    fn text(&self) -> &str {
        &self.head[PLAIN.len_utf8()..]
    }

    /// Mark and text.
    fn bounded(self) -> Arc<str> {
        let Some(hash) = self.hash else { return self.head.into() };
        let cut = self.head.floor_char_boundary(PLAIN.len_utf8() + VISIBLE_PREFIX);
        let mut marked = String::with_capacity(cut + 65);
        marked.push_str(&self.head[..cut]);
        marked.push('~');
        for byte in hash.finalize() {
            write!(marked, "{byte:02x}").expect("writing to a String can't fail");
        }
        marked.into()
    }
}

impl fmt::Debug for KeyWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWriter").field("head", &self.text()).finish_non_exhaustive()
    }
}

struct ValueSink<'a> {
    writer: &'a mut KeyWriter,
    empty: bool,
}

impl fmt::Write for ValueSink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.empty &= text.is_empty();
        for piece in percent_encode(text.as_bytes(), VALUE_ESCAPES) {
            self.writer.push(piece);
        }
        Ok(())
    }
}

/// The mark of a plain key and a short text, without a detour over a string.
fn marked(text: &str) -> Arc<str> {
    let mut bytes = [PLAIN as u8; PLAIN.len_utf8() + MAX_KEY_BYTES];
    bytes[PLAIN.len_utf8()..][..text.len()].copy_from_slice(text.as_bytes());
    let marked = &bytes[..PLAIN.len_utf8() + text.len()];
    std::str::from_utf8(marked).expect("text behind an ASCII mark").into()
}

fn invalid(what: impl Into<std::borrow::Cow<'static, str>>, remedy: &'static str) -> LockError {
    LockError::new(ErrorKind::Config, "key").detail(what).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two(a: &str, b: &str) -> Result<LockKey, LockError> {
        KeyWriter::new().literal("k:").value(a).literal(":").value(b).finish()
    }

    #[test]
    fn separators_inside_values_never_shift_the_split() {
        assert_ne!(two("a:b", "c").unwrap(), two("a", "b:c").unwrap());
        assert_eq!(two("a:b", "c").unwrap().as_str(), "k:a%3Ab:c");
    }

    #[test]
    fn empty_parts_are_refused() {
        assert_eq!(two("", "x").unwrap_err().kind(), ErrorKind::Config);
        assert!(two("x", "").unwrap_err().to_string().contains("value 2 of the lock key is empty"));
        assert_eq!(LockKey::new("").unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(LockKey::new("a\0b").unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(KeyWriter::new().finish().unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(LockKey::raw("").unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(LockKey::raw("x".repeat(1025)).unwrap_err().kind(), ErrorKind::Config);
    }

    #[test]
    fn long_keys_are_bounded_and_distinct() {
        let big = "x".repeat(10 << 20);
        let a = two(&big, "1").unwrap();
        let b = two(&big, "2").unwrap();
        assert!(a.as_str().len() <= MAX_KEY_BYTES);
        assert_ne!(a, b);
        assert!(LockKey::new("é".repeat(300)).unwrap().as_str().len() <= MAX_KEY_BYTES);
    }

    #[test]
    fn a_text_and_its_pieces_make_one_key() {
        for length in [1, 2, MAX_KEY_BYTES - 1, MAX_KEY_BYTES, MAX_KEY_BYTES + 1] {
            let text = "k".repeat(length);
            let key = LockKey::new(&text).unwrap();
            assert_eq!(key, KeyWriter::new().literal(&text).finish().unwrap());
            assert_ne!(key, LockKey::raw(&text).unwrap());
            assert!(!key.is_raw());
        }
        assert_eq!(LockKey::new("é").unwrap().as_str(), "é");
    }

    #[test]
    fn pieces_of_any_cut_give_the_same_key() {
        let text = "abcdé".repeat(100);
        let whole = KeyWriter::new().literal(&text).finish().unwrap();
        let pieces = text.chars().fold(KeyWriter::new(), |w, c| w.literal(&c.to_string())).finish().unwrap();
        assert_eq!(whole, pieces);
    }

    proptest! {
        #[test]
        fn distinct_values_give_distinct_keys(a in ".{1,40}", b in ".{1,40}", c in ".{1,40}", d in ".{1,40}") {
            let same = a == c && b == d;
            prop_assert_eq!(two(&a, &b).unwrap() == two(&c, &d).unwrap(), same);
        }

        #[test]
        fn values_never_bring_separators(a in "\\PC{1,60}|[\0-\x1f{}:*/#%]{1,20}") {
            let key = KeyWriter::new().value(&a).finish().unwrap();
            let separators = [':', '/', '#', '{', '}', '*', '\0', ' '];
            prop_assert!(!key.as_str().contains(separators));
        }
    }
}
