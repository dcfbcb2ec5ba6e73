//! Which arguments go together, and what to do about those that don't.

use proc_macro2::Ident;
use syn::Error;

/// Pairs that exclude each other, in either order.
const APART: [(&str, &str, &str); 19] = [
    ("key", "keys", "`keys` takes the place of `key`; leave one of them out"),
    ("read", "write", "`read` and `write` are two ways into one lock; leave one of them out"),
    ("fair", "read", "readers and writers are served in the order of arrival anyway; leave `fair` out"),
    ("fair", "write", "readers and writers are served in the order of arrival anyway; leave `fair` out"),
    ("fair", "permits", "permits are given out in the order of arrival anyway; leave `fair` out"),
    (
        "permits",
        "read",
        "`permits` makes a semaphore and `read` takes a read/write lock; leave one of them out",
    ),
    (
        "permits",
        "write",
        "`permits` makes a semaphore and `write` takes a read/write lock; leave one of them out",
    ),
    (
        "permits",
        "reentrant",
        "permits aren't entered again, a call inside takes more of them; leave `reentrant` out",
    ),
    ("owner", "fair", "a lock with an `owner` is served in the order of arrival anyway; leave `fair` out"),
    ("owner", "read", "a lock with an `owner` is exclusive; leave `read` out"),
    ("owner", "write", "a lock with an `owner` is exclusive anyway; leave `write` out"),
    ("owner", "permits", "a lock with an `owner` is exclusive; leave `permits` out"),
    ("owner", "keys", "an `owner` has one lock at a time; name one `key`"),
    ("keys", "read", "the locks of `keys` are exclusive; leave `read` out, or name one `key`"),
    ("keys", "write", "the locks of `keys` are exclusive anyway; leave `write` out, or name one `key`"),
    ("keys", "permits", "the locks of `keys` are exclusive; leave `permits` out, or name one `key`"),
    ("keys", "weight", "the locks of `keys` are exclusive; leave `weight` out, or name one `key`"),
    (
        "keys",
        "fair",
        "strict order is for one lock: `keys` takes several, one after the other; leave `fair` out, or name one `key`",
    ),
    (
        "keys",
        "guard",
        "`guard` names one lock's guard, and `keys` takes several locks; leave it out, or take the locks inside the \
         function with `locks.mutex_all(…).lock()`, whose guard has the guard of each",
    ),
];

/// One error for each argument that doesn't go with one before it, or that needs one which isn't there.
pub(crate) fn check(given: &[Ident]) -> impl Iterator<Item = Error> {
    let lonely = given
        .iter()
        .filter(|name| *name == "weight" && !given.iter().any(|other| other == "permits" || other == "keys"));
    let lonely = lonely.map(|name| {
        Error::new(
            name.span(),
            "`weight` says how many permits a call takes; say how many there are, as in `permits = 4`",
        )
    });
    let apart = given.iter().enumerate().filter_map(|(at, later)| {
        let why = given[..at].iter().find_map(|earlier| apart(earlier, later))?;
        Some(Error::new(later.span(), why))
    });
    apart.chain(lonely)
}

fn apart(one: &Ident, other: &Ident) -> Option<&'static str> {
    let is_pair = |a: &str, b: &str| (one == a && other == b) || (one == b && other == a);
    APART.iter().find(|(a, b, _)| is_pair(a, b)).map(|(_, _, why)| *why)
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    fn errors(names: &[&str]) -> Vec<String> {
        let given: Vec<_> = names.iter().map(|name| Ident::new(name, Span::call_site())).collect();
        check(&given).map(|error| error.to_string()).collect()
    }

    #[test]
    fn the_order_of_a_pair_doesnt_matter() {
        for (one, other, why) in APART {
            assert_eq!(errors(&["ttl", one, other]), [why]);
            assert_eq!(errors(&[other, "ttl", one]), [why]);
        }
    }

    #[test]
    fn an_argument_gets_one_error() {
        assert_eq!(errors(&["key", "read", "write", "fair", "permits"]).len(), 3);
        assert_eq!(errors(&["keys", "weight"]).len(), 1);
        assert_eq!(errors(&["key", "weight"]).len(), 1);
    }

    #[test]
    fn what_goes_together_is_left_alone() {
        for good in [
            &["key", "fair", "reentrant", "guard"][..],
            &["key", "read", "reentrant", "guard", "hold_at_least"],
            &["key", "weight", "permits", "guard", "max_hold"],
            &["key", "owner", "reentrant", "guard", "max_hold", "hold_at_least", "on_busy"],
            &["keys", "reentrant", "max_hold", "hold_at_least", "on_busy", "locks"],
        ] {
            assert_eq!(errors(good), [""; 0]);
        }
    }
}
