//! The gRPC service of the suites, as `build.rs` writes it: nothing here needs protoc.

/// What is asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Order {
    /// What to place.
    #[prost(string, tag = "1")]
    pub item: String,
}

/// What comes of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Receipt {
    /// Who did it, and when.
    #[prost(string, tag = "1")]
    pub text: String,
}

#[allow(clippy::all, missing_docs, unreachable_pub, unused_qualifications, missing_debug_implementations)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/shop.Orders.rs"));
}

pub use generated::orders_client::OrdersClient;
pub use generated::orders_server::{Orders, OrdersServer};
