//! Whether a history of concurrent operations is *linearizable*: whether there is one order of all operations in which each is right by
//! a sequential model, and in which none comes before one that had returned when it was called.
//!
//! The search is that of Wing and Gong (1993) with the memory of Lowe (2017): it takes any operation that could be next, and never
//! tries the same set of operations with the same state twice. Keep histories short (some fifty operations, a handful at a time).
//!
//! * `search` - the search, for any model
//! * `locks` - the model of a lock of any kind
//! * `owners` - the model of a lock that explicit owners hold

mod locks;
mod owners;
mod search;

pub use self::{
    locks::{Action, LockModel, LockState},
    owners::{OwnersAction, OwnersModel, OwnersState},
    search::{Model, NotLinearizable, Operation, check},
};
