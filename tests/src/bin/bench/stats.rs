//! Time, percentiles, medians.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes of a machine share.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this process has used.
pub(crate) fn cpu_time() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let whole = u64::try_from(time.tv_sec).expect("these clocks start at zero");
    let rest = u64::try_from(time.tv_nsec).expect("nanoseconds are positive");
    whole * 1_000_000_000 + rest
}

/// The value below which this share of the values lies; sorts them. Zero without values.
pub(crate) fn percentile(values: &mut [u64], share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let place = ((values.len() - 1) as f64 * share).round() as usize;
    *values.select_nth_unstable(place).1 as f64
}

/// The middle one; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let mut values: Vec<u64> = (0..=100).rev().collect();
        assert_eq!(percentile(&mut values, 0.99), 99.0);
        assert_eq!(percentile(&mut values, 0.5), 50.0);
        assert_eq!(percentile(&mut [], 0.5), 0.0);
    }
}
