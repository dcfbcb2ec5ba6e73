//! What the options of all stores have in common: the names, the URL's parts, and what is wrong with them.
//!
//! | file | holds |
//! |---|---|
//! | `names` | what a manager is called in a store |
//! | `setters` | what is written once of the options' setters |
//! | `url` | decoding a URL, and its parameters |

mod names;
mod setters;
mod url;
#[cfg(test)]
pub(super) mod wrong;

pub(super) use self::names::Names;
pub(super) use self::setters::{certificate_setters, name_setters};
pub(super) use self::url::{UrlReader, both, time};

use super::{BackendError, BackendErrorKind};

/// Something about the options is wrong.
pub(super) fn config(detail: impl Into<String>) -> BackendError {
    BackendError::refused(BackendErrorKind::Config, detail)
}

/// `host:port`, and `[v6]:port`.
pub(super) fn place(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
