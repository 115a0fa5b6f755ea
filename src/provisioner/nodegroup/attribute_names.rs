//! The names in the record of what the controller sets, each with its kind in front.

use std::collections::BTreeSet;

use super::names::nodegroup_in_arn;
use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use super::update::taint_key;
use crate::api::ManagedAttributes;

/// The kinds of names in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Label,
    Nodegroup,
    Tag,
    Taint,
}

impl NameKind {
    /// The name of something of this kind.
    pub(crate) fn named(self, name: &str) -> String {
        let kind = match self {
            Self::Label => "label",
            Self::Nodegroup => "node group",
            Self::Tag => "tag",
            Self::Taint => "taint",
        };
        format!("{kind} {name}")
    }
}

/// What EKS shows on the node groups.
pub(crate) fn shown(state: &ObservedState) -> BTreeSet<String> {
    let found = || state.nodegroups.iter().map(|group| &group.nodegroup);
    let labels = found().flat_map(|n| n.labels.keys()).map(|key| NameKind::Label.named(key));
    let taints = found().flat_map(|n| &n.taints).map(|taint| NameKind::Taint.named(&taint_key(taint)));
    let tags = found().flat_map(|n| n.tags.keys()).map(|key| NameKind::Tag.named(key));
    let names = found().map(|n| NameKind::Nodegroup.named(&n.name.to_string()));
    labels.chain(taints).chain(tags).chain(names).collect()
}

/// What the spec asks for.
pub(crate) fn desired(r: &ResolvedGroup) -> BTreeSet<String> {
    let labels = r.desired.labels.keys().map(|key| NameKind::Label.named(key));
    let taints = r.desired.taints.iter().map(|taint| NameKind::Taint.named(&taint_key(taint)));
    let tags = r.desired.tags.keys().map(|key| NameKind::Tag.named(key));
    let name = NameKind::Nodegroup.named(&r.name.to_string());
    labels.chain(taints).chain(tags).chain([name]).collect()
}

/// What the status records. A node group whose ARN is recorded was seen, so it is gone when EKS does not show it.
pub(crate) fn recorded(managed: &ManagedAttributes) -> BTreeSet<String> {
    let named = |kind: NameKind, names: &[String]| names.iter().map(|name| kind.named(name)).collect::<Vec<_>>();
    let (labels, taints) = (named(NameKind::Label, &managed.labels), named(NameKind::Taint, &managed.taints));
    let unseen = managed.nodegroups.iter().filter(|name| !was_seen(managed, name));
    let nodegroups = unseen.map(|name| NameKind::Nodegroup.named(name));
    labels.into_iter().chain(taints).chain(named(NameKind::Tag, &managed.tags)).chain(nodegroups).collect()
}

/// Whether EKS has shown a recorded node group: its ARN is recorded then.
pub(crate) fn was_seen(managed: &ManagedAttributes, nodegroup: &str) -> bool {
    managed.nodegroup_arns.iter().filter_map(|arn| nodegroup_in_arn(arn)).any(|seen| seen.to_string() == nodegroup)
}
