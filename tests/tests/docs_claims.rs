//! Every claim in the documents names a test that exists.

mod docs;

use std::{fs, path::Path};

use docs::{read, root, section};

/// Where `path::name` may be: `path.rs` below one of these.
const HOMES: &[&str] = &[
    "tests/tests",
    "distlock-macros/tests",
    "distlock-runtime/tests",
    "distlock-runtime/src",
    "distlock-tower/src",
];

/// The cases of the conformance suite.
const CASES: &str = "distlock-runtime/src/testkit/conformance/cases.rs";

#[test]
fn every_claim_names_a_test_that_exists() {
    all_name_tests("README.md");
}

#[test]
fn every_edge_of_the_idempotency_layer_names_a_test_that_exists() {
    all_name_tests("docs/conformance/edges.md");
}

fn all_name_tests(document: &str) {
    let text = read(document);
    let (start, end) = section(&text, "claims");
    let rows: Vec<_> = text[start..end].lines().skip(2).collect();
    assert!(rows.len() > 10, "the table has gone");
    let mut missing = Vec::new();
    for row in rows {
        let (claim, proofs) = row.trim_matches(['|', ' ']).split_once(" | ").expect("two columns");
        let names: Vec<_> = proofs.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            missing.push(format!("\"{claim}\" names no test"));
        }
        missing.extend(names.iter().filter(|name| !exists(name)).map(|name| format!("\"{claim}\": {name}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A test `path::name`, or a row `bench G1` of the benchmarks.
fn exists(proof: &str) -> bool {
    if let Some(row) = proof.strip_prefix("bench ") {
        return files(&root().join("tests/src/bin/bench"))
            .iter()
            .any(|text| text.contains(&format!("\"{row}\"")));
    }
    let Some((path, name)) = proof.split_once("::") else { return false };
    HOMES.iter().any(|home| {
        let Ok(text) = fs::read_to_string(root().join(home).join(path).with_extension("rs")) else {
            return false;
        };
        is_test(&text, name)
            || text.contains("on_every_store!(") && lists(&text, name)
            || text.contains("conformance!(") && lists(&read(CASES), name)
    })
}

/// Whether the function of this name stands below a test attribute.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().collect();
    lines.iter().enumerate().any(|(at, line)| {
        let line = line.trim_start().trim_start_matches("async ");
        line.starts_with(&format!("fn {name}("))
            && lines[..at]
                .iter()
                .rev()
                .map(|line| line.trim_start())
                .take_while(|line| line.starts_with('#') || line.starts_with("//"))
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

/// Whether a macro that makes tests has this name in its list.
fn lists(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let on_one_line = line.split_once("!(").filter(|_| line.ends_with(");")).map(|(_, list)| list);
        on_one_line.unwrap_or(line.trim()).split_inclusive(',').any(|word| word.trim() == format!("{name},"))
    })
}

fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path) } else { vec![fs::read_to_string(&path).unwrap_or_default()] }
        })
        .collect()
}

#[test]
fn what_is_not_a_test_is_not_found() {
    assert!(exists("docs_claims::what_is_not_a_test_is_not_found"));
    for proof in ["docs_claims::is_test", "docs_claims::nothing_of_this_name", "nowhere::at_all", "words"] {
        assert!(!exists(proof), "{proof}");
    }
}
