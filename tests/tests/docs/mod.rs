//! Reading the documents of the repository.

#![allow(dead_code)] // each suite reads in its own way

use std::{fs, path::PathBuf};

/// The repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A document, by its path from the root.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between the lines `<!-- NAME: begin … -->` and `<!-- NAME: end -->`: where it starts and where it ends.
pub(crate) fn section(text: &str, name: &str) -> (usize, usize) {
    let begin = format!("<!-- {name}: begin");
    let start = text.find(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let start = start + text[start..].find("-->\n").expect("the comment is a line of its own") + 4;
    let end = text[start..].find(&format!("<!-- {name}: end -->")).expect("a section ends");
    (start, start + end)
}
