//! What a manager is called in a store, and what its locks stand below there.

use super::config;
use crate::backend::BackendError;

/// Longest namespace, in bytes.
const MAX_NAMESPACE: usize = 32;
/// Longest label, in bytes; the rest is cut off.
const MAX_LABEL: usize = 64;

/// The namespace and the label, where they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Names {
    pub(in crate::backend) namespace: Option<String>,
    pub(in crate::backend) label: Option<String>,
}

impl Names {
    /// Where none is chosen.
    pub(in crate::backend) const DEFAULT_NAMESPACE: &'static str = "distlock";

    /// The namespace, if it can be one.
    pub(in crate::backend) fn checked_namespace(&self) -> Result<&str, BackendError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let namespace = self.namespace.as_deref().unwrap_or(Self::DEFAULT_NAMESPACE);
        if (1..=MAX_NAMESPACE).contains(&namespace.len()) && namespace.chars().all(allowed) {
            return Ok(namespace);
        }
        Err(Self::refused(namespace))
    }

    /// The error for a namespace that can't be one.
    pub(in crate::backend) fn refused(namespace: &str) -> BackendError {
        config(format!(
            "the namespace {namespace:?} is not 1 to {MAX_NAMESPACE} characters of A-Z a-z 0-9 _ . -"
        ))
    }

    /// Who holds a lock, for people: one bounded word, `host:pid` where none is chosen.
    pub(in crate::backend) fn label(&self) -> String {
        let text = self.label.clone().unwrap_or_else(|| {
            let name = rustix::system::uname();
            format!("{}:{}", name.nodename().to_string_lossy(), std::process::id())
        });
        let mut label: String =
            text.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
        label.truncate(label.floor_char_boundary(MAX_LABEL));
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    #[test]
    fn namespaces_are_checked() {
        let names = |text: &str| Names { namespace: Some(text.to_owned()), label: None };
        assert_eq!(Names::default().checked_namespace().unwrap(), "distlock");
        for good in ["a", "distlock", "A-z_0.9", &"n".repeat(32)] {
            assert_eq!(names(good).checked_namespace().unwrap(), good);
        }
        for bad in ["", "a:b", "a!b", "a{b", "é", "a b", &"n".repeat(33)] {
            let names = names(bad);
            let error = names.checked_namespace().unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config, "{bad}");
        }
    }

    #[test]
    fn labels_are_one_bounded_word() {
        let label = |text: &str| Names { namespace: None, label: Some(text.to_owned()) }.label();
        assert_eq!(label("web 1\n2"), "web_1_2");
        assert_eq!(label(&"é".repeat(50)).len(), 64);
        let default = Names::default().label();
        assert!(default.ends_with(&format!(":{}", std::process::id())), "{default}");
    }
}
