//! The scripts that fence writes to data in Redis, run by a client that knows nothing of distlock, and the sale that rests on them.

use std::{collections::BTreeSet, time::Duration};

use distlock::{
    LockManager,
    fenced::{self, FencedScript, Refusal},
};
use distlock_tests::{
    example,
    server::{RedisOptions, RedisServer},
};
use redis::{AsyncTypedCommands, RedisResult, Script, aio::MultiplexedConnection};

struct Resource {
    _server: RedisServer,
    redis: MultiplexedConnection,
}

impl Resource {
    async fn start() -> Self {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        Self { redis: client.get_multiplexed_async_connection().await.unwrap(), _server: server }
    }

    async fn run(&self, script: &FencedScript, keys: &[&str], arguments: &[&str]) -> RedisResult<i64> {
        let script = Script::new(script.text());
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke_async(&mut self.redis.clone()).await
    }

    async fn set(&self, arguments: &[&str]) -> Result<u64, Refusal> {
        fenced::outcome(self.run(&fenced::SET, &["r"], arguments).await.unwrap())
    }

    async fn take(&self, token: &str, amount: &str) -> Result<u64, Refusal> {
        fenced::outcome(self.run(&fenced::TAKE, &["r"], &[token, "left", amount]).await.unwrap())
    }

    async fn take_for(&self, token: &str, amount: &str, who: &str) -> Result<u64, Refusal> {
        let keys = ["r", "receipts"];
        fenced::outcome(self.run(&fenced::TAKE, &keys, &[token, "left", amount, who]).await.unwrap())
    }

    async fn field(&self, name: &str) -> Option<String> {
        self.redis.clone().hget("r", name).await.unwrap()
    }
}

#[tokio::test]
async fn a_stale_token_writes_nothing() {
    let r = Resource::start().await;
    assert_eq!(r.set(&["10", "a", "1", "b", "2"]).await, Ok(1));
    assert_eq!(r.set(&["10", "a", "3"]).await, Ok(1), "one holder writes more than once");
    assert_eq!(r.set(&["9", "a", "late", "c", "late"]).await, Err(Refusal::Stale));
    assert_eq!((r.field("a").await, r.field("c").await), (Some("3".into()), None));
    // 9 < 10 as numbers, not as texts; and exact where a double isn't.
    assert_eq!(r.set(&["18446744073709551615", "a", "4"]).await, Ok(1));
    assert_eq!(r.set(&["18446744073709551614", "a", "late"]).await, Err(Refusal::Stale));
    assert_eq!(r.field("a").await.as_deref(), Some("4"));
    assert_eq!(r.field("fence").await.as_deref(), Some("18446744073709551615"));
}

/// From the lock's grant to the resource, as its users do it.
#[tokio::test]
async fn the_holder_before_is_refused() {
    let r = Resource::start().await;
    let locks = LockManager::connect("memory:").await.unwrap();
    let first = locks.mutex("r").lock().await.unwrap();
    let late = first.fencing_token().to_string();
    first.release().await.unwrap();
    let second = locks.mutex("r").lock().await.unwrap();
    assert_eq!(r.set(&[&second.fencing_token().to_string(), "by", "second"]).await, Ok(1));
    assert_eq!(r.set(&[&late, "by", "first"]).await, Err(Refusal::Stale));
    assert_eq!(r.take(&late, "1").await, Err(Refusal::Stale));
    assert_eq!(r.field("by").await.as_deref(), Some("second"));
}

#[tokio::test]
async fn a_stock_is_never_oversold_nor_taken_from_twice() {
    let r = Resource::start().await;
    assert_eq!(r.take("5", "1").await, Err(Refusal::NotEnough), "no stock has nothing");
    assert_eq!(r.set(&["5", "left", "3"]).await, Ok(1));
    assert_eq!(r.take_for("5", "2", "anna").await, Ok(1));
    assert_eq!(r.take_for("6", "2", "bert").await, Err(Refusal::NotEnough));
    assert_eq!(r.field("fence").await.as_deref(), Some("5"), "a refusal leaves no trace");
    assert_eq!(r.take_for("4", "1", "bert").await, Err(Refusal::Stale));
    assert_eq!(r.take_for("6", "1", "bert").await, Ok(0));
    // What was lost is the reply, or the process: each repeat hears of the first time.
    assert_eq!(r.take_for("5", "2", "anna").await, Ok(1));
    assert_eq!(r.take_for("7", "2", "anna").await, Ok(1));
    assert_eq!((r.field("left").await.as_deref(), r.field("fence").await.as_deref()), (Some("0"), Some("6")));
    assert_eq!(r.take("7", "1").await, Err(Refusal::NotEnough));
    let receipts = r.redis.clone().hkeys("receipts").await.unwrap();
    assert_eq!(receipts.into_iter().collect::<BTreeSet<_>>(), ["anna".into(), "bert".into()].into());
}

#[tokio::test]
async fn a_large_stock_keeps_all_its_digits() {
    let r = Resource::start().await;
    assert_eq!(r.set(&["1", "left", "9007199254740992"]).await, Ok(1));
    assert_eq!(r.take("1", "1").await, Ok(9_007_199_254_740_991));
    assert_eq!(r.field("left").await.as_deref(), Some("9007199254740991"));
}

#[tokio::test]
async fn wrong_arguments_are_errors_and_change_nothing() {
    let r = Resource::start().await;
    assert_eq!(r.set(&["1", "left", "5", "odd", "many"]).await, Ok(1));
    let mut redis = r.redis.clone();
    redis.set("text", "x").await.unwrap();
    let before = redis.hgetall("r").await.unwrap();
    let calls: &[(&FencedScript, &[&str], &[&str])] = &[
        (&fenced::SET, &["r"], &["2"]),
        (&fenced::SET, &["r"], &["2", "left"]),
        (&fenced::SET, &["r"], &["", "left", "9"]),
        (&fenced::SET, &["r"], &["0", "left", "9"]),
        (&fenced::SET, &["r"], &["-1", "left", "9"]),
        (&fenced::SET, &["r"], &["1e9", "left", "9"]),
        (&fenced::SET, &["r"], &["2", "left", "9", "fence", "1"]),
        (&fenced::SET, &["text"], &["2", "left", "9"]),
        (&fenced::TAKE, &["r"], &["2", "left"]),
        (&fenced::TAKE, &["r"], &["2", "left", "0"]),
        (&fenced::TAKE, &["r"], &["2", "left", "-1"]),
        (&fenced::TAKE, &["r"], &["2", "left", "0.5"]),
        (&fenced::TAKE, &["r"], &["2", "fence", "1"]),
        (&fenced::TAKE, &["r"], &["2", "odd", "1"]),
        (&fenced::TAKE, &["r"], &["2", "left", "1", "who"]),
        (&fenced::TAKE, &["r", "receipts"], &["2", "left", "1"]),
        (&fenced::TAKE, &["r", "text"], &["2", "left", "1", "who"]),
    ];
    for (script, keys, arguments) in calls {
        let reply = r.run(script, keys, arguments).await;
        assert!(reply.is_err(), "{} {keys:?} {arguments:?}: {reply:?}", script.name());
        assert_eq!(redis.hgetall("r").await.unwrap(), before, "{} {arguments:?}", script.name());
    }
}

/// 2000 buyers, three processes, the holder killed five times.
#[tokio::test]
async fn procs_a_flash_sale_sells_what_there_is() {
    let (content, last) = flash_sale(&[]).await;
    assert!(content && last == "summary stock=100 buyers=2000 sold=100 left=0 kills=5", "{last}");
}

#[tokio::test]
async fn procs_a_flash_sale_without_lock_and_fence_sells_too_much() {
    let (content, last) = flash_sale(&["--naive"]).await;
    let sold = last.split("sold=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(!content && sold.parse::<usize>().unwrap() > 100, "{last}");
}

async fn flash_sale(arguments: &[&str]) -> (bool, String) {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let program = tokio::task::spawn_blocking(|| example::build("flash-sale")).await.unwrap();
    let seller = example::start(&program, Some(&server.url()), arguments);
    let status = seller.wait_exit(Duration::from_secs(60)).await.unwrap();
    let lasting = server.keys_without_ttl().await.unwrap();
    assert!(lasting.iter().all(|key| key.ends_with("}!f")), "{lasting:?}");
    (status.success(), seller.lines().last().cloned().unwrap_or_default())
}
