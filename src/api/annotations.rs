//! Annotations below the controller's prefix: those that have no effect (unknown names, and values that are not
//! understood), and the labels in `default-labels`.

use std::collections::BTreeMap;

use super::names::annotation;
use super::redact::display_value;
use super::schema::closest_match;

const PREFIX: &str = "instancemgr.keikoproj.io/";

/// Annotations that are either true or false.
const SWITCHES: [&str; 7] = [
    annotation::CONFIG_EXCLUDED,
    annotation::LOCK_UPGRADES,
    annotation::PROTECT_DELETION,
    annotation::IRSA_ENABLED,
    annotation::CLUSTER_AUTOSCALER_ENABLED,
    annotation::CUSTOM_NETWORKING_ENABLED,
    annotation::CUSTOM_NETWORKING_PREFIX,
];

/// Annotations with other values, which the parts that read them check.
const OTHERS: [&str; 5] = [
    annotation::CONFIRM_DELETION,
    annotation::DEFAULT_LABELS,
    annotation::OS_FAMILY,
    annotation::CUSTOM_NETWORKING_HOST_PODS,
    annotation::ROTATE_AT,
];

/// The annotations of a group that the controller reads.
#[cfg(test)]
pub(crate) fn group_annotations() -> impl Iterator<Item = &'static str> {
    SWITCHES.into_iter().chain(OTHERS).filter(|key| *key != annotation::CONFIG_EXCLUDED)
}

/// One sentence for each annotation below the controller's prefix that has no effect, with the remedy.
pub(crate) fn ignored_annotations(annotations: &BTreeMap<String, String>) -> Vec<String> {
    let ours = annotations.iter().filter(|(key, _)| key.starts_with(PREFIX));
    ours.filter_map(|(key, value)| problem(key, value)).collect()
}

fn problem(key: &str, value: &str) -> Option<String> {
    if SWITCHES.contains(&key) {
        let word = value.trim().to_ascii_lowercase();
        let is_understood = match key {
            annotation::LOCK_UPGRADES | annotation::PROTECT_DELETION => is_true_word(value),
            _ => value.eq_ignore_ascii_case("true"),
        };
        let is_false = word.is_empty() || ["false", "no", "off", "0", "f", "n"].contains(&word.as_str());
        let shown = display_value(key, &value.into());
        return (!is_understood && !is_false)
            .then(|| format!("{key} {shown} has no effect; use \"true\" or \"false\""));
    }
    Some(match unknown_name(key)? {
        Some(near) => format!("{key} is not a known annotation; did you mean {near}?"),
        None => format!("{key} is not a known annotation; remove it"),
    })
}

/// The likely name for an unknown annotation below the controller's prefix, if there is one; `None` for any other
/// annotation.
pub(crate) fn unknown_name(key: &str) -> Option<Option<&'static str>> {
    if !key.starts_with(PREFIX) || SWITCHES.contains(&key) || OTHERS.contains(&key) {
        return None;
    }
    let closest = closest_match(key, SWITCHES.into_iter().chain(OTHERS));
    // All names share the prefix, so only a name that also resembles another one behind it is a likely typing error.
    let name = |key: &str| key[PREFIX.len()..].to_owned();
    Some(closest.filter(|near| closest_match(&name(key), [name(near).as_str()].into_iter()).is_some()))
}

/// The items of the annotation `default-labels`: `key=value`, or an error with the item where it is anything else.
pub(crate) fn label_items(text: &str) -> impl Iterator<Item = Result<(&str, &str), &str>> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| match item.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.contains('=') => Ok((key, value)),
        _ => Err(item),
    })
}

/// Whether the value of `lock-upgrades` or `protect-deletion` is a usual word for "true". Both are emergency brakes.
pub(crate) fn is_true_word(value: &str) -> bool {
    ["true", "yes", "on", "1", "t", "y"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(annotations: &[(&str, &str)]) -> Vec<String> {
        let keys = annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        ignored_annotations(&keys.collect())
    }

    #[test]
    fn misspelled_annotations_are_reported_with_the_likely_name() {
        let found = messages(&[("lock-upgrade", "true"), ("os-famly", "windows"), ("colour", "red")]);
        assert_eq!(
            found,
            [
                "instancemgr.keikoproj.io/colour is not a known annotation; remove it",
                "instancemgr.keikoproj.io/lock-upgrade is not a known annotation; did you mean instancemgr.keikoproj.io/lock-upgrades?",
                "instancemgr.keikoproj.io/os-famly is not a known annotation; did you mean instancemgr.keikoproj.io/os-family?",
            ]
        );
        let others = BTreeMap::from([("example.com/lock-upgrade".to_owned(), "true".to_owned())]);
        assert_eq!(ignored_annotations(&others), [""; 0]);
    }

    #[test]
    fn switches_with_unclear_values_are_reported() {
        for value in ["true", "TRUE", "yes", " on ", "1", "false", "no", "off", "0", ""] {
            assert_eq!(messages(&[("lock-upgrades", value)]), [""; 0], "{value:?}");
        }
        let found = messages(&[("lock-upgrades", "please"), ("irsa-enabled", "yes"), ("default-labels", "yes")]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "instancemgr.keikoproj.io/irsa-enabled \"yes\" has no effect; use \"true\" or \"false\"");
        assert!(found[1].contains("lock-upgrades \"please\""));
    }
}
