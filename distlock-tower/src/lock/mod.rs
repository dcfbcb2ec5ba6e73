//! One request at a time for each key.
mod body;
mod config;
mod future;
mod held;
mod hold;
mod layer;
mod service;

pub use self::body::LockedBody;
pub use self::future::LockedFuture;
pub use self::held::HeldLock;
pub use self::layer::{LockLayer, LockLayerBuilder};
pub use self::service::Locked;
