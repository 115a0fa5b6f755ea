//! Tags of the spec that change on running instances (`inPlace: [tags]`).
//!
//! Auto Scaling gives an instance the tags that the scaling group has at its launch, and never changes them. So the
//! scaling group gets the new tags first. The status records which tags the running instances have. Before a change it
//! also records which values the change may set, until its end is recorded. The process may stop in between, or the
//! spec may change again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::api::{InPlaceField, ManagedAttributes};
use crate::aws::{ScalingGroup, Tag, tag_map};
use crate::plan::{Drift, EksStep, Outcome, Phase, PlanBuilder, Recheck};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::in_place;
use crate::provisioner::rejected_fields::Part;

/// The tags that the running instances have, as the status records it; `None` before tags change in place for the first time.
/// They stay recorded while tags do not change in place, because they may again.
///
/// At first it is not known what the instances were launched with. Then only the tags that the spec no longer has are
/// recorded, so that those are removed and all others are set.
pub(crate) fn recorded(input: &PlanInput, old: &ManagedAttributes) -> Option<BTreeMap<String, String>> {
    // An answer of AWS may be older than the scaling group: what its instances have stays recorded.
    if old.instance_tags.is_some() || !changes_in_place(input) {
        return old.instance_tags.clone();
    }
    let Some(group) = &input.observed.scaling_group else { return Some(desired(input.resolved)) };
    Some(dropped(input, group, old).map(|tag| (tag.key.clone(), tag.value.clone())).collect())
}

/// The tags that the controller set on the scaling group and that the spec no longer has. Instances may have them.
fn dropped<'a>(
    input: &'a PlanInput,
    group: &'a ScalingGroup,
    old: &'a ManagedAttributes,
) -> impl Iterator<Item = &'a Tag> {
    let desired = tag_map(&input.resolved.tags);
    group.tags.iter().filter(move |tag| old.tags.contains(&tag.key) && !desired.contains_key(tag.key.as_str()))
}

/// Whether tags change on the running instances. They do not while that, or the tags, cannot be known.
fn changes_in_place(input: &PlanInput) -> bool {
    !is_broken(input) && in_place::fields(input.resolved).contains(&InPlaceField::Tags)
}

/// Whether a field that decides the tags, or whether they change in place, cannot be used. The recorded tags then stay.
fn is_broken(input: &PlanInput) -> bool {
    input.resolved.broken.contains(Part::Tags) || input.resolved.broken.contains(Part::Rotation)
}

/// The values that an unfinished change may have set, and those that the spec dropped or changed while tags did not change in
/// place; no value for a tag that a change may have removed. Empty before tags change in place for the first time.
pub(crate) fn recorded_start(input: &PlanInput, old: &ManagedAttributes) -> BTreeMap<String, BTreeSet<String>> {
    if recorded(input, old).is_none() {
        return BTreeMap::new();
    }
    let mut values = old.started_instance_tags.clone();
    let is_off = !is_broken(input) && !changes_in_place(input);
    if let Some(group) = input.observed.scaling_group.as_ref().filter(|_| is_off) {
        for tag in dropped(input, group, old) {
            values.entry(tag.key.clone()).or_default().insert(tag.value.clone());
        }
        // Instances may have been launched with another value, so that it is set again.
        let desired = desired(input.resolved);
        let differs = |tag: &&Tag| desired.get(&tag.key).is_some_and(|value| *value != tag.value);
        for tag in group.tags.iter().filter(differs) {
            values.entry(tag.key.clone()).or_default();
        }
    }
    values
}

/// Changes the tags of the running instances, once the scaling group has the new ones.
pub(crate) fn change(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let managed = input.status.managed.clone().unwrap_or_default();
    let Some(given) = recorded(input, &managed).filter(|_| changes_in_place(input)) else { return };
    let desired = desired(input.resolved);
    let started = &managed.started_instance_tags;
    if (given == desired && started.is_empty()) || builder.has_changes() {
        return;
    }
    let (set, remove) = writes(&given, started, &desired, input.resolved);
    let name = |key: &str| format!("tags[{key}]");
    let changed =
        set.iter().map(|tag| Drift::new(name(&tag.key), given.get(&tag.key).map_or("", |old| old), &tag.value));
    let removed = remove.iter().map(|tag| Drift::new(name(&tag.key), &tag.value, ""));
    let reasons: Vec<_> = changed.chain(removed).collect();
    let words: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    let mut values = started.clone();
    for tag in &set {
        values.entry(tag.key.clone()).or_default().insert(tag.value.clone());
    }
    for tag in &remove {
        values.entry(tag.key.clone()).or_default();
    }
    if values != *started {
        builder.record_managed("startedInstanceTags", json!(values));
    }
    let record = |tags, started| ManagedAttributes {
        instance_tags: Some(tags),
        started_instance_tags: started,
        ..ManagedAttributes::default()
    };
    let end = record(desired, BTreeMap::new()).patch_from(&record(given, values));
    builder.push_with_reasons(EksStep::TagInstances { group: group.name.clone(), set, remove }, reasons);
    builder.record_after_steps(json!({ "managed": end }));
    builder.set_outcome_once(Outcome::Progressing {
        phase: Phase::Modifying,
        message: format!("changing tags of the instances in place: {}", words.join(", ")),
        recheck: Recheck::Immediately,
    });
}

/// The tags to set on instances that have `given`, or a value of `started`, and those to remove: a key may have several
/// values.
fn writes(
    given: &BTreeMap<String, String>,
    started: &BTreeMap<String, BTreeSet<String>>,
    desired: &BTreeMap<String, String>,
    resolved: &ResolvedGroup,
) -> (Vec<Tag>, Vec<Tag>) {
    let tag = |(key, value): (&String, &String)| Tag { key: key.clone(), value: value.clone() };
    let may_differ = |key: &String, value: &String| given.get(key) != Some(value) || started.contains_key(key);
    let set = desired.iter().filter(|(key, value)| may_differ(key, value)).map(tag).collect();
    // A user who can write the status could name tags that prove the owner of the instances.
    let is_of_group = |key: &str| resolved.tags.iter().any(|tag| tag.key == key) || key.starts_with("aws:");
    let started = started.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    let possible: BTreeSet<_> = given.iter().chain(started).collect();
    let gone = possible.into_iter().filter(|(key, _)| !desired.contains_key(*key) && !is_of_group(key));
    (set, gone.map(tag).collect())
}

/// The tags of the spec that instances are launched with. Those that prove ownership and name the group never change.
fn desired(resolved: &ResolvedGroup) -> BTreeMap<String, String> {
    let of_group = tag_map(&resolved.tags);
    let of_spec =
        resolved.desired.tags.iter().filter(|tag| of_group.get(tag.key.as_str()) == Some(&tag.value.as_str()));
    of_spec.map(|tag| (tag.key.clone(), tag.value.clone())).collect()
}
