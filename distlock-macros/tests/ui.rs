//! What a wrong use of `#[distributed_lock]` says: one message at the place of the mistake, which tells how to mend it.
//!
//! After a deliberate change: `TRYBUILD=overwrite cargo test -p distlock-macros --test ui`, then read the diff.

#[test]
fn messages() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
