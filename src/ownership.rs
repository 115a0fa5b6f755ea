//! Whose a resource of AWS is: all three tags, on the resource itself.

use super::provisioner::GroupId;
use crate::api::names::{condition, tag};
use crate::api::{Condition, InstanceGroupStatus};
use crate::aws::{Tag, tag_map};
use crate::plan::{Outcome, Reason};

/// The three tags that together prove ownership.
pub const KEYS: [&str; 3] = [tag::CLUSTER_NAME, tag::INSTANCE_GROUP, tag::NAMESPACE];

/// How the message of `Adopted` goes on where tags are missing.
pub const UNTAGGED: &str = "; not tagged, which deleting the group needs";

/// What a person reads while the rights to set tags, or to take them off, are missing.
pub fn may_not_tag(rights: &str) -> String {
    format!("the tags are not as wanted: the controller may not {rights}; add the action to its IAM role")
}

/// How a group of EKS stands whose tags AWS refused to change, with what is to be put and to be taken off; the report of
/// the pass that was refused says the same.
pub fn untaggable(put: bool, gone: bool, deleting: bool) -> Outcome {
    let rights: Vec<_> =
        [(put, "eks:TagResource"), (gone, "eks:UntagResource")].into_iter().filter(|(lacks, _)| *lacks).collect();
    let rights: Vec<_> = rights.into_iter().map(|(_, right)| right).collect();
    Outcome::Blocked { reason: Reason::MissingPermission, message: may_not_tag(&rights.join(" and ")), deleting }
}

/// The tags that prove that a resource belongs to a group.
pub fn ownership(cluster: &str, id: &GroupId) -> Vec<Tag> {
    let values = [cluster, &id.name, &id.namespace];
    KEYS.iter().zip(values).map(|(key, value)| Tag { key: (*key).into(), value: value.into() }).collect()
}

/// Whether a resource carries all three tags of a group.
pub fn owned(tags: &[Tag], ownership: &[Tag]) -> bool {
    let tags = tag_map(tags);
    ownership.iter().all(|t| tags.get(t.key.as_str()) == Some(&t.value.as_str()))
}

/// Whether a resource is the very one that was taken over, and nobody has claimed it since.
pub fn taken_over(id: &str, tags: &[Tag], recorded: Option<&String>, ownership: &[Tag]) -> bool {
    !id.is_empty() && recorded.is_some_and(|recorded| recorded == id) && !foreign(tags, ownership)
}

/// Whether a resource is provably a group's: by its tags, or because it is the very one that was taken over.
pub fn proven(id: &str, tags: &[Tag], recorded: Option<&String>, ownership: &[Tag]) -> bool {
    owned(tags, ownership) || taken_over(id, tags, recorded, ownership)
}

/// Whether a resource carries another group's tags.
pub fn foreign(tags: &[Tag], ownership: &[Tag]) -> bool {
    let held = tag_map(tags);
    let claimed = [tag::INSTANCE_GROUP, tag::NAMESPACE].iter().any(|k| held.contains_key(k));
    claimed && !owned(tags, ownership)
}

/// Whose a scaling group is whose name a group derives, by its tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
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
pub fn claim(name: &str, tags: &[Tag], ownership: &[Tag]) -> Claim {
    let held = tag_map(tags);
    if owned(tags, ownership) {
        return Claim::Ours;
    }
    if !KEYS.iter().any(|key| held.contains_key(key)) {
        return Claim::Nobodys;
    }
    let wanted = tag_map(ownership);
    let [group, namespace] = [tag::INSTANCE_GROUP, tag::NAMESPACE];
    if let (Some(other), Some(space)) = (held.get(group), held.get(namespace))
        && (wanted[group], wanted[namespace]) != (*other, *space)
        && name.ends_with(&format!("-{space}-{other}"))
    {
        return Claim::Theirs;
    }
    let wrong = |t: &Tag| match held.get(t.key.as_str()) {
        None => Some(format!("the tag {}={} is missing", t.key, t.value)),
        Some(value) if *value != t.value => Some(format!("the tag {} says {value} and not {}", t.key, t.value)),
        Some(_) => None,
    };
    Claim::Damaged(ownership.iter().filter_map(wrong).collect::<Vec<_>>().join(" and "))
}

/// What a person reads of a scaling group that bears a group's name and is not provably its own, without the remedy;
/// `None` for its own.
pub fn unproven(name: &str, tags: &[Tag], ownership: &[Tag]) -> Option<String> {
    let why = match claim(name, tags, ownership) {
        Claim::Ours => return None,
        Claim::Theirs => "carries the tags of another group".into(),
        Claim::Damaged(how) => format!("is not provably this group's: {how}"),
        Claim::Nobodys => {
            let tags: Vec<_> = ownership.iter().map(|t| format!("{}={}", t.key, t.value)).collect();
            format!("carries none of this group's tags: {}", tags.join(", "))
        }
    };
    Some(format!("the scaling group {name} is there and {why}"))
}

/// What a takeover told, when it could not tag everything.
pub fn not_tagged(status: &InstanceGroupStatus) -> Option<&Condition> {
    let told = status.conditions.iter().find(|c| c.r#type == condition::ADOPTED);
    told.filter(|c| c.reason.as_deref() == Some(condition::NOT_TAGGED))
}
