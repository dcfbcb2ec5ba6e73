//! Calls for one acquisition: there may be several at once, when a task isn't polled and another goes on in its stead.

use std::ops::Deref;

use crate::backend::AcquireRequest;

/// Of several calls for the same acquisition the latest decides; what earlier ones still do is no harm to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call(u64);

impl Call {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// An acquisition, as one call asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) request: &'a AcquireRequest,
    pub(super) call: Call,
}

impl Deref for Ask<'_> {
    type Target = AcquireRequest;
    fn deref(&self) -> &AcquireRequest {
        self.request
    }
}
