//! Tags of the spec that change on running instances (`inPlace: [tags]`).
//!
//! Auto Scaling gives an instance the tags that the scaling group has at its launch, and never changes them. So the scaling
//! group gets the new tags first. The status says which tags the running instances have, and is written before anything
//! changes and again afterwards: a new process goes on where the last one stopped.

use std::collections::BTreeMap;

use serde_json::json;

use crate::api::{InPlaceField, ManagedAttributes};
use crate::aws::{ScalingGroup, Tag, tag_map};
use crate::plan::{Drift, EksStep, ObjectStep, Outcome, Phase, PlanBuilder, Recheck};
use crate::provisioner::broken_fields::Part;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::in_place;

/// The tags that the running instances have, as the status records it; `None` while tags do not change in place.
///
/// At first it is not known what the instances were launched with. Then only the tags that the spec no longer has are
/// recorded, so that those are removed and all others are set.
pub(crate) fn recorded(input: &PlanInput, old: &ManagedAttributes) -> Option<BTreeMap<String, String>> {
    if input.resolved.broken.contains(Part::Tags) {
        return old.instance_tags.clone();
    }
    if !in_place::fields(input.resolved).contains(&InPlaceField::Tags) {
        return None;
    }
    let desired = desired(input.resolved);
    // An answer of AWS may be older than the scaling group: what its instances have stays recorded.
    if old.instance_tags.is_some() {
        return old.instance_tags.clone();
    }
    let Some(group) = &input.observed.scaling_group else { return Some(desired) };
    let is_left =
        |tag: &&Tag| old.tags.contains(&tag.key) && !tag_map(&input.resolved.tags).contains_key(tag.key.as_str());
    let left = group.tags.iter().filter(is_left);
    Some(left.map(|tag| (tag.key.clone(), tag.value.clone())).collect())
}

/// Changes the tags of the running instances, once the scaling group has the new ones.
pub(crate) fn change(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let managed = input.status.managed.clone().unwrap_or_default();
    let Some(given) = recorded(input, &managed).filter(|_| !input.resolved.broken.contains(Part::Tags)) else { return };
    let desired = desired(input.resolved);
    if given == desired || builder.has_changes() {
        return;
    }
    let tag = |(key, value): (&String, &String)| Tag { key: key.clone(), value: value.clone() };
    let set: Vec<_> = desired.iter().filter(|(key, value)| given.get(*key) != Some(*value)).map(tag).collect();
    // Whoever can write the status could name tags that prove whose the instances are.
    let is_of_group = |key: &str| input.resolved.tags.iter().any(|tag| tag.key == key) || key.starts_with("aws:");
    let gone = given.iter().filter(|(key, _)| !desired.contains_key(*key) && !is_of_group(key));
    let remove: Vec<_> = gone.map(tag).collect();
    let name = |key: &str| format!("tags[{key}]");
    let changed =
        set.iter().map(|tag| Drift::new(name(&tag.key), given.get(&tag.key).map_or("", |old| old), &tag.value));
    let removed = remove.iter().map(|tag| Drift::new(name(&tag.key), &tag.value, ""));
    let reasons: Vec<_> = changed.chain(removed).collect();
    let words: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    let after = ManagedAttributes { instance_tags: Some(desired), ..managed.clone() };
    builder.push_with_reasons(EksStep::TagInstances { group: group.name.clone(), set, remove }, reasons);
    builder.push(ObjectStep::UpdateStatus { status: json!({ "managed": after.patch_from(&managed) }) });
    builder.set_outcome_once(Outcome::Progressing {
        phase: Phase::Modifying,
        message: format!("changing tags of the instances in place: {}", words.join(", ")),
        recheck: Recheck::Immediately,
    });
}

/// The tags of the spec that instances are launched with. Those that prove ownership and name the group never change.
fn desired(resolved: &ResolvedGroup) -> BTreeMap<String, String> {
    let of_group = tag_map(&resolved.tags);
    let of_spec =
        resolved.desired.tags.iter().filter(|tag| of_group.get(tag.key.as_str()) == Some(&tag.value.as_str()));
    of_spec.map(|tag| (tag.key.clone(), tag.value.clone())).collect()
}
