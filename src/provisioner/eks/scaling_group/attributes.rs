//! What a scaling group has beside its sizes and its template, changed in place.

use std::collections::BTreeSet;

use crate::api::ManagedAttributes;
use crate::aws::{ScalingGroup, Tag, tag_map};
use crate::plan::EksStep;
use crate::plan::{Draft, Drift};
use crate::provisioner::eks::input::Input;
use crate::provisioner::eks::warm_pool;

/// Tags, processes, metrics, hooks and the warm pool: put where they differ, taken away where only we had set them.
pub fn attributes(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let managed = input.status.managed.clone().unwrap_or_default();
    tags(input, group, &managed, draft);
    let w = &input.resolved.wanted;
    let name = || group.name.clone();
    let (add, remove) = differ(&w.suspend, &group.suspended, &managed.processes);
    if !add.is_empty() {
        draft.because(
            EksStep::SuspendProcesses { group: name(), processes: add.clone() },
            vec![Drift::new("suspendProcesses", "", add.join(", "))],
        );
    }
    if !remove.is_empty() {
        draft.because(
            EksStep::ResumeProcesses { group: name(), processes: remove.clone() },
            vec![Drift::new("suspendProcesses", remove.join(", "), "")],
        );
    }
    let (add, remove) = differ(&w.metrics, &group.metrics, &managed.metrics);
    if !add.is_empty() {
        draft.because(
            EksStep::EnableMetrics { group: name(), metrics: add.clone() },
            vec![Drift::new("metricsCollection", "", add.join(", "))],
        );
    }
    if !remove.is_empty() {
        draft.because(
            EksStep::DisableMetrics { group: name(), metrics: remove.clone() },
            vec![Drift::new("metricsCollection", remove.join(", "), "")],
        );
    }
    hooks(input, group, &managed, draft);
    warm_pool::pool(input, group, &managed, draft);
}

/// What is to be added, and what we once set and nobody wants any more.
fn differ(wanted: &BTreeSet<String>, present: &[String], recorded: &[String]) -> (Vec<String>, Vec<String>) {
    let add = wanted.iter().filter(|w| !present.contains(w)).cloned().collect();
    let remove = present.iter().filter(|p| recorded.contains(p) && !wanted.contains(*p)).cloned().collect();
    (add, remove)
}

fn tags(input: &Input, group: &ScalingGroup, managed: &ManagedAttributes, draft: &mut Draft) {
    let present = tag_map(&group.tags);
    let wanted = tag_map(&input.resolved.tags);
    let difference = |t: &Tag| match present.get(t.key.as_str()) {
        Some(value) if *value == t.value => (group.unpropagated.contains(&t.key))
            .then(|| Drift::new(format!("tags[{}].propagateAtLaunch", t.key), false, true)),
        value => Some(Drift::new(format!("tags[{}]", t.key), value.unwrap_or(&""), &t.value)),
    };
    let differing = input.resolved.tags.iter().filter_map(|t| Some((t.clone(), difference(t)?)));
    let (put, because): (Vec<_>, _) = differing.unzip();
    if !put.is_empty() {
        draft.because(EksStep::PutTags { group: group.name.clone(), tags: put }, because);
    }
    let delete: Vec<_> = present
        .keys()
        .filter(|k| !wanted.contains_key(*k) && managed.tags.iter().any(|m| m == *k))
        .map(|k| (*k).to_owned())
        .collect();
    if !delete.is_empty() {
        let because = delete.iter().map(|k| Drift::new(format!("tags[{k}]"), present[k.as_str()], "")).collect();
        draft.because(EksStep::DeleteTags { group: group.name.clone(), keys: delete }, because);
    }
}

fn hooks(input: &Input, group: &ScalingGroup, managed: &ManagedAttributes, draft: &mut Draft) {
    let Some(present) = &input.state.hooks else { return };
    for hook in &input.resolved.wanted.hooks {
        let because = match present.iter().find(|h| h.name == hook.name) {
            None => vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "", "present")],
            Some(found) => crate::provisioner::eks::launch_template::drift::hook(found, hook),
        };
        let found = present.iter().find(|h| h.name == hook.name);
        // What PutLifecycleHook does not name stays as it was.
        if found.is_some_and(|found| crate::provisioner::eks::launch_template::drift::loses(found, hook)) {
            draft.step(EksStep::DeleteHook { group: group.name.clone(), hook: hook.name.clone() });
        }
        if !because.is_empty() {
            draft.because(EksStep::PutHook { group: group.name.clone(), hook: hook.clone() }, because);
        }
    }
    let wanted = |name: &str| input.resolved.wanted.hooks.iter().any(|h| h.name == name);
    for hook in present.iter().filter(|h| managed.hooks.contains(&h.name) && !wanted(&h.name)) {
        let because = vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "present", "")];
        draft.because(EksStep::DeleteHook { group: group.name.clone(), hook: hook.name.clone() }, because);
    }
}
