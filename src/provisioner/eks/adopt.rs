//! First sight of a group that another controller made: what it is taken over with.

use serde_json::json;

use super::input::Input;
use super::{names, observed, warm_pool};
use crate::api::names::condition;
use crate::api::{AdoptedResources, TemplateStatus};
use crate::aws::{LaunchTemplate, ScalingGroup, Tag, TemplateData};
use crate::ownership;
use crate::ownership::{UNTAGGED, not_tagged, owned};
use crate::plan::EksStep;
use crate::plan::{Draft, Drift, IamStep, Note, ObjectStep};

/// What a group launches from at that moment.
pub struct Found<'a> {
    /// What it is, in words.
    pub name: String,
    /// What it holds, as far as it could be read.
    pub data: Option<&'a TemplateData>,
    /// Nodes that came of something older.
    pub older: usize,
}

impl<'a> Found<'a> {
    /// A version of the launch template.
    pub fn version(input: &'a Input, number: i64) -> Self {
        let instances = input.state.group.iter().flat_map(|g| &g.instances);
        let versions = instances.filter_map(|i| observed::number(i.template.as_ref()?, input.state.template.as_ref()));
        let data = input.state.versions.get(&number).and_then(|v| v.data.as_ref());
        let older = versions.filter(|version| *version < number).count();
        Found { name: format!("template version {number}"), data, older }
    }

    /// A launch configuration.
    pub fn configuration(input: &'a Input, name: &str) -> Self {
        let instances = input.state.group.iter().flat_map(|g| &g.instances);
        let older = instances.filter(|i| i.configuration.as_deref() != Some(name)).count();
        Found { name: format!("launch configuration {name}"), data: input.state.configuration.as_ref(), older }
    }
}

/// What is found is up to date. It is tagged and recorded before anything else, and what differs is told once.
pub fn group(input: &Input, found: &Found, template: &TemplateStatus, draft: &mut Draft) {
    tag(input, found, draft);
    draft.step(ObjectStep::Record { status: json!({ "template": template }) });
    let differences: Vec<_> = differences(input, found).iter().map(ToString::to_string).collect();
    let mut message = format!("taken over at {}; ", found.name);
    message += &match differences.is_empty() {
        true => "nothing differs".to_owned(),
        false => {
            format!("these differences arrive with the next change, or when rotate-at asks: {}", differences.join("; "))
        }
    };
    let foreign = input.state.group.as_ref().map(|group| foreign(input, group)).unwrap_or_default();
    if !foreign.is_empty() {
        message += &format!("; not in the spec and left as they are: {}", foreign.join(", "));
    }
    draft.notes.push(Note { condition: condition::ADOPTED, status: true, reason: "TakenOver".into(), message });
}

/// The other controller tags nothing but the scaling group. By their derived names, and because that group refers to
/// them, the rest is ours too.
fn tag(input: &Input, found: &Found, draft: &mut Draft) {
    let r = input.resolved;
    let tags = || r.ownership.clone();
    let unclaimed = |held: &[Tag]| !owned(held, &r.ownership) && !ownership::foreign(held, &r.ownership);
    let template = input.state.template.as_ref().filter(|t| unclaimed(&t.tags));
    let refers = |arn: &str| found.data.is_some_and(|data| data.profile_arn == arn);
    let profile = input.state.profile.as_ref().filter(|p| r.own_role && refers(&p.arn));
    let role = profile.and_then(|p| p.role.as_ref()).filter(|role| role.name == r.names.role && unclaimed(&role.tags));
    let profile = profile.filter(|p| unclaimed(&p.tags));
    let launched = |t: &&LaunchTemplate| {
        let pin = input.state.group.as_ref().and_then(|g| g.template.as_ref());
        pin.is_some_and(|pin| pin.id == t.id) && names::is_derived(&t.name, &r.names.template)
    };
    record(
        input,
        AdoptedResources {
            template: template.filter(launched).map(|t| t.id.clone()),
            role: role.map(|role| role.id.clone()),
            profile: profile.map(|p| p.id.clone()),
        },
        draft,
    );
    if let Some(template) = template {
        draft.step(EksStep::TagTemplate { template: template.id.clone(), tags: tags() });
    }
    if let Some(role) = role {
        draft.step(IamStep::TagRole { role: role.name.clone(), tags: tags() });
    }
    if let Some(profile) = profile {
        draft.step(IamStep::TagProfile { profile: profile.name.clone(), tags: tags() });
    }
}

/// What is ours stands in the status before it is tagged: should AWS refuse the tags, nothing else shows it once the
/// scaling group is gone.
fn record(input: &Input, found: AdoptedResources, draft: &mut Draft) {
    let old = input.status.managed.as_ref().and_then(|m| m.adopted.as_ref());
    if found == AdoptedResources::default() || old == Some(&found) {
        return;
    }
    draft.record("adopted", json!(found));
}

/// Tries again what the takeover could not tag, and tells the takeover without that; a refusal adds it again.
pub fn tag_again(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let Some(told) = not_tagged(input.status).filter(|_| !input.state.tagging_rests) else { return };
    let (r, state) = (input.resolved, input.state);
    let number = group.template.as_ref().and_then(|pin| observed::number(pin, state.template.as_ref()));
    let mut found = match number {
        Some(number) => Found::version(input, number),
        None => Found::configuration(input, group.launch_configuration.as_deref().unwrap_or_default()),
    };
    // A version that only the status remembers holds what is wanted.
    let version = number.and_then(|number| state.versions.get(&number)?.fingerprint.as_ref());
    if version.is_some_and(|print| print.hash == r.fingerprint.hash) {
        found.data = Some(&r.data);
    }
    tag(input, &found, draft);
    let message = told.message.as_deref().unwrap_or_default();
    let message = message.split(UNTAGGED).next().unwrap_or_default().to_owned();
    draft.notes.push(Note { condition: condition::ADOPTED, status: true, reason: "TakenOver".into(), message });
}

/// What a version of ours would hold otherwise, and nodes that run something older.
fn differences(input: &Input, found: &Found) -> Vec<Drift> {
    let wanted = &input.resolved.data;
    let mut all = found.data.map(|data| super::launch_template::drift::data_fields(data, wanted)).unwrap_or_default();
    if found.data.is_some_and(|data| data.user_data != wanted.user_data) {
        all.push(Drift::new("userData", "as found", "as rendered now"));
    }
    if found.older > 0 {
        all.push(Drift::new("nodes", format!("{} of an older one", found.older), &found.name));
    }
    all
}

/// What others set on the scaling group and the role, or the spec once said.
fn foreign(input: &Input, group: &ScalingGroup) -> Vec<String> {
    let (r, wanted) = (input.resolved, &input.resolved.wanted);
    let tags = group.tags.iter().map(|t| &t.key).filter(|key| r.tags.iter().all(|t| t.key != **key));
    let hooks = input.state.hooks.iter().flatten().map(|h| &h.name);
    let hooks = hooks.filter(|name| wanted.hooks.iter().all(|h| h.name != **name));
    let processes = group.suspended.iter().filter(|p| !wanted.suspend.contains(*p));
    let metrics = group.metrics.iter().filter(|m| !wanted.metrics.contains(*m));
    let policies = input.state.attached.iter().filter(|p| r.own_role && !r.policies.contains(p));
    let named = |kind: &'static str| move |name: &String| format!("{kind} {name}");
    let pool = warm_pool::of_others(input).then(|| "the warm pool".to_owned());
    tags.map(named("tag"))
        .chain(pool)
        .chain(hooks.map(named("lifecycle hook")))
        .chain(processes.map(named("suspended process")))
        .chain(metrics.map(named("metric")))
        .chain(policies.map(named("policy")))
        .collect()
}
