//! What only Postgres can show: its tables and rights, poolers, sessions that end, and the faults of a server.

mod advisory;
mod fault_failover;
mod fault_mixture;
mod fault_power;
mod fault_rows;
mod fault_shared;
mod fault_tokens;
mod hostile;
mod mixture;
mod pooler;
mod rows;
mod setup;
mod tools;
mod wire;
