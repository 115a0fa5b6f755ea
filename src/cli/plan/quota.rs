//! What the groups use of the quotas of their namespaces, with what they ask for. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::boundaries::QuotaLevel;
use crate::util::counted::counted;

/// How many namespaces the text shows; `-o json` has all.
const MAX_LINES: usize = 20;

/// The usage of one limit of a namespace's quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuotaUsage {
    /// Name of the namespace.
    pub namespace: String,
    /// What is limited: groups, nodes, surge or vcpus.
    pub resource: &'static str,
    /// How much its groups have, or ask for and may have; absent when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// How much they may have.
    pub limit: u64,
}

/// The usage of all limits that apply to the groups, by namespace. Each group is `namespace/name` with its levels. What is unknown for one group is unknown for its
/// namespace.
pub(super) fn usages<'a>(groups: impl Iterator<Item = (&'a str, &'a [QuotaLevel])>) -> Vec<QuotaUsage> {
    let mut found: BTreeMap<(&str, &'static str), QuotaLevel> = BTreeMap::new();
    for (group, levels) in groups {
        let namespace = group.split('/').next().unwrap_or_default();
        for level in levels {
            let known = found.entry((namespace, level.resource)).or_insert(*level);
            known.used = known.used.zip(level.used).map(|(one, other)| one.max(other));
        }
    }
    let usage = |((namespace, resource), level): ((&str, &'static str), QuotaLevel)| QuotaUsage {
        namespace: namespace.to_owned(),
        resource,
        used: level.used,
        limit: level.limit,
    };
    found.into_iter().map(usage).collect()
}

/// A line for each namespace; empty without quotas.
pub(super) fn render(usages: &[QuotaUsage]) -> String {
    let mut namespaces: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for usage in usages {
        let used = usage.used.map_or_else(|| "an unknown number".to_owned(), |used| used.to_string());
        let unit = match usage.resource {
            "vcpus" => "vCPUs",
            "surge" => "nodes of maxSurge",
            resource => resource,
        };
        namespaces.entry(&usage.namespace).or_default().push(format!("{used} of {} {unit}", usage.limit));
    }
    let line = |(namespace, limits): (&&str, &Vec<String>)| format!("quota of {namespace}: {}\n", limits.join(", "));
    let mut text: String = namespaces.iter().take(MAX_LINES).map(line).collect();
    if namespaces.len() > MAX_LINES {
        let more = counted(namespaces.len() - MAX_LINES, "namespace");
        text += &format!("and the quotas of {more} more: -o json has all\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(resource: &'static str, used: Option<u64>, limit: u64) -> QuotaLevel {
        QuotaLevel { resource, used, limit }
    }

    fn render_all(groups: &[(&str, Vec<QuotaLevel>)]) -> String {
        render(&usages(groups.iter().map(|(group, levels)| (*group, levels.as_slice()))))
    }

    /// A tenant sees before a change how much of its quota is left, and a number that is not known does not look like none.
    #[test]
    fn plan_shows_the_usage_and_the_limits_of_each_quota() {
        let groups = [
            ("team-a/web", vec![level("groups", Some(2), 5), level("nodes", Some(9), 20)]),
            ("team-a/db", vec![level("groups", Some(3), 5), level("nodes", Some(12), 20)]),
            ("team-b/web", vec![level("vcpus", Some(8), 64), level("surge", Some(1), 4)]),
            ("team-b/gpu", vec![level("vcpus", None, 64), level("surge", Some(0), 4)]),
            ("team-c/web", vec![]),
        ];
        let expected = "quota of team-a: 3 of 5 groups, 12 of 20 nodes
quota of team-b: 1 of 4 nodes of maxSurge, an unknown number of 64 vCPUs
";
        assert_eq!(render_all(&groups), expected);
        assert_eq!(render_all(&groups[4..]), "");
        let keys: Vec<_> = (0..22).map(|index| format!("team-{index}/web")).collect();
        let many: Vec<_> = keys.iter().map(|key| (key.as_str(), vec![level("groups", Some(1), 2)])).collect();
        let shown = render_all(&many);
        assert!(shown.lines().count() == 21 && shown.ends_with("of 2 namespaces more: -o json has all\n"), "{shown}");
    }
}
