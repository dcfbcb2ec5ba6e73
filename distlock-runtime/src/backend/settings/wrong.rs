//! Checks of what is said of wrong URLs.

use std::fmt;

use crate::backend::{BackendError, BackendErrorKind};

/// What stands for a secret in the URLs.
const SECRET: &str = "hunter2";

/// That this URL is refused as wrong, with these words, and nothing secret is shown.
#[track_caller]
pub(in crate::backend) fn refused<T: fmt::Debug>(
    read: impl Fn(&str) -> Result<T, BackendError>,
    url: &str,
    words: &[&str],
) {
    let error = read(url).expect_err(url);
    assert_eq!(error.kind(), BackendErrorKind::Config, "{url}");
    let text = format!("{error} {error:?}");
    for word in words {
        assert!(text.contains(word), "{url}: no {word:?} in {error}");
    }
    assert!(!text.contains(SECRET), "{url}: {text}");
}
