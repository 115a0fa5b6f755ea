//! Durations in Go's notation, which Kubernetes uses: `90s`, `15m`, `1h30m`.

use jiff::{SignedDuration, Timestamp};

/// Parses Go's notation with the units h, m, s and ms; decimals are allowed. `None` for anything else, including a
/// negative or empty text.
///
/// ```
/// use instance_manager::util::duration;
///
/// assert_eq!(duration::parse("1h30m"), Some(jiff::SignedDuration::from_mins(90)));
/// assert_eq!(duration::parse("90"), None, "the unit is missing");
/// assert_eq!(duration::format(jiff::SignedDuration::from_secs(90)), "1m30s");
/// ```
pub fn parse(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..units] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                _ => return None,
            };
        rest = &rest[units..];
    }
    (!text.is_empty()).then(|| SignedDuration::try_from_secs_f64(total).ok()).flatten()
}

/// The time that is `by` after `at`, or the last one there is. kubelets and users can write any time to a Node.
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Formats a duration as `45s`, `15m` or `1h30m`, in whole seconds.
pub fn format(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let part = |n: i64, unit: &str| if n == 0 { String::new() } else { format!("{n}{unit}") };
    match part(h, "h") + &part(m, "m") + &part(s, "s") {
        text if text.is_empty() => "0s".into(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_go_notation() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h30m", 5400), ("1.5h", 5400), ("1500ms", 1)] {
            assert_eq!(parse(text).map(|d| d.as_secs()), Some(seconds), "{text}");
        }
        for invalid in ["", "15", "m", "-5m", "5 m", "5d", "1..5h"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn format_omits_zero_units() {
        assert_eq!(format(SignedDuration::from_secs(5400)), "1h30m");
        assert_eq!(format(SignedDuration::ZERO), "0s");
    }
}
