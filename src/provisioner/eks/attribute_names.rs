//! The names in the record of what the controller sets, each with its kind in front.

use std::collections::BTreeSet;

use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use crate::api::ManagedAttributes;

/// The kinds of names in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Tag,
    Hook,
    Process,
    Metric,
    Policy,
    WarmPool,
}

impl NameKind {
    /// The name of something of this kind.
    pub(crate) fn named(self, name: &str) -> String {
        let kind = match self {
            Self::Tag => "tag",
            Self::Hook => "lifecycle hook",
            Self::Process => "suspended process",
            Self::Metric => "metric",
            Self::Policy => "policy",
            Self::WarmPool => return "warm pool".to_owned(),
        };
        format!("{kind} {name}")
    }
}

/// The attributes that the scaling group and its role have in AWS; empty without a scaling group.
pub(crate) fn shown(state: &ObservedState) -> BTreeSet<String> {
    let Some(group) = &state.scaling_group else { return BTreeSet::new() };
    let hooks = state.lifecycle_hooks.iter().flatten().map(|hook| NameKind::Hook.named(&hook.name));
    let tags = group.tags.iter().map(|tag| NameKind::Tag.named(&tag.key));
    let pool = group.warm_pool.iter().map(|_| NameKind::WarmPool.named(""));
    let others = [
        (NameKind::Process, &group.suspended_processes),
        (NameKind::Metric, &group.enabled_metrics),
        (NameKind::Policy, &state.attached_policies),
    ];
    named(others).chain(hooks).chain(tags).chain(pool).collect()
}

/// What the spec requests.
pub(crate) fn desired(r: &ResolvedGroup) -> BTreeSet<String> {
    let hooks = r.desired.lifecycle_hooks.iter().map(|hook| NameKind::Hook.named(&hook.name));
    let tags = r.tags.iter().map(|tag| NameKind::Tag.named(&tag.key));
    let processes = r.desired.suspended_processes.iter().map(|name| NameKind::Process.named(name));
    let metrics = r.desired.metrics.iter().map(|name| NameKind::Metric.named(name));
    let policies = r.managed_policies.iter().map(|arn| NameKind::Policy.named(arn));
    let pool = r.desired.warm_pool.iter().map(|_| NameKind::WarmPool.named(""));
    hooks.chain(tags).chain(processes).chain(metrics).chain(policies).chain(pool).collect()
}

/// What the status records. Of another role than the controller's own, the policies are not read.
pub(crate) fn recorded(managed: &ManagedAttributes, has_own_role: bool) -> BTreeSet<String> {
    let none = Vec::new();
    let all = [
        (NameKind::Tag, &managed.tags),
        (NameKind::Hook, &managed.hooks),
        (NameKind::Process, &managed.processes),
        (NameKind::Metric, &managed.metrics),
        (NameKind::Policy, if has_own_role { &managed.policies } else { &none }),
    ];
    let pool = managed.warm_pool.then(|| NameKind::WarmPool.named(""));
    named(all).chain(pool).collect()
}

fn named<'a>(lists: impl IntoIterator<Item = (NameKind, &'a Vec<String>)>) -> impl Iterator<Item = String> {
    lists.into_iter().flat_map(|(kind, names)| names.iter().map(move |name| kind.named(name)))
}
