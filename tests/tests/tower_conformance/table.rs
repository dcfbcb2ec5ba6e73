//! The table, as it is read.

use std::collections::BTreeMap;

use serde::Deserialize;

const TABLE: &str = include_str!("../../../docs/conformance/http.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) format: u32,
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Profile {
    pub(crate) require_key: bool,
    pub(crate) syntax: String,
    pub(crate) methods: Vec<String>,
    pub(crate) tell_ignored: bool,
    pub(crate) wait_ms: u64,
    pub(crate) scope_header: Option<String>,
    pub(crate) preset: String,
    pub(crate) request_limit: usize,
    pub(crate) response_limit: usize,
    pub(crate) fingerprint: String,
    pub(crate) key_per_route: bool,
    pub(crate) retention_ms: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            require_key: false,
            syntax: "lenient".into(),
            methods: vec!["POST".into(), "PATCH".into()],
            tell_ignored: false,
            wait_ms: 10_000,
            scope_header: None,
            preset: "stripe".into(),
            request_limit: 1 << 20,
            response_limit: 1 << 20,
            fingerprint: "bytes".into(),
            key_per_route: false,
            retention_ms: 24 * 3_600_000,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) case: String,
    pub(crate) given: String,
    pub(crate) when: Vec<Step>,
    pub(crate) then: End,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    pub(crate) runs: usize,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) send: Option<String>,
    pub(crate) start: Option<String>,
    pub(crate) r#await: Option<String>,
    pub(crate) leave: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) until_runs: Option<usize>,
    pub(crate) release: Option<usize>,
    pub(crate) query: String,
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) then: Option<Seen>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) body: Option<String>,
    pub(crate) length: Option<usize>,
    pub(crate) headers: BTreeMap<String, Option<Vec<String>>>,
    pub(crate) problem: Option<String>,
    pub(crate) broken: bool,
}

pub(crate) fn table() -> Table {
    let table: Table = serde_json::from_str(TABLE).expect("the table is well formed");
    assert_eq!(table.format, 1);
    assert!(table.cases.len() > 30, "the table has shrunk");
    for case in &table.cases {
        assert!(table.profiles.contains_key(&case.given), "\"{}\": no profile {}", case.case, case.given);
    }
    table
}
