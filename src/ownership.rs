//! Ownership of AWS resources. Three tags on a resource prove which group owns it: the cluster, the group's namespace
//! and its name.

use std::collections::BTreeSet;

use crate::api::names::{condition, tag};
use crate::api::{Condition, InstanceGroupStatus};
use crate::aws::{Tag, tag_map};
use crate::plan::{Outcome, StalledReason};
use crate::provisioner::GroupId;

/// Keys of the three tags that together prove ownership.
pub(crate) const OWNERSHIP_TAG_KEYS: [&str; 3] = [tag::CLUSTER_NAME, tag::INSTANCE_GROUP, tag::NAMESPACE];

/// The most tags that a managed node group or Fargate profile can have (EKS API reference, TagMap).
const MAX_TAGS: usize = 50;

/// `the InstanceGroup a/web`, or several of them.
pub(crate) fn group_list(groups: &BTreeSet<String>) -> String {
    let keys: Vec<_> = groups.iter().map(String::as_str).collect();
    format!("the InstanceGroup{} {}", if keys.len() == 1 { "" } else { "s" }, keys.join(" and "))
}

/// The message while the controller's IAM role lacks `permissions`, which it needs to set or remove tags.
pub(crate) fn missing_tag_permission(permissions: &str) -> String {
    format!(
        "cannot update tags: the controller's IAM role lacks {permissions}; add the missing permissions to the role"
    )
}

/// The outcome for a managed node group or Fargate profile after AWS denied a tag change. `lacks_tag` and
/// `lacks_untag`: which permissions are missing. The reconcile in which AWS denied the change reports the same message.
pub(crate) fn tagging_blocked(lacks_tag: bool, lacks_untag: bool, is_deleting: bool) -> Outcome {
    let needed = [(lacks_tag, "eks:TagResource"), (lacks_untag, "eks:UntagResource")];
    let missing: Vec<_> = needed.into_iter().filter(|(lacks, _)| *lacks).map(|(_, permission)| permission).collect();
    Outcome::Blocked {
        reason: StalledReason::MissingPermission,
        message: missing_tag_permission(&missing.join(" and ")),
        is_deleting,
    }
}

/// The tags that prove that a resource belongs to a group.
pub fn ownership_tags(cluster: &str, id: &GroupId) -> Vec<Tag> {
    let values = [cluster, &id.name, &id.namespace];
    OWNERSHIP_TAG_KEYS.iter().zip(values).map(|(key, value)| Tag { key: (*key).into(), value: value.into() }).collect()
}

/// Whether a resource has all three tags of a group.
pub(crate) fn has_ownership_tags(tags: &[Tag], ownership: &[Tag]) -> bool {
    let tags = tag_map(tags);
    ownership.iter().all(|t| tags.get(t.key.as_str()) == Some(&t.value.as_str()))
}

/// Whether a resource has the ID that was recorded at adoption, and no tags of another group.
pub(crate) fn is_adopted(id: &str, tags: &[Tag], adopted_id: Option<&String>, ownership: &[Tag]) -> bool {
    !id.is_empty() && adopted_id.is_some_and(|adopted| adopted == id) && !has_foreign_tags(tags, ownership)
}

/// Whether a resource provably belongs to a group: by its tags, or by the ID recorded at adoption.
pub(crate) fn is_owned(id: &str, tags: &[Tag], adopted_id: Option<&String>, ownership: &[Tag]) -> bool {
    has_ownership_tags(tags, ownership) || is_adopted(id, tags, adopted_id, ownership)
}

/// Whether a resource has the tags of another group.
pub(crate) fn has_foreign_tags(tags: &[Tag], ownership: &[Tag]) -> bool {
    let present = tag_map(tags);
    let claimed = [tag::INSTANCE_GROUP, tag::NAMESPACE].iter().any(|k| present.contains_key(k));
    claimed && !has_ownership_tags(tags, ownership)
}

/// The hash of the spec that an adopted resource counts as up to date with, from its tags.
pub(crate) fn adopted_hash(tags: &[Tag]) -> Option<&str> {
    tag_map(tags).get(tag::ADOPTED_HASH).copied()
}

/// The tag with that hash; `None` if a resource has no room for it beside the tags with `keys`.
pub(crate) fn adoption_tag<'a>(hash: &str, keys: impl IntoIterator<Item = &'a String>) -> Option<Tag> {
    let others: BTreeSet<_> = keys.into_iter().filter(|key| *key != tag::ADOPTED_HASH).collect();
    (others.len() < MAX_TAGS).then(|| Tag { key: tag::ADOPTED_HASH.into(), value: hash.into() })
}

/// Who owns a scaling group with the name that the controller derives for a group, according to the scaling group's
/// tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// All three tags are the group's.
    Ours,
    /// The tags name another group, for which the controller derives the same name.
    OtherGroup,
    /// Some of the three tags exist, but others are missing or were modified; the text names them.
    TagsModified(String),
    /// None of the three tags exists.
    Untagged,
}

/// Classifies a scaling group by its name and tags. If the name cannot derive from the group in its tags, the tags were
/// modified.
///
/// ```
/// use instance_manager::api::{InstanceGroup, InstanceGroupSpec, group_id};
/// use instance_manager::ownership::{Ownership, classify_ownership, ownership_tags};
///
/// let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
/// group.metadata.namespace = Some("team".into());
/// let mut tags = ownership_tags("demo", &group_id(&group));
/// let expected = tags.clone();
///
/// assert_eq!(classify_ownership("demo-team-web", &tags, &expected), Ownership::Ours);
/// assert_eq!(classify_ownership("demo-team-web", &[], &expected), Ownership::Untagged);
/// tags.pop();
/// assert!(matches!(classify_ownership("demo-team-web", &tags, &expected), Ownership::TagsModified(_)));
/// ```
pub fn classify_ownership(name: &str, tags: &[Tag], ownership: &[Tag]) -> Ownership {
    let present = tag_map(tags);
    if has_ownership_tags(tags, ownership) {
        return Ownership::Ours;
    }
    if !OWNERSHIP_TAG_KEYS.iter().any(|key| present.contains_key(key)) {
        return Ownership::Untagged;
    }
    let expected = tag_map(ownership);
    let [group, namespace] = [tag::INSTANCE_GROUP, tag::NAMESPACE];
    if let (Some(other_group), Some(other_namespace)) = (present.get(group), present.get(namespace))
        && (expected[group], expected[namespace]) != (*other_group, *other_namespace)
        && name.ends_with(&format!("-{other_namespace}-{other_group}"))
    {
        return Ownership::OtherGroup;
    }
    let difference = |t: &Tag| match present.get(t.key.as_str()) {
        None => Some(format!("the tag {}={} is missing", t.key, t.value)),
        Some(value) if *value != t.value => {
            Some(format!("the tag {} has the value {value} instead of {}", t.key, t.value))
        }
        Some(_) => None,
    };
    Ownership::TagsModified(ownership.iter().filter_map(difference).collect::<Vec<_>>().join(" and "))
}

/// Why a scaling group with the name of a group does not provably belong to it, without the remedy. `None` if it does.
pub(crate) fn ownership_conflict(name: &str, tags: &[Tag], ownership: &[Tag]) -> Option<String> {
    let why = tag_problem(name, tags, ownership)?;
    Some(format!("the scaling group {name} already exists, and {why}"))
}

/// The outcome while the tags of resources that the status records do not prove anymore that the group owns them. Each
/// has its name and its tags; `what` is their kind, and `left` names what the controller leaves as it is. `None`
/// without any.
pub(crate) fn disowned_outcome<'a>(
    what: &str,
    resources: impl IntoIterator<Item = (&'a str, Vec<Tag>)>,
    ownership: &[Tag],
    left: &str,
    is_deleting: bool,
) -> Option<Outcome> {
    let describe = |(name, tags): (&str, Vec<Tag>)| {
        let why = tag_problem(name, &tags, ownership).unwrap_or_else(|| "its role is not the group's".to_owned());
        format!("{what} {name}, which the status records: {why}")
    };
    let all: Vec<_> = resources.into_iter().map(describe).collect();
    let message = format!(
        "cannot verify the owner of {}; the controller leaves {left}; restore its tags, or delete it",
        all.join("; and of ")
    );
    (!all.is_empty()).then_some(Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, is_deleting })
}

/// What about the tags of a resource does not prove that a group owns it; `None` when they do.
fn tag_problem(name: &str, tags: &[Tag], ownership: &[Tag]) -> Option<String> {
    Some(match classify_ownership(name, tags, ownership) {
        Ownership::Ours => return None,
        Ownership::OtherGroup => "it has the tags of another group".into(),
        Ownership::TagsModified(details) => format!("its ownership tags were modified: {details}"),
        Ownership::Untagged => {
            let tags: Vec<_> = ownership.iter().map(|t| format!("{}={}", t.key, t.value)).collect();
            format!("it has none of this group's tags: {}", tags.join(", "))
        }
    })
}

/// Whether AWS denied tagging at the adoption. In a status of an earlier release, only the condition `Adopted` says so.
pub(crate) fn is_tagging_denied(status: &InstanceGroupStatus) -> bool {
    let is_denied = |c: &Condition| {
        c.r#type == condition::ADOPTED
            && c.reason.as_deref().map(condition::current_reason) == Some(condition::TAGGING_DENIED)
    };
    status.managed.as_ref().is_some_and(|managed| managed.tagging_denied) || status.conditions.iter().any(is_denied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ManagedAttributes;

    #[test]
    fn denied_tags_of_an_earlier_release_are_tried_again() {
        for (reason, found) in
            [("TaggingDenied", true), ("NotTagged", true), ("ResourcesAdopted", false), ("TakenOver", false)]
        {
            let adopted = Condition::new(condition::ADOPTED, true, reason, "");
            let status = InstanceGroupStatus { conditions: vec![adopted], ..InstanceGroupStatus::default() };
            assert_eq!(is_tagging_denied(&status), found, "{reason}");
        }
        let managed = Some(ManagedAttributes { tagging_denied: true, ..ManagedAttributes::default() });
        assert!(is_tagging_denied(&InstanceGroupStatus { managed, ..InstanceGroupStatus::default() }));
    }
}
