//! "did you mean" for names.

/// The candidate that `wrong` is most likely a slip of, if one is near enough.
pub(crate) fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wrong.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(wrong, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits from `a` to `b`, a swap of neighbours counting as one (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_name() {
        let names = ["ttl", "wait", "reentrant", "max_hold"];
        assert_eq!(nearest("tll", names), Some("ttl"));
        assert_eq!(nearest("re_entrant", names), Some("reentrant"));
        assert_eq!(nearest("maxhold", names), Some("max_hold"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("fair", names), None);
        assert_eq!(nearest("", names), None);
    }
}
