//! Annotations below the controller's prefix: those that have no effect (unknown names, and values that are not
//! understood) or another one than is likely meant, and the labels in `default-labels`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::enums::{OsFamily, ProvisionerKind, UserDataStage};
use super::names::annotation;
use super::redact::display_value;
use super::schema::closest_match;
use crate::util::calendar::parse_window;

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
const OTHERS: [&str; 9] = [
    annotation::CONFIRM_DELETION,
    annotation::DEFAULT_LABELS,
    annotation::OS_FAMILY,
    annotation::CUSTOM_NETWORKING_HOST_PODS,
    annotation::ROTATE_AT,
    annotation::RECONCILE_NOW,
    annotation::DEFER_UNTIL,
    annotation::APPROVE_REVISION,
    annotation::WINDOW,
];

/// The annotations of a group that the controller reads.
#[cfg(test)]
pub(crate) fn group_annotations() -> impl Iterator<Item = &'static str> {
    SWITCHES.into_iter().chain(OTHERS).filter(|key| *key != annotation::CONFIG_EXCLUDED)
}

/// Annotations that the controller reads from a Namespace.
const ON_NAMESPACE: [&str; 5] = [
    annotation::CONFIG_EXCLUDED,
    annotation::LOCK_UPGRADES,
    annotation::DEFER_UNTIL,
    annotation::APPROVE_REVISION,
    annotation::WINDOW,
];

/// Annotations that only the provisioner `eks` reads.
const OF_SCALING_GROUPS: [&str; 8] = [
    annotation::OS_FAMILY,
    annotation::DEFAULT_LABELS,
    annotation::ROTATE_AT,
    annotation::IRSA_ENABLED,
    annotation::CLUSTER_AUTOSCALER_ENABLED,
    annotation::CUSTOM_NETWORKING_ENABLED,
    annotation::CUSTOM_NETWORKING_HOST_PODS,
    annotation::CUSTOM_NETWORKING_PREFIX,
];

/// One sentence for each annotation of a Namespace below the controller's prefix that has no effect, with the remedy.
pub(crate) fn ignored_on_namespace(annotations: &BTreeMap<String, String>) -> Vec<String> {
    let elsewhere = |key: &str| {
        let is_elsewhere = classify_name(key) == AnnotationName::Known && !ON_NAMESPACE.contains(&key);
        is_elsewhere.then(|| format!("{key} has no effect on a Namespace; set it on the InstanceGroup"))
    };
    of_controller(annotations).filter_map(|(key, value)| elsewhere(key).or_else(|| problem(key, value))).collect()
}

/// One sentence for each annotation of a group below the controller's prefix that has no effect, with the remedy. `spec`
/// is the merged spec. `is_exempt` names known annotations that are not judged: those by which a conditional of the admin
/// selects groups, and those that the boundaries replace.
pub(crate) fn ignored_on_group(
    annotations: &BTreeMap<String, String>,
    spec: &Value,
    is_exempt: impl Fn(&str) -> bool,
) -> Vec<String> {
    let unused = |key: &str, value: &str| unused_on_group(key, value, annotations, spec).filter(|_| !is_exempt(key));
    of_controller(annotations).filter_map(|(key, value)| problem(key, value).or_else(|| unused(key, value))).collect()
}

/// What is wrong with the annotation that confirms a group's deletion, with the remedy; `None` without it, and for the
/// name of the group.
pub(crate) fn wrong_confirmation(annotations: &BTreeMap<String, String>, group_name: &str) -> Option<String> {
    let key = annotation::CONFIRM_DELETION;
    let value = annotations.get(key).filter(|value| *value != group_name)?;
    let shown = display_value(key, &value.as_str().into());
    Some(format!("{key} {shown} confirms no deletion; its value must be the name of the group, {group_name:?}"))
}

fn of_controller(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let all = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    all.filter(|(key, _)| key.starts_with(PREFIX))
}

/// Why an annotation of a known name and value has no effect on this group.
fn unused_on_group(key: &str, value: &str, annotations: &BTreeMap<String, String>, spec: &Value) -> Option<String> {
    if key == annotation::CONFIG_EXCLUDED {
        return Some(format!("{key} has no effect on an InstanceGroup; annotate its Namespace"));
    }
    let is_off = value.trim().is_empty() || (SWITCHES.contains(&key) && !is_true_word(value));
    let kind = ProvisionerKind::parse(spec["provisioner"].as_str().unwrap_or_default())?;
    if is_off || !OF_SCALING_GROUPS.contains(&key) {
        return None;
    }
    if kind != ProvisionerKind::Eks {
        return Some(format!("{key} has no effect with the provisioner {kind}; remove it"));
    }
    let configuration = &spec["eks"]["configuration"];
    let is_on = |key: &str| annotations.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let why = match key {
        annotation::CUSTOM_NETWORKING_HOST_PODS | annotation::CUSTOM_NETWORKING_PREFIX
            if !is_on(annotation::CUSTOM_NETWORKING_ENABLED) =>
        {
            format!("without {}; set that to \"true\" as well", annotation::CUSTOM_NETWORKING_ENABLED)
        }
        annotation::CUSTOM_NETWORKING_ENABLED
        | annotation::CUSTOM_NETWORKING_HOST_PODS
        | annotation::CUSTOM_NETWORKING_PREFIX
            if configuration["bootstrapOptions"]["maxPods"].as_i64().is_some_and(|limit| limit > 0) =>
        {
            "together with bootstrapOptions.maxPods, which sets the pod limit; remove one of the two".to_owned()
        }
        annotation::IRSA_ENABLED if configuration["roleName"].as_str().is_some_and(|name| !name.is_empty()) => {
            "with roleName: the controller does not change the policies of an existing role; remove it".to_owned()
        }
        annotation::OS_FAMILY => return ignored_os_family(key, value, configuration),
        annotation::DEFAULT_LABELS => {
            let ignored: Vec<_> = label_items(value).filter_map(Result::err).map(|item| format!("{item:?}")).collect();
            return (!ignored.is_empty())
                .then(|| format!("{key}: {} is left out; write key=value, separated by commas", ignored.join(", ")));
        }
        _ => return None,
    };
    Some(format!("{key} has no effect {why}"))
}

/// An unknown family means Amazon Linux 2, and a `NodeConfigYaml` means Amazon Linux 2023 whatever the annotation says.
fn ignored_os_family(key: &str, value: &str, configuration: &Value) -> Option<String> {
    let family = OsFamily::parse(value);
    let stages = configuration["userData"].as_array().into_iter().flatten().filter_map(|entry| entry["stage"].as_str());
    if stages.into_iter().any(|stage| UserDataStage::parse(stage) == Some(UserDataStage::NodeConfigYaml)) {
        return (family != Some(OsFamily::AmazonLinux2023)).then(|| {
            format!(
                "{key} {} has no effect together with userData of the stage NodeConfigYaml, which means \
                 amazonlinux2023; remove one of the two",
                display_value(key, &value.into())
            )
        });
    }
    let known: Vec<_> = OsFamily::ALL.iter().map(|family| family.as_str()).collect();
    family.is_none().then(|| {
        let shown = display_value(key, &value.into());
        format!("{key} {shown} is unknown and means amazonlinux2; use one of {}", known.join(", "))
    })
}

/// Whether a switch has a value that is neither on nor off, so that it has no effect.
pub(crate) fn is_unknown_switch(key: &str, value: &str) -> bool {
    let word = value.trim().to_ascii_lowercase();
    let is_understood = match key {
        annotation::LOCK_UPGRADES | annotation::PROTECT_DELETION => is_true_word(value),
        _ => value.eq_ignore_ascii_case("true"),
    };
    let is_false = word.is_empty() || ["false", "no", "off", "0", "f", "n"].contains(&word.as_str());
    !is_understood && !is_false
}

fn problem(key: &str, value: &str) -> Option<String> {
    if SWITCHES.contains(&key) {
        let shown = display_value(key, &value.into());
        return is_unknown_switch(key, value)
            .then(|| format!("{key} {shown} has no effect; use \"true\" or \"false\""));
    }
    let trimmed = value.trim();
    let wrong = match key {
        _ if trimmed.is_empty() => None,
        annotation::DEFER_UNTIL if trimmed.parse::<jiff::Timestamp>().is_err() => {
            Some(format!("{trimmed:?} is not a valid time; write it like \"2026-09-05T06:00:00Z\""))
        }
        annotation::WINDOW => parse_window(trimmed).err(),
        _ => None,
    };
    if let Some(wrong) = wrong {
        return Some(format!("{key} has no effect: {wrong}"));
    }
    if key == annotation::WINDOW && parse_window(trimmed).is_ok_and(|window| window.has_equal_times()) {
        return Some(format!(
            "{key} {trimmed:?} ends when it begins, so it is open for 24 hours; write another time, or 00:00-24:00"
        ));
    }
    match classify_name(key) {
        AnnotationName::Foreign | AnnotationName::Known => None,
        AnnotationName::Unknown { likely: Some(near) } => {
            Some(format!("{key} is not a known annotation; did you mean {near}?"))
        }
        AnnotationName::Unknown { likely: None } => Some(format!("{key} is not a known annotation; remove it")),
    }
}

/// What the name of an annotation is to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnnotationName {
    /// It has another prefix than the controller's.
    Foreign,
    /// The controller reads it.
    Known,
    /// It has the controller's prefix, but the controller does not read it.
    Unknown {
        /// The annotation that was likely meant.
        likely: Option<&'static str>,
    },
}

/// What the name of an annotation is to the controller.
pub(crate) fn classify_name(key: &str) -> AnnotationName {
    if !key.starts_with(PREFIX) {
        return AnnotationName::Foreign;
    }
    if SWITCHES.contains(&key) || OTHERS.contains(&key) {
        return AnnotationName::Known;
    }
    let closest = closest_match(key, SWITCHES.into_iter().chain(OTHERS));
    // All names share the prefix, so only a name that also resembles another one behind it is a likely typing error.
    let name = |key: &str| key[PREFIX.len()..].to_owned();
    let likely = closest.filter(|near| closest_match(&name(key), [name(near).as_str()].into_iter()).is_some());
    AnnotationName::Unknown { likely }
}

/// The items of the annotation `default-labels`: `key=value`, or an error with the item where it is anything else.
pub(crate) fn label_items(text: &str) -> impl Iterator<Item = Result<(&str, &str), &str>> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| match item.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.contains('=') => Ok((key, value)),
        _ => Err(item),
    })
}

/// Whether the value of `lock-upgrades` or `protect-deletion` is a usual word for "true". Both protect nodes in an emergency.
pub(crate) fn is_true_word(value: &str) -> bool {
    ["true", "yes", "on", "1", "t", "y"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(annotations: &[(&str, &str)]) -> Vec<String> {
        let keys = annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        ignored_on_group(&keys.collect(), &json!({"provisioner": "eks"}), |_| false)
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
        assert_eq!(ignored_on_group(&others, &json!({}), |_| false), [""; 0]);
    }

    #[test]
    fn switches_with_unclear_values_are_reported() {
        for value in ["true", "TRUE", "yes", " on ", "1", "false", "no", "off", "0", ""] {
            assert_eq!(messages(&[("lock-upgrades", value)]), [""; 0], "{value:?}");
        }
        let found = messages(&[("lock-upgrades", "please"), ("irsa-enabled", "yes"), ("default-labels", "a=b")]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "instancemgr.keikoproj.io/irsa-enabled \"yes\" has no effect; use \"true\" or \"false\"");
        assert!(found[1].contains("lock-upgrades \"please\""));
    }

    /// Every annotation that a group may have, in the situations in which it has no effect.
    #[test]
    fn annotations_without_effect_are_reported_per_provisioner_and_field() {
        let eks = |configuration: Value| json!({"provisioner": "eks", "eks": {"configuration": configuration}});
        let plain = || eks(json!({}));
        let custom = ("custom-networking-enabled", "true");
        // Annotations, merged spec, and a part of the one sentence.
        for (annotations, spec, expected) in [
            (vec![("cluster-autoscaler-enabled", "yes")], plain(), "\"yes\" has no effect; use \"true\""),
            (vec![("config-excluded", "true")], plain(), "annotate its Namespace"),
            (vec![("os-family", "windos")], plain(), "is unknown and means amazonlinux2"),
            (
                vec![("custom-networking-host-pods", "3")],
                plain(),
                "without instancemgr.keikoproj.io/custom-networking-enabled",
            ),
            (vec![("custom-networking-prefix-assignment-enabled", "true")], plain(), "without instancemgr"),
            (vec![custom], eks(json!({"bootstrapOptions": {"maxPods": 20}})), "together with bootstrapOptions.maxPods"),
            (vec![("irsa-enabled", "true")], eks(json!({"roleName": "own"})), "with roleName"),
            (vec![("default-labels", "a=b,odd")], plain(), "\"odd\" is left out"),
            (
                vec![("os-family", "bottlerocket")],
                eks(json!({"userData": [{"stage": "nodeconfigyaml"}]})),
                "which means amazonlinux2023",
            ),
        ] {
            let annotations =
                annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect();
            let found = ignored_on_group(&annotations, &spec, |_| false);
            assert!(found.len() == 1 && found[0].contains(expected), "{annotations:?}: {found:?}");
        }
        for (kind, unused) in [("eks", 0), ("eks-managed", 8), ("fargate", 8)] {
            let value = |key: &str| match key {
                annotation::OS_FAMILY => "bottlerocket",
                annotation::DEFAULT_LABELS => "a=b",
                annotation::ROTATE_AT | annotation::DEFER_UNTIL => "2026-01-31T08:00:00Z",
                annotation::WINDOW => "sat 02:00-06:00 UTC",
                _ => "true",
            };
            let annotations = group_annotations().map(|key| (key.to_owned(), value(key).to_owned())).collect();
            let found = ignored_on_group(&annotations, &json!({"provisioner": kind}), |_| false);
            assert_eq!(found.len(), unused, "{kind}: {found:#?}");
            let selected = ignored_on_group(&annotations, &json!({"provisioner": kind}), |_| true);
            assert_eq!(selected, [""; 0], "a conditional may select by them");
        }
    }

    /// A tenant who closes a window by equal times would have nodes replaced all day.
    #[test]
    fn window_that_ends_when_it_begins_is_reported() {
        let found = messages(&[("window", "sat 02:00-02:00 UTC")]);
        assert!(found.len() == 1 && found[0].contains("so it is open for 24 hours"), "{found:?}");
        assert_eq!(messages(&[("window", "sat 00:00-24:00 UTC")]), [""; 0]);
    }

    /// A user who writes "yes" as the confirmation waits for a deletion that the controller never starts.
    #[test]
    fn confirmation_must_be_the_name_of_the_group() {
        let wrong =
            |value: &str| wrong_confirmation(&[(annotation::CONFIRM_DELETION.into(), value.into())].into(), "web");
        for value in ["yes", "", "Web", "web "] {
            let message = wrong(value).unwrap_or_default();
            assert!(message.contains(&format!("{value:?}")) && message.contains("\"web\""), "{value:?}: {message}");
        }
        assert_eq!((wrong("web"), wrong_confirmation(&BTreeMap::new(), "web")), (None, None));
    }

    #[test]
    fn annotations_of_groups_are_reported_on_a_namespace() {
        let on_namespace = |key: &str| ignored_on_namespace(&[(key.to_owned(), "true".to_owned())].into());
        for key in [annotation::CONFIG_EXCLUDED, annotation::LOCK_UPGRADES, annotation::APPROVE_REVISION] {
            assert_eq!(on_namespace(key), [""; 0], "{key}");
        }
        for (key, words) in [(annotation::DEFER_UNTIL, "is not a valid time"), (annotation::WINDOW, "is not a window")]
        {
            assert!(on_namespace(key)[0].contains(words), "{key}: {:?}", on_namespace(key));
        }
        for key in group_annotations().filter(|key| !ON_NAMESPACE.contains(key)) {
            assert_eq!(on_namespace(key), [format!("{key} has no effect on a Namespace; set it on the InstanceGroup")]);
        }
    }
}
