//! The table of guarantees in the documents is what the stores say of themselves.

mod docs;

use std::fs;

use distlock::{
    Guarantees,
    backend::{
        Backend as _, Clock,
        memory::MemoryBackend,
        redis::{RedisBackend, RedisOptions},
    },
};
use docs::{read, root, section};

const DOCUMENTS: &[&str] = &["README.md", "distlock/src/guide/guarantees.md"];

#[test]
fn the_table_is_what_the_stores_say() {
    let memory = MemoryBackend::new(Clock::System, "docs");
    let redis = RedisBackend::open(&RedisOptions::new("localhost"), Clock::System).unwrap();
    let table = Guarantees::table(&[memory.guarantees(), redis.guarantees()]);
    for path in DOCUMENTS {
        let mut text = read(path);
        let (start, end) = section(&text, "guarantees");
        if text[start..end] == table {
            continue;
        }
        assert!(
            std::env::var_os("DISTLOCK_BLESS").is_some(),
            "{path} tells another story than the stores; run this test with DISTLOCK_BLESS=1\n{table}"
        );
        text.replace_range(start..end, &table);
        fs::write(root().join(path), text).unwrap();
    }
}
