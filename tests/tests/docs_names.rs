//! Codes and names that the guide lists are those of the code, all of them and no others.

mod docs;

use std::collections::BTreeSet;

use distlock::ErrorKind;
use docs::read;

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

/// The others are for the programmer alone, or belong to stores that aren't there yet.
fn is_for_operators(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    !matches!(kind, ConcurrentModification | Deadlock | Quorum | Unsupported)
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
