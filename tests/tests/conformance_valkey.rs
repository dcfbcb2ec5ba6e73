//! The conformance suite on one Valkey, which gives plain locks back without a script.

mod redis_store;

use distlock_tests::server::RedisOptions;
use redis_store::Redis;

distlock_runtime::testkit::conformance!(Redis::start(RedisOptions::valkey()));
