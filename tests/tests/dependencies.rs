//! What is not asked for isn't built: the stores' client crates come with their features alone, and the examples need no protoc.

use std::{collections::BTreeSet, process::Command};

/// The client crates of a store, and what only they bring.
const CLIENTS: &[(&str, &[&str])] = &[
    ("redis", &["redis"]),
    ("etcd", &["etcd-client", "tonic"]),
    ("postgres", &["tokio-postgres", "postgres-protocol"]),
    ("zookeeper", &["zookeeper-client"]),
];

/// Runs protoc when it is built.
const ASKS_FOR_PROTOC: &str = "prost-build";

/// The crates that a build with these arguments has, by name.
fn crates(arguments: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo.args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}"]).args(arguments);
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let names: BTreeSet<String> =
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(names.contains("tokio"), "{arguments:?}: {text}");
    names
}

/// Whose client crates are among them.
fn stores(crates: &BTreeSet<String>) -> Vec<&'static str> {
    let has = |clients: &[&str]| clients.iter().any(|client| crates.contains(*client));
    CLIENTS.iter().filter(|(_, clients)| has(clients)).map(|(store, _)| *store).collect()
}

#[test]
fn a_build_has_the_clients_of_the_stores_that_it_asks_for_and_no_others() {
    const BUILDS: &[(&[&str], &[&str])] = &[
        (&[], &["redis"]),
        (&["--no-default-features"], &[]),
        (&["--no-default-features", "--features", "testkit,tower,idempotent,metrics"], &[]),
        (&["--features", "axum,client,compress,seal,redis-tls"], &["redis"]),
        (&["--no-default-features", "--features", "etcd"], &["etcd"]),
        (&["--no-default-features", "--features", "etcd-tls"], &["etcd"]),
        (&["--no-default-features", "--features", "postgres"], &["postgres"]),
        (&["--no-default-features", "--features", "postgres-tls"], &["postgres"]),
        (&["--no-default-features", "--features", "zookeeper"], &["zookeeper"]),
        (&["--no-default-features", "--features", "zookeeper-sasl"], &["zookeeper"]),
        (&["--no-default-features", "--features", "zookeeper-tls"], &["zookeeper"]),
        (&["--features", "etcd,postgres,zookeeper"], &["redis", "etcd", "postgres", "zookeeper"]),
    ];
    for (features, wanted) in BUILDS {
        let found = crates(&[&["-p", "distlock", "-e", "normal,build"], *features].concat());
        assert_eq!(stores(&found), *wanted, "{features:?}");
        assert_eq!(found.contains(ASKS_FOR_PROTOC), wanted.contains(&"etcd"), "{features:?}");
    }
}

/// What SASL and TLS for ZooKeeper bring comes with their features alone.
#[test]
fn zookeeper_alone_has_neither_sasl_nor_tls() {
    for (feature, sasl, tls) in
        [("zookeeper", false, false), ("zookeeper-sasl", true, false), ("zookeeper-tls", false, true)]
    {
        let found =
            crates(&["-p", "distlock", "-e", "normal,build", "--no-default-features", "--features", feature]);
        let has = |name: &str| found.contains(name);
        assert_eq!((has("rsasl"), has("rustls"), has("aws-lc-rs")), (sasl, tls, tls), "{feature}");
    }
}

/// `cargo run --example orders` builds the default members with all that their examples and tests need.
#[test]
fn the_default_members_need_no_protoc() {
    let found = crates(&["-e", "normal,build,dev"]);
    assert!(found.contains("distlock") && found.contains("examples"), "{found:?}");
    assert!(!found.contains("distlock-tests"));
    assert!(!found.contains(ASKS_FOR_PROTOC), "an example's build would ask for protoc");
    // And it would be noticed.
    assert!(crates(&["-p", "distlock-tests", "-e", "normal,build"]).contains(ASKS_FOR_PROTOC));
}
