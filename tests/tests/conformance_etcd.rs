//! The conformance suite on etcd, a member of its own for each case.

mod etcd_store;

use distlock_tests::server::EtcdSetup;
use etcd_store::Etcd;

distlock_runtime::testkit::conformance!(Etcd::start(EtcdSetup::new(1)).await);
