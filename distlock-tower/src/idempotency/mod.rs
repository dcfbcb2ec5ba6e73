//! x
mod body;
mod codec;
mod disposition;
mod fidelity;
mod fingerprint;
mod key;
mod request_body;
mod scope;
pub use self::body::*;
pub use self::disposition::*;
pub use self::key::*;
pub use self::request_body::*;
pub use self::scope::*;
