//! Units and help texts for the metrics; what there is to see is in [`guide::observability`](crate::guide::observability).

#[doc(inline)]
pub use distlock_runtime::telemetry::describe;
