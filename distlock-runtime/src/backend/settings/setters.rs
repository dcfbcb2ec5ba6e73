//! Setters that the options of several stores have.

/// Of options with a field `names: Names`.
macro_rules! name_setters {
    () => {
        /// What tells the locks of one application from those of another: 1 to 32 of `A-Z a-z 0-9 _ . -`, in front of all names in the
        /// store. Managers that share locks share the namespace.
        #[must_use]
        pub fn namespace(mut self, name: impl Into<String>) -> Self {
            self.names.namespace = Some(name.into());
            self
        }

        /// The namespace, unless one is chosen already (by a URL).
        #[must_use]
        pub fn or_namespace(mut self, name: impl Into<String>) -> Self {
            self.names.namespace.get_or_insert_with(|| name.into());
            self
        }

        /// Who this process is, for people who look at a held lock; by default `host:pid`. Blanks and control characters
        /// become `_`; cut after 64 bytes.
        #[must_use]
        pub fn label(mut self, text: impl Into<String>) -> Self {
            self.names.label = Some(text.into());
            self
        }

        /// The label, unless one is chosen already (by a URL).
        #[must_use]
        pub fn or_label(mut self, text: impl Into<String>) -> Self {
            self.names.label.get_or_insert_with(|| text.into());
            self
        }
    };
}

/// Of options with fields `ca` and `client_certificate`.
macro_rules! certificate_setters {
    () => {
        /// The authorities to trust instead of the well-known ones: a PEM file, read when the backend is opened.
        #[must_use]
        pub fn ca(mut self, path: impl Into<std::path::PathBuf>) -> Self {
            self.ca = Some(path.into());
            self
        }

        /// Shows this certificate to the server: two PEM files, read when the backend is opened.
        #[must_use]
        pub fn client_certificate(
            mut self,
            certificate: impl Into<std::path::PathBuf>,
            key: impl Into<std::path::PathBuf>,
        ) -> Self {
            self.client_certificate = Some((certificate.into(), key.into()));
            self
        }
    };
}

pub(in crate::backend) use {certificate_setters, name_setters};
