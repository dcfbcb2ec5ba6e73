//! Setters that are written once: of the options that every kind of lock has in common, and of the facts of attributes.

/// The setters of a builder with a field `options: Options`.
macro_rules! common_setters {
    () => {
        /// How long the lease lives without renewal, 100 ms to 24 h (30 s unless the manager says otherwise). It is
        /// renewed every third of that while held; after a crash the lock is free within that time.
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = ttl;
            self
        }

        /// How long an acquisition may wait (10 s unless the manager says otherwise).
        pub fn wait(mut self, length: std::time::Duration) -> Self {
            self.options.wait = crate::ttl::Wait::For(length);
            self
        }

        /// Wait without bound.
        pub fn wait_forever(mut self) -> Self {
            self.options.wait = crate::ttl::Wait::Forever;
            self
        }

        /// A bound on holding: after that the lease isn't renewed any more and the hold counts as lost. For code that may
        /// hang.
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.options.max_hold = Some(most);
            self
        }

        /// The label of this lock in metrics and spans: the key's template, such as `order:<id>`, never a rendered key.
        pub fn template(mut self, template: &'static str) -> Self {
            self.options.template = template;
            self
        }
    };
}

/// The setters of an attribute's facts, named like its arguments; `optional` ones have a default elsewhere.
macro_rules! fact_setters {
    (optional { $($name:ident: $fact:ty),* $(,)? } plain { $($plain:ident: $what:ty),* $(,)? }) => {
        $(
            #[must_use]
            pub const fn $name(mut self, $name: $fact) -> Self {
                self.$name = Some($name);
                self
            }
        )*
        $(
            #[must_use]
            pub const fn $plain(mut self, $plain: $what) -> Self {
                self.$plain = $plain;
                self
            }
        )*
    };
}

pub(super) use common_setters;
pub(crate) use fact_setters;
