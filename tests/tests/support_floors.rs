//! The order of the rooms in distlock-runtime (CONTRIBUTING.md): a room names only rooms of its own floor or below.

use std::{collections::BTreeMap, fs, path::Path};

/// Ground floor first.
const FLOORS: &[&[&str]] = &[
    &["clock", "error", "key", "telemetry", "token", "ttl"],
    &["backend", "problem"],
    &["lease"],
    &["queue"],
    &["engine"],
    &["lock", "record"],
    &["manager"],
    &["testkit"],
];

#[test]
fn no_room_imports_from_a_floor_above() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../distlock-runtime/src");
    let floor_of: BTreeMap<&str, usize> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(floor, rooms)| rooms.iter().map(move |room| (*room, floor)))
        .collect();
    let mut faults = Vec::new();
    let mut imports = 0;
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        let room = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if room == "lib" {
            continue;
        }
        let Some(floor) = floor_of.get(room.as_str()) else {
            faults.push(format!("the room `{room}` has no floor: give it one, here and in CONTRIBUTING.md"));
            continue;
        };
        for file in rust_files(&path) {
            let text = fs::read_to_string(&file).unwrap();
            let code: String = text.lines().filter(|line| !is_comment(line)).collect();
            for named in rooms_named(&code) {
                imports += 1;
                match floor_of.get(named.as_str()) {
                    Some(other) if other <= floor => {}
                    Some(_) => faults.push(format!("{} names `{named}`, a floor above", file.display())),
                    // The top floor works with the crate's face, as users do.
                    None if room == "testkit" => {}
                    None => faults.push(format!("{}: `crate::{named}` hides its room", file.display())),
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(imports > 20, "only {imports} imports found: does the test still read them?");
}

#[test]
fn finds_what_code_names() {
    assert_eq!(rooms_named("use crate::{key::LockKey, error::{self, LockError}};"), ["key", "error"]);
    assert_eq!(rooms_named("let x: crate::ttl::Ttl = crate::clock::now();"), ["ttl", "clock"]);
    assert_eq!(rooms_named("pub(crate) fn crate_name() {}"), Vec::<String>::new());
    assert!(is_comment("    /// like [`crate::manager`]"));
}

/// A room is a file, or a folder with files.
fn rust_files(room: &Path) -> Vec<std::path::PathBuf> {
    if room.is_dir() {
        fs::read_dir(room).unwrap().flat_map(|entry| rust_files(&entry.unwrap().path())).collect()
    } else if room.extension().is_some_and(|extension| extension == "rs") {
        vec![room.to_owned()]
    } else {
        Vec::new()
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The first path segments behind each `crate::`, of a brace group too.
fn rooms_named(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    // In a macro's output, `$crate::` is a way in for users.
    for rest in code.replace("$crate::", "").split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.extend(first_segment(rest));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => {
                    found.extend(first_segment(&group[start..at]));
                    break;
                }
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.extend(first_segment(&group[start..at]));
                    start = at + 1;
                }
                _ => {}
            }
        }
    }
    found
}

fn first_segment(path: &str) -> Option<String> {
    let name: String =
        path.trim().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    (!name.is_empty()).then_some(name)
}
