//! The messages of `shop.Orders`, and what `build.rs` makes of the service.

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(string, tag = "1")]
    pub(crate) item: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

pub(crate) use generated::{orders_client, orders_server};

#[allow(clippy::all, missing_docs, unreachable_pub, missing_debug_implementations, reason = "tonic's")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/shop.Orders.rs"));
}
