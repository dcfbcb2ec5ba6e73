//! What a key is, whose it is, and which request it stands for.

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use distlock::records::{ClaimRequest, Claimed, CrashPolicy, Fingerprint, RecordKey};
use distlock_tests::wait;
use distlock_tower::{FingerprintRule, IdempotencyLayer, KeyRule, KeySyntax, Scope, StaleKeys};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;

use crate::tower_support::{LIMIT, Runs, Store, ask, keyed};
use crate::{app, builder, memory};

crate::on_every_store!(
    a_key_that_is_older_than_every_record_is_refused_unless_it_has_one,
    a_record_made_by_an_unknown_rule_is_neither_replayed_nor_run,
    a_record_of_another_deployment_is_compared_by_its_own_rule,
    an_expired_record_executes_again,
    delimiters_and_globs_in_keys_mean_nothing,
);

#[tokio::test]
async fn the_strict_mode_takes_the_quoted_form_only() {
    let (locks, runs) = (memory().await, Runs::open());
    let app = app(&runs, builder(&locks).syntax(KeySyntax::Strict));
    ask(&app, keyed("/pay", "8e03978e-40d5-43dd-bc93-6894a57f9324", ""))
        .await
        .assert_problem(400, "key-invalid");
    for _ in 0..2 {
        assert_eq!(ask(&app, keyed("/pay", "\"8e03978e\";v=1", "")).await.text(), "run 1");
    }
}

#[tokio::test]
async fn a_key_that_can_be_guessed_is_refused_where_that_is_the_rule() {
    let (locks, runs) = (memory().await, Runs::open());
    let uuid_like = KeyRule::custom(|key| if key.contains('-') { Ok(()) } else { Err("no dash".into()) });
    let app = app(&runs, builder(&locks).key_rule(KeyRule::min_entropy(80)).key_rule(uuid_like));
    for weak in ["order-17", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        ask(&app, keyed("/pay", weak, "")).await.assert_problem(400, "key-invalid");
    }
    assert_eq!(ask(&app, keyed("/pay", "8e03978e-40d5-43dd-bc93-6894a57f9324", "")).await.text(), "run 1");
    assert_eq!(runs.total(), 1);
}

async fn delimiters_and_globs_in_keys_mean_nothing(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let by_user = IdempotencyLayer::builder(&locks)
        .scope(|parts| parts.headers.get("x-user").map(|user| Scope::new(user.as_bytes())));
    let app = app(&runs, by_user);
    let keys = [
        ("ann", "a:b"),
        ("ann:a", "b"),
        ("ann", "a*"),
        ("ann", "*"),
        ("ann", "{a}b"),
        ("ann", "a\\b"),
        ("", "ann:a:b"),
    ];
    for again in [false, true] {
        for (user, key) in keys {
            let mut request = keyed("/pay", key, "");
            request.headers_mut().insert("x-user", HeaderValue::from_static(user));
            assert_eq!(ask(&app, request).await.is_replay(), again, "{user} {key}");
        }
    }
    assert_eq!(runs.total(), keys.len());
}

#[tokio::test]
async fn the_same_key_on_another_route_is_a_record_of_its_own_by_choice() {
    let (locks, runs) = (memory().await, Runs::open());
    let shared = app(&runs, builder(&locks));
    assert_eq!(ask(&shared, keyed("/pay", "k", "")).await.text(), "run 1");
    ask(&shared, keyed("/refund", "k", "")).await.assert_problem(422, "key-reused");

    let apart = app(&runs, builder(&locks).key_per_route());
    assert_eq!(ask(&apart, keyed("/pay", "k", "")).await.text(), "run 2");
    assert_eq!(ask(&apart, keyed("/refund", "k", "")).await.text(), "run 3");
    let mut patch = keyed("/pay", "k", "");
    *patch.method_mut() = Method::PATCH;
    assert_eq!(ask(&apart, patch).await.text(), "run 4");
    // Within a route, another request is still a mistake.
    ask(&apart, keyed("/pay?x=1", "k", "")).await.assert_problem(422, "key-reused");
    assert!(ask(&apart, keyed("/refund", "k", "")).await.is_replay());
}

/// A UUID of version 7 that was made so long ago.
#[allow(clippy::disallowed_methods, reason = "keys carry wall-clock times")]
fn uuid_7(age: Duration) -> String {
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - age;
    let time = format!("{:012x}", made.as_millis());
    format!("{}-{}-7cc3-98c4-{:012x}", &time[..8], &time[8..], fastrand::u64(..1 << 48))
}

const HOUR: Duration = Duration::from_secs(3600);

async fn a_key_that_is_older_than_every_record_is_refused_unless_it_has_one(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let refusing = app(&runs, builder(&locks).retention(24 * HOUR));
    let old = uuid_7(25 * HOUR);
    for key in [old.as_str(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        for _ in 0..2 {
            ask(&refusing, keyed("/pay", key, "")).await.assert_problem(412, "key-expired");
        }
    }
    assert_eq!(runs.total(), 0);
    assert_eq!(ask(&refusing, keyed("/pay", &uuid_7(23 * HOUR), "")).await.text(), "run 1");
    // The choice to execute such keys makes a record, and a record is replayed whatever the key's age.
    let executing = app(&runs, builder(&locks).stale_keys(StaleKeys::Execute));
    assert_eq!(ask(&executing, keyed("/pay", &old, "")).await.text(), "run 2");
    assert!(ask(&refusing, keyed("/pay", &old, "")).await.is_replay());
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the header carries a wall-clock time")]
async fn a_request_that_was_first_sent_before_the_retention_is_refused() {
    let (locks, runs) = (memory().await, Runs::open());
    let header = HeaderName::from_static("repeatability-first-sent");
    let app = app(&runs, builder(&locks).retention(HOUR).first_sent(header.clone()));
    let sent = async |key: &str, value: String| {
        let mut request = keyed("/pay", key, "");
        request.headers_mut().insert(&header, HeaderValue::try_from(value).unwrap());
        ask(&app, request).await
    };
    let before = |age: Duration| httpdate::fmt_http_date(SystemTime::now() - age);
    sent("old", before(2 * HOUR)).await.assert_problem(412, "key-expired");
    sent("odd", "yesterday".to_owned()).await.assert_problem(400, "key-invalid");
    assert_eq!(sent("new", before(HOUR / 2)).await.text(), "run 1");
    assert_eq!(runs.total(), 1);
}

async fn an_expired_record_executes_again(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let app = app(&runs, builder(&locks).retention(Duration::from_secs(3)));
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.text(), "run 1");
    assert!(ask(&app, keyed("/pay", "k", "")).await.is_replay());
    let again = wait::until("the record's end", LIMIT, async || {
        Some(ask(&app, keyed("/pay", "k", "")).await).filter(|reply| !reply.is_replay())
    });
    assert_eq!(again.await.unwrap().text(), "run 2");
}

#[tokio::test]
async fn a_method_that_is_safe_by_itself_can_not_be_covered() {
    let locks = memory().await;
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "QUERY"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let error = builder(&locks).methods([Method::POST, method.clone()]).build().unwrap_err();
        assert_eq!(error.code(), "CONFIG", "{method}");
    }
}

#[tokio::test]
async fn a_key_that_is_not_covered_is_ignored_and_told_so_by_choice() {
    let (locks, runs) = (memory().await, Runs::open());
    let silent = app(&runs, builder(&locks));
    let telling = app(&runs, builder(&locks).tell_ignored());
    let sent = async |app: &Router, method: Method, key: Option<&str>| {
        let mut request = Request::builder().method(method).uri("/pay");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let reply = ask(app, request.body(Full::<Bytes>::default()).unwrap()).await;
        reply.headers.get("idempotency-status").map(|status| status.to_str().unwrap().to_owned())
    };
    // A preflight is never claimed, nor is anything else without effects.
    for method in [Method::OPTIONS, Method::GET, Method::HEAD, Method::PUT] {
        for _ in 0..2 {
            assert_eq!(sent(&silent, method.clone(), Some("k")).await, None, "{method}");
            assert_eq!(
                sent(&telling, method.clone(), Some("k")).await.as_deref(),
                Some("ignored"),
                "{method}"
            );
        }
        assert_eq!(sent(&telling, method, None).await, None);
    }
    assert_eq!(runs.total(), 4 * 5);
    assert_eq!(sent(&telling, Method::POST, Some("k")).await, None, "covered");
}

#[tokio::test]
async fn a_key_is_required_on_the_routes_that_say_so() {
    let (locks, runs) = (memory().await, Runs::open());
    let by_path = builder(&locks).require_key_if(|parts| parts.uri.path() == "/pay");
    let by_layer = Router::new()
        .route("/pay", post(crate::pay).layer(builder(&locks).require_key().build().unwrap()))
        .route("/refund", post(crate::pay).layer(builder(&locks).build().unwrap()))
        .with_state(runs.clone());
    for app in [app(&runs, by_path), by_layer] {
        let plain = |path| Request::post(path).body(Full::<Bytes>::default()).unwrap();
        let before = runs.total();
        ask(&app, plain("/pay")).await.assert_problem(400, "key-missing");
        assert_eq!(runs.total(), before);
        assert!(ask(&app, plain("/refund")).await.status.is_success());
    }
}

fn json(body: &'static str) -> Request<Full<Bytes>> {
    let mut request = keyed("/pay", "k", body);
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    request
}

#[tokio::test]
async fn a_json_body_that_is_written_anew_is_the_same_request_by_choice() {
    let written = r#"{"amount": 5, "to": "ann", "sent": 1}"#;
    let anew = r#"{"to":"ann","sent":1,"amount":5}"#;
    let resent = r#"{"to":"ann","sent":2,"amount":5}"#;
    let other = r#"{"to":"ann","sent":1,"amount":6}"#;
    let fields = FingerprintRule::json_fields(["/amount", "/to"]);
    for (rule, same) in [
        (FingerprintRule::bytes(), [false, false]),
        (FingerprintRule::canonical_json(), [true, false]),
        (fields, [true, true]),
    ] {
        let (locks, runs) = (memory().await, Runs::open());
        let app = app(&runs, builder(&locks).fingerprint(rule.clone()));
        assert_eq!(ask(&app, json(written)).await.text(), "run 1");
        for (body, same) in [(anew, same[0]), (resent, same[1]), (other, false)] {
            let reply = ask(&app, json(body)).await;
            if same {
                assert!(reply.is_replay(), "{rule:?} {body}");
            } else {
                reply.assert_problem(422, "key-reused");
            }
        }
        assert_eq!(runs.total(), 1);
    }
}

#[tokio::test]
async fn request_headers_count_where_they_are_named() {
    let (locks, runs) = (memory().await, Runs::open());
    let rule = FingerprintRule::bytes().and_headers([http::header::ACCEPT_LANGUAGE]);
    let app = app(&runs, builder(&locks).fingerprint(rule));
    let sent = async |language: &'static str| {
        let mut request = keyed("/pay", "k", "");
        request.headers_mut().insert("accept-language", HeaderValue::from_static(language));
        ask(&app, request).await
    };
    assert_eq!(sent("de").await.text(), "run 1");
    assert!(sent("de").await.is_replay());
    sent("en").await.assert_problem(422, "key-reused");
}

async fn a_record_of_another_deployment_is_compared_by_its_own_rule(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let fields = FingerprintRule::json_fields(["/amount"]);
    let old = app(&runs, builder(&locks).fingerprint(fields.clone()));
    let new = app(&runs, builder(&locks).former_fingerprint(fields));
    assert_eq!(ask(&old, json(r#"{"amount":5,"sent":1}"#)).await.text(), "run 1");
    assert!(ask(&new, json(r#"{"amount":5,"sent":2}"#)).await.is_replay());
    ask(&new, json(r#"{"amount":6,"sent":1}"#)).await.assert_problem(422, "key-reused");
    assert_eq!(runs.total(), 1);
}

async fn a_record_made_by_an_unknown_rule_is_neither_replayed_nor_run(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let app = app(&runs, builder(&locks));
    // As a later version would write it.
    let claim = ClaimRequest {
        key: RecordKey::derive("distlock.idempotency.1.anonymous", &[b"k"]),
        fingerprint: Fingerprint { version: 99, digest: [0; 32] },
        lease: distlock::Ttl::DEFAULT,
        after_crash: CrashPolicy::Takeover,
        retain: HOUR,
        note: distlock::records::RecordNote::new(),
    };
    let Claimed::Execute(_claim) = locks.records().unwrap().claim(claim).await.unwrap() else {
        panic!("the key is free");
    };
    ask(&app, keyed("/pay", "k", "")).await.assert_problem(503, "record-unreadable");
    assert_eq!(runs.total(), 0);
}
