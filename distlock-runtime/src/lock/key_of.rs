//! How the expressions of an attribute become keys: without taking an argument that the body uses, and with errors that say
//! what can be one.

use std::collections::BTreeSet;
use std::fmt;

use crate::error::LockError;
use crate::key::LockKey;

/// What can be the key of a lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the key of a lock",
    label = "a key is text, a `LockKey`, or what turns into one by `TryInto`",
    note = "any other value goes into a template: `key = \"order:<id>\"`"
)]
pub trait KeyValue {
    /// The key.
    fn into_key(self) -> Result<LockKey, LockError>;
}

#[diagnostic::do_not_recommend]
impl<K> KeyValue for K
where
    K: TryInto<LockKey>,
    K::Error: Into<LockError>,
{
    fn into_key(self) -> Result<LockKey, LockError> {
        self.try_into().map_err(Into::into)
    }
}

/// What has a text, to be a part of a key or an owner's id.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no text that could name what is locked, or who locks it",
    label = "this takes what implements `Display`",
    note = "name a part that has a text, as in `<order.id>` or `owner = step.saga`"
)]
pub trait HasText: fmt::Display {}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> HasText for T {}

/// A placeholder's value.
pub fn text<T: HasText + ?Sized>(value: &T) -> &T {
    value
}

/// `key = expr`: anything that turns into a key.
///
/// # Errors
/// What the conversion says.
pub fn key_from<K: KeyValue>(key: K) -> Result<LockKey, LockError> {
    key.into_key()
}

/// `keys = expr`: what turns into keys, several times.
///
/// # Errors
/// What the first conversion that fails says.
pub fn keys_from<I>(keys: I) -> Result<BTreeSet<LockKey>, LockError>
where
    I: IntoIterator,
    I::Item: KeyValue,
{
    keys.into_iter().map(key_from).collect()
}

/// An argument in `key = …` or `keys = …`. The body may use it too, so it is only lent.
///
/// With both traits in scope, `(&Lent::new(&value)).key()` borrows where the reference can be a key, and else takes a copy: that
/// needs one more reference to get there.
#[allow(missing_debug_implementations)] // Lives for one expression.
pub struct Lent<'a, T: ?Sized>(&'a T);

impl<'a, T: ?Sized> Lent<'a, T> {
    /// The argument.
    pub const fn new(value: &'a T) -> Self {
        Self(value)
    }
}

/// By its reference.
pub trait LentKey {
    /// The key.
    fn key(&self) -> Result<LockKey, LockError>;
}

impl<'a, T: ?Sized> LentKey for Lent<'a, T>
where
    &'a T: KeyValue,
{
    fn key(&self) -> Result<LockKey, LockError> {
        self.0.into_key()
    }
}

/// By its references.
pub trait LentKeys {
    /// The keys.
    fn keys(&self) -> Result<BTreeSet<LockKey>, LockError>;
}

impl<'a, T: ?Sized> LentKeys for Lent<'a, T>
where
    &'a T: IntoIterator<Item: KeyValue>,
{
    fn keys(&self) -> Result<BTreeSet<LockKey>, LockError> {
        keys_from(self.0)
    }
}

/// What can be the key of a lock by a copy: one trait for all that is asked of an argument, so that one that doesn't fit gives one
/// error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the key of a lock",
    label = "a key is text, a `LockKey`, or what turns into one by `TryInto`, itself or by reference",
    note = "any other value goes into a template: `key = \"order:<id>\"`"
)]
pub trait KeyToCopy {
    /// The key.
    fn copied_key(&self) -> Result<LockKey, LockError>;
}

#[diagnostic::do_not_recommend]
impl<T: KeyValue + Clone> KeyToCopy for T {
    fn copied_key(&self) -> Result<LockKey, LockError> {
        self.clone().into_key()
    }
}

/// The same of what yields keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the keys of locks",
    label = "`keys` takes keys in brackets, or what yields text, `LockKey`s, or what turns into one by `TryInto`",
    note = "any other values go into templates: `keys = ids.iter().map(|id| format!(\"order:{{id}}\"))`"
)]
pub trait KeysToCopy {
    /// The keys.
    fn copied_keys(&self) -> Result<BTreeSet<LockKey>, LockError>;
}

#[diagnostic::do_not_recommend]
impl<T: IntoIterator<Item: KeyValue> + Clone> KeysToCopy for T {
    fn copied_keys(&self) -> Result<BTreeSet<LockKey>, LockError> {
        keys_from(self.clone())
    }
}

/// By a copy of it, whatever it is: what it must be is said where it isn't.
pub trait CopiedKey<T> {
    /// The key.
    fn key(&self) -> Result<LockKey, LockError>
    where
        T: KeyToCopy;

    /// The keys.
    fn keys(&self) -> Result<BTreeSet<LockKey>, LockError>
    where
        T: KeysToCopy;
}

impl<T> CopiedKey<T> for &Lent<'_, T> {
    fn key(&self) -> Result<LockKey, LockError>
    where
        T: KeyToCopy,
    {
        self.0.copied_key()
    }

    fn keys(&self) -> Result<BTreeSet<LockKey>, LockError>
    where
        T: KeysToCopy,
    {
        self.0.copied_keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::needless_borrow)] // As the expansion writes it.
    fn references_are_enough_where_they_can_be_keys_and_copies_are_taken_else() {
        #[derive(Clone, Copy)]
        struct Number(u64);
        impl TryFrom<Number> for LockKey {
            type Error = LockError;
            fn try_from(Number(number): Number) -> Result<Self, LockError> {
                Self::new(format!("number:{number}"))
            }
        }
        struct NotClone(LockKey);
        impl From<&NotClone> for LockKey {
            fn from(NotClone(key): &NotClone) -> Self {
                key.clone()
            }
        }
        let key = LockKey::new("k").unwrap();
        let (text, word, only) = ("k".to_owned(), "k", NotClone(key.clone()));
        assert_eq!((&Lent::new(&text)).key().unwrap(), key);
        assert_eq!((&Lent::new(&word)).key().unwrap(), key);
        assert_eq!((&Lent::new(&key)).key().unwrap(), key);
        assert_eq!((&Lent::new(&only)).key().unwrap(), key);
        assert_eq!((&Lent::new(&Number(7))).key().unwrap().as_str(), "number:7");
        let keys = BTreeSet::from([key]);
        assert_eq!((&Lent::new(&vec![text])).keys().unwrap(), keys);
        assert_eq!((&Lent::new(&[word])).keys().unwrap(), keys);
        assert_eq!((&Lent::new(&[word].as_slice())).keys().unwrap(), keys);
        assert_eq!((&Lent::new(&vec![only])).keys().unwrap(), keys);
        assert_eq!((&Lent::new(&Some(word))).keys().unwrap(), keys);
    }
}
