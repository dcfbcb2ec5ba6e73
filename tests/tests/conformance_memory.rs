//! The conformance suite on `memory:`.

mod memory_store;

use memory_store::Memory;

distlock_runtime::testkit::conformance!(Memory::new());
