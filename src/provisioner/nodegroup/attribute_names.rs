//! The names in the record of what the controller sets, each with its kind in front.

use std::collections::BTreeSet;

use super::desired::DesiredSpec;
use super::names::nodegroup_in_arn;
use super::observed::ObservedState;
use super::resolve::ResolvedGroup;
use super::update::taint_key;
use crate::api::ManagedAttributes;
use crate::aws::nodegroup::{MaxUnavailable, Nodegroup};

/// The kinds of names in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Label,
    MaxUnavailable,
    NodeRepair,
    Nodegroup,
    Tag,
    Taint,
}

impl NameKind {
    /// The name of something of this kind.
    pub(crate) fn named(self, name: &str) -> String {
        let kind = match self {
            Self::Label => "label",
            Self::MaxUnavailable => return "maxUnavailable".to_owned(),
            Self::NodeRepair => return "node repair".to_owned(),
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
    let max_unavailable = found().any(has_max_unavailable).then(|| NameKind::MaxUnavailable.named(""));
    let repair = found().any(|n| n.repair).then(|| NameKind::NodeRepair.named(""));
    labels.chain(taints).chain(tags).chain(names).chain(max_unavailable).chain(repair).collect()
}

/// Whether a node group has another maxUnavailable than EKS sets by default.
pub(crate) fn has_max_unavailable(found: &Nodegroup) -> bool {
    found.max_unavailable.is_some_and(|n| n != MaxUnavailable::DEFAULT)
}

/// Whether the spec requests another maxUnavailable than EKS sets by default.
pub(crate) fn sets_max_unavailable(desired: &DesiredSpec) -> bool {
    desired.max_unavailable.is_some_and(|n| n != MaxUnavailable::DEFAULT)
}

/// What the spec requests.
pub(crate) fn desired(r: &ResolvedGroup) -> BTreeSet<String> {
    let labels = r.desired.labels.keys().map(|key| NameKind::Label.named(key));
    let taints = r.desired.taints.iter().map(|taint| NameKind::Taint.named(&taint_key(taint)));
    let tags = r.desired.tags.keys().map(|key| NameKind::Tag.named(key));
    let name = NameKind::Nodegroup.named(&r.name.to_string());
    let max_unavailable = sets_max_unavailable(&r.desired).then(|| NameKind::MaxUnavailable.named(""));
    let repair = (r.desired.node_repair == Some(true)).then(|| NameKind::NodeRepair.named(""));
    labels.chain(taints).chain(tags).chain([name]).chain(max_unavailable).chain(repair).collect()
}

/// What the status records. A node group whose ARN is recorded was seen, so it is gone when EKS does not show it.
pub(crate) fn recorded(managed: &ManagedAttributes) -> BTreeSet<String> {
    let named = |kind: NameKind, names: &[String]| names.iter().map(|name| kind.named(name)).collect::<Vec<_>>();
    let (labels, taints) = (named(NameKind::Label, &managed.labels), named(NameKind::Taint, &managed.taints));
    let unseen = managed.nodegroups.iter().filter(|name| !was_seen(managed, name));
    let nodegroups = unseen.map(|name| NameKind::Nodegroup.named(name));
    let max_unavailable = managed.max_unavailable.then(|| NameKind::MaxUnavailable.named(""));
    let repair = managed.node_repair.then(|| NameKind::NodeRepair.named(""));
    let lists = labels.into_iter().chain(taints).chain(named(NameKind::Tag, &managed.tags)).chain(nodegroups);
    lists.chain(max_unavailable).chain(repair).collect()
}

/// Whether EKS has shown a recorded node group: its ARN is recorded then.
pub(crate) fn was_seen(managed: &ManagedAttributes, nodegroup: &str) -> bool {
    managed.nodegroup_arns.iter().filter_map(|arn| nodegroup_in_arn(arn)).any(|seen| seen.to_string() == nodegroup)
}
