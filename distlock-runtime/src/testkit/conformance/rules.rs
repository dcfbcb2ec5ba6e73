//! What each case asks of a store, in the words above it.

macro_rules! sources {
    ([] $($room:ident: [$($case:ident),* $(,)?])*) => {
        &[$((stringify!($room), include_str!(concat!(stringify!($room), ".rs")))),*]
    };
}

const SOURCES: &[(&str, &str)] = crate::__conformance_cases!([sources] []);

/// The text above the case.
pub(super) fn rule(room: &str, case: &str) -> String {
    let source = SOURCES.iter().find(|(name, _)| *name == room).map_or("", |(_, source)| source);
    let head = format!("pub async fn {case}(");
    let Some(above) = source.split_once(&head).map(|(above, _)| above) else { return String::new() };
    let mut lines: Vec<&str> =
        above.lines().rev().map_while(|line| line.strip_prefix("///")).map(str::trim).collect();
    lines.reverse();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::conformance::Case;

    #[test]
    fn every_case_says_what_it_asks_for() {
        for case in Case::all() {
            let rule = case.rule();
            assert!(rule.len() > 20 && rule.ends_with('.'), "{case}: {rule:?}");
        }
        assert!(Case::all().len() > 100);
        assert_eq!(
            rule("attempts", "a_released_lock_can_be_had_again"),
            "A lock that was released can be had again, by the same client and by others."
        );
    }
}
