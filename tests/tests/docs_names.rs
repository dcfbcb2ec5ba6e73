//! Codes and names that the guide lists are those of the code, all of them and no others.

mod docs;

use std::collections::BTreeSet;

use distlock::ErrorKind;
use docs::{read, root};

/// The first column of the tables, without back-ticks.
fn listed(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn the_guide_explains_every_error_code() {
    let guide = read("distlock/src/guide/errors.md");
    let codes: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(listed(&guide), codes);
    for kind in ErrorKind::ALL {
        let again = if kind.is_retryable() { "yes" } else { "no" };
        let row = format!("| `{}` | `{kind:?}` | {again} |", kind.code());
        assert!(guide.contains(&row), "no row starts with {row}");
    }
}

#[test]
fn the_operators_learn_of_every_error_code() {
    let guide = read("docs/operators.md");
    let listed = listed(&guide);
    for kind in ErrorKind::ALL.iter().filter(|kind| is_for_operators(**kind)) {
        assert!(listed.contains(kind.code()), "{}", kind.code());
    }
}

/// The others are for the programmer alone.
fn is_for_operators(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    !matches!(kind, ConcurrentModification | Deadlock | Unsupported)
}

#[test]
fn the_guide_lists_every_metric() {
    let names = read("distlock-runtime/src/telemetry/mod.rs");
    let emitted: BTreeSet<_> = names.split('"').filter(|text| text.starts_with("distlock_")).collect();
    assert!(emitted.len() >= 10, "{emitted:?}");
    let guide = read("distlock/src/guide/observability.md");
    let listed: BTreeSet<_> =
        listed(&guide).into_iter().filter(|name| name.starts_with("distlock_")).collect();
    assert_eq!(listed, emitted);
}

/// Doc tests of the crates below compile with those crates' names; who reads them has `distlock` alone.
#[test]
fn examples_import_what_readers_have() {
    let at_the_root = read("distlock/src/lib.rs");
    let at_the_root: String = at_the_root.lines().filter(|line| !line.starts_with("//")).collect();
    let at_the_root: BTreeSet<_> = words(&at_the_root).collect();
    let mut seen = 0;
    for (file, line) in ["distlock-runtime/src", "distlock-tower/src"].into_iter().flat_map(documented) {
        assert!(!line.starts_with("use distlock_") && !line.starts_with("distlock_"), "{file}: {line}");
        let Some(path) = line.strip_prefix("use distlock::") else { continue };
        seen += 1;
        for name in imported(path) {
            assert!(at_the_root.contains(name), "{file}: there is no distlock::{name}");
        }
    }
    assert!(seen > 20, "{seen} imports");
}

/// The lines of all doc comments below a folder, with their files.
fn documented(folder: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.display().to_string();
                let text = std::fs::read_to_string(path).unwrap();
                let comments = text
                    .lines()
                    .map(str::trim)
                    .filter_map(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("///")));
                lines.extend(comments.map(|line| (file.clone(), line.trim().to_owned())));
            }
        }
    }
    lines
}

/// The first segments of what `use distlock::…` imports.
fn imported(path: &str) -> Vec<&str> {
    let Some(list) = path.strip_prefix('{') else { return words(path).take(1).collect() };
    let mut depth = 0;
    let names = list.split_inclusive([',', '{', '}']).filter_map(|item| {
        let is_outer = depth == 0;
        depth += item.matches('{').count();
        depth = depth.saturating_sub(item.matches('}').count());
        if is_outer { words(item).next() } else { None }
    });
    names.filter(|name| *name != "self").collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[test]
fn what_is_imported_is_found() {
    assert_eq!(imported("LockManager;"), ["LockManager"]);
    assert_eq!(imported("records::{Packing, SealKeys};"), ["records"]);
    assert_eq!(imported("{Clock, testkit::{self, Call}, Wait};"), ["Clock", "testkit", "Wait"]);
}

#[test]
fn every_feature_is_told_of_in_the_readme_and_on_the_first_page() {
    let manifest = read("distlock/Cargo.toml");
    let section = manifest.split("[features]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let features: Vec<_> = section
        .lines()
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .filter(|name| !name.starts_with('#') && *name != "default")
        .collect();
    assert!(features.len() >= 10, "{features:?}");
    for page in ["README.md", "distlock/src/guide/getting_started.md"] {
        let text = read(page);
        for feature in &features {
            let named = text.contains(&format!("`{feature}`")) || text.contains(&format!("`{feature}://`"));
            assert!(named || *feature == "redis", "{page} doesn't tell of the feature {feature}");
        }
    }
}
