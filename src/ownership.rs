//! Whose a resource of AWS is: all three tags, on the resource itself.

use super::provisioner::GroupId;
use crate::api::names::{condition, tag};
use crate::api::{Condition, InstanceGroupStatus};
use crate::aws::{Tag, tag_map};
use crate::plan::{Outcome, Reason};

/// The three tags that together prove ownership.
pub const OWNERSHIP_TAG_KEYS: [&str; 3] = [tag::CLUSTER_NAME, tag::INSTANCE_GROUP, tag::NAMESPACE];

/// How the message of `Adopted` goes on where tags are missing.
pub const UNTAGGED_SUFFIX: &str = "; not tagged, which deleting the group needs";

/// What a person reads while the rights to set tags, or to take them off, are missing.
pub fn missing_tag_permission(rights: &str) -> String {
    format!("the tags are not as wanted: the controller may not {rights}; add the action to its IAM role")
}

/// How a group of EKS stands whose tags AWS refused to change, with what is to be put and to be taken off; the report of
/// the pass that was refused says the same.
pub fn tagging_blocked(put: bool, gone: bool, is_deleting: bool) -> Outcome {
    let rights: Vec<_> =
        [(put, "eks:TagResource"), (gone, "eks:UntagResource")].into_iter().filter(|(lacks, _)| *lacks).collect();
    let rights: Vec<_> = rights.into_iter().map(|(_, right)| right).collect();
    Outcome::Blocked {
        reason: Reason::MissingPermission,
        message: missing_tag_permission(&rights.join(" and ")),
        is_deleting,
    }
}

/// The tags that prove that a resource belongs to a group.
pub fn ownership_tags(cluster: &str, id: &GroupId) -> Vec<Tag> {
    let values = [cluster, &id.name, &id.namespace];
    OWNERSHIP_TAG_KEYS.iter().zip(values).map(|(key, value)| Tag { key: (*key).into(), value: value.into() }).collect()
}

/// Whether a resource carries all three tags of a group.
pub fn has_ownership_tags(tags: &[Tag], ownership: &[Tag]) -> bool {
    let tags = tag_map(tags);
    ownership.iter().all(|t| tags.get(t.key.as_str()) == Some(&t.value.as_str()))
}

/// Whether a resource is the very one that was taken over, and nobody has claimed it since.
pub fn is_adopted(id: &str, tags: &[Tag], recorded: Option<&String>, ownership: &[Tag]) -> bool {
    !id.is_empty() && recorded.is_some_and(|recorded| recorded == id) && !has_foreign_tags(tags, ownership)
}

/// Whether a resource is provably a group's: by its tags, or because it is the very one that was taken over.
pub fn is_owned(id: &str, tags: &[Tag], recorded: Option<&String>, ownership: &[Tag]) -> bool {
    has_ownership_tags(tags, ownership) || is_adopted(id, tags, recorded, ownership)
}

/// Whether a resource carries another group's tags.
pub fn has_foreign_tags(tags: &[Tag], ownership: &[Tag]) -> bool {
    let held = tag_map(tags);
    let claimed = [tag::INSTANCE_GROUP, tag::NAMESPACE].iter().any(|k| held.contains_key(k));
    claimed && !has_ownership_tags(tags, ownership)
}

/// Whose a scaling group is whose name a group derives, by its tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// All three tags are the group's.
    Ours,
    /// The tags name another group, whose names read the same.
    Theirs,
    /// Some of the three tags are there, and others are missing or were edited: how, in words.
    Damaged(String),
    /// None of the three tags is there.
    Nobodys,
}

/// Judges a scaling group by its name and its tags. An edited tag names nobody from whom this name could come.
pub fn classify_ownership(name: &str, tags: &[Tag], ownership: &[Tag]) -> Ownership {
    let held = tag_map(tags);
    if has_ownership_tags(tags, ownership) {
        return Ownership::Ours;
    }
    if !OWNERSHIP_TAG_KEYS.iter().any(|key| held.contains_key(key)) {
        return Ownership::Nobodys;
    }
    let wanted = tag_map(ownership);
    let [group, namespace] = [tag::INSTANCE_GROUP, tag::NAMESPACE];
    if let (Some(other), Some(space)) = (held.get(group), held.get(namespace))
        && (wanted[group], wanted[namespace]) != (*other, *space)
        && name.ends_with(&format!("-{space}-{other}"))
    {
        return Ownership::Theirs;
    }
    let wrong = |t: &Tag| match held.get(t.key.as_str()) {
        None => Some(format!("the tag {}={} is missing", t.key, t.value)),
        Some(value) if *value != t.value => Some(format!("the tag {} says {value} and not {}", t.key, t.value)),
        Some(_) => None,
    };
    Ownership::Damaged(ownership.iter().filter_map(wrong).collect::<Vec<_>>().join(" and "))
}

/// What a person reads of a scaling group that bears a group's name and is not provably its own, without the remedy;
/// `None` for its own.
pub fn ownership_conflict(name: &str, tags: &[Tag], ownership: &[Tag]) -> Option<String> {
    let why = match classify_ownership(name, tags, ownership) {
        Ownership::Ours => return None,
        Ownership::Theirs => "carries the tags of another group".into(),
        Ownership::Damaged(how) => format!("is not provably this group's: {how}"),
        Ownership::Nobodys => {
            let tags: Vec<_> = ownership.iter().map(|t| format!("{}={}", t.key, t.value)).collect();
            format!("carries none of this group's tags: {}", tags.join(", "))
        }
    };
    Some(format!("the scaling group {name} is there and {why}"))
}

/// What a takeover told, when it could not tag everything.
pub fn tagging_denied_condition(status: &InstanceGroupStatus) -> Option<&Condition> {
    let told = status.conditions.iter().find(|c| c.r#type == condition::ADOPTED);
    told.filter(|c| c.reason.as_deref().map(condition::current_reason) == Some(condition::TAGGING_DENIED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagging_denied_condition_accepts_the_old_reason() {
        for (reason, found) in
            [("TaggingDenied", true), ("NotTagged", true), ("ResourcesAdopted", false), ("TakenOver", false)]
        {
            let adopted = Condition::new(condition::ADOPTED, true, reason, "");
            let status = InstanceGroupStatus { conditions: vec![adopted], ..InstanceGroupStatus::default() };
            assert_eq!(tagging_denied_condition(&status).is_some(), found, "{reason}");
        }
    }
}
