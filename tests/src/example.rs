//! The examples, as their readers run them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::procs::Worker;

/// The program, built as `cargo run --example <name>` builds it: cargo gives a test no path to another package's example.
///
/// # Panics
/// When it can't be built.
pub fn build(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--example", name, "--message-format", "json-render-diagnostics"]);
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace"));
    // What cargo tells this test about its own package would make build scripts run again, and all that needs them be built again:
    // here, and once more when somebody builds by hand.
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") || told == "OUT_DIR" {
            cargo.env_remove(name);
        }
    }
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let Output { status, stdout, stderr } = cargo.output().expect("cargo runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let messages = String::from_utf8(stdout).expect("cargo writes UTF-8");
    let artifact = messages
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("cargo writes JSON"))
        .find(|message| message["target"]["name"] == name && message["executable"].is_string());
    artifact.expect("cargo names what it built")["executable"].as_str().expect("a path").into()
}

/// Starts a program that finds its store in the environment; none: in its memory.
///
/// # Panics
/// When it can't be started.
pub fn start(program: &Path, url: Option<&str>, arguments: &[&str]) -> Worker {
    // `env` becomes the program, so the worker's process is the program's.
    let mut line = match url {
        Some(url) => vec![format!("DISTLOCK_URL={url}")],
        None => vec!["-u".to_owned(), "DISTLOCK_URL".to_owned()],
    };
    line.push(program.to_str().expect("a path in UTF-8").to_owned());
    line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Worker::spawn("env", line).expect("the program starts")
}
