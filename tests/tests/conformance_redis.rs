//! The conformance suite on one Redis, a server for each case.

mod redis_store;

use distlock_tests::server::RedisOptions;
use redis_store::Redis;

distlock_runtime::testkit::conformance!(Redis::start(RedisOptions::new()));
