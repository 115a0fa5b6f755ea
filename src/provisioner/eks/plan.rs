//! From what is wanted and what there is to what is to be done. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::resolve::Resolved;
use super::state::{self, Pinned, State};
use super::{adopt, configuration, create, purchase, rotate, standing, warm};
use crate::api::{InstanceGroupStatus, ManagedAttributes};
use crate::auth::aws_auth::EntryState;
use crate::aws::{Instance, NewVersion, ScalingGroup, ScalingGroupChange, Tag, TemplatePin, tag_map};
use crate::plan::{Drift, Facts, Note, Outcome, Phase, Pin, Plan, Planned, Reason, Recheck, Step, Told};
use crate::provisioner::sentence;
use crate::timing::Timing;

/// Everything that a plan depends on.
pub struct Input<'a> {
    /// What is wanted.
    pub resolved: &'a Resolved,
    /// What there is.
    pub state: &'a State,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// Who holds the brake, if anyone.
    pub lock: Option<&'a str>,
    /// `--config-retention`: unused versions to keep.
    pub retention: usize,
    /// How long things take.
    pub timing: &'a Timing,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// A plan in the making.
#[derive(Default)]
pub struct Draft {
    /// In order.
    pub steps: Vec<Planned>,
    /// The outcome, once something decides it.
    pub outcome: Option<Outcome>,
    /// Conditions beside the standard ones.
    pub notes: Vec<Note>,
    /// Events.
    pub events: Vec<Told>,
    /// What status tells.
    pub facts: Facts,
}

impl Draft {
    /// Adds a step.
    pub fn step(&mut self, step: Step) {
        self.steps.push(step.into());
    }

    /// Adds a step with its reasons.
    pub fn because(&mut self, step: Step, because: Vec<Drift>) {
        self.steps.push(Planned { step, because });
    }

    /// The first to decide the outcome wins.
    pub fn decide(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    fn finish(self, input: &Input) -> Plan {
        let id = &input.resolved.wanted.id;
        Plan {
            group: id.key(),
            generation: id.generation,
            steps: self.steps,
            outcome: self.outcome.unwrap_or(Outcome::Converged),
            facts: self.facts,
            notes: self.notes.into_iter().filter(|n| n.condition != AUTH).collect(),
            events: self.events,
            wake: input.resolved.wanted.strategy.rotate_at.filter(|at| *at > input.now),
        }
    }
}

/// Plans one pass for a group that is to live.
pub fn plan(input: &Input) -> Plan {
    let mut draft = Draft { facts: facts(input), ..Draft::default() };
    if !input.resolved.wanted.id.finalizer {
        draft.step(Step::AddFinalizer);
    }
    match &input.state.group {
        None => create::group(input, &mut draft),
        Some(group) if state::owned(&group.tags, &input.resolved.ownership) => existing(input, group, &mut draft),
        Some(group) => draft.decide(Outcome::Blocked {
            reason: Reason::NotOurs,
            message: format!("the scaling group {} is there and does not carry this group's three tags; rename the InstanceGroup, or remove the other group", group.name),
            deleting: false,
        }),
    }
    draft.finish(input)
}

fn existing(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    if group.deleting {
        return draft.decide(waiting(
            Phase::Modifying,
            format!("the scaling group {} is being deleted; it is made again when it is gone", group.name),
        ));
    }
    record(input, draft);
    recommended(input, draft);
    authorise(input, draft);
    if !input.resolved.wanted.unsupported.is_empty() {
        sizes(input, group, None, draft);
        return draft.decide(Outcome::Blocked {
            reason: Reason::NotSupported,
            message: sentence(&input.resolved.wanted.unsupported),
            deleting: false,
        });
    }
    if input.resolved.own_role {
        create::role(input, draft);
    }
    let pin = template(input, group, draft);
    sizes(input, group, pin, draft);
    attributes(input, group, draft);
    configuration::retire(input, group, draft);
    let changed = draft.steps.iter().any(|s| !matches!(s.step, Step::Record { .. }));
    if changed && draft.outcome.is_none() {
        draft.facts.nodes_ready = None;
        draft.decide(Outcome::Progressing {
            phase: Phase::Modifying,
            message: "changing in place".into(),
            recheck: Recheck::Soon,
        });
        return;
    }
    if draft.outcome.is_none() {
        adopt::tag_again(input, group, draft);
        rotate::nodes(input, group, draft);
        standing::nodes(input, group, draft);
    }
}

/// Waiting for AWS or nodes.
pub fn waiting(phase: Phase, message: impl Into<String>) -> Outcome {
    Outcome::Progressing { phase, message: message.into(), recheck: Recheck::Poll }
}

fn facts(input: &Input) -> Facts {
    let r = input.resolved;
    let mut status = BTreeMap::from([
        ("activeScalingGroupName".to_owned(), json!(r.names.group)),
        ("provisioner".into(), json!("eks")),
        ("strategy".into(), json!("rollingUpdate")),
        ("lifecycle".into(), json!(r.wanted.lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(r.role_arn)),
    ]);
    if let Some(template) = &input.state.template {
        status.insert("activeLaunchTemplateName".into(), json!(template.name));
    }
    if let Some(group) = &input.state.group {
        let configuration = configuration::of(group);
        if configuration.is_some() || input.status.active_launch_configuration_name.is_some() {
            status.insert("activeLaunchConfigurationName".into(), json!(configuration));
        }
        status.insert("currentMin".into(), json!(group.min));
        status.insert("currentMax".into(), json!(group.max));
    }
    Facts { status, nodes_ready: None }
}

/// What we set is recorded before it is set; what is not there any more leaves the record.
pub fn record(input: &Input, draft: &mut Draft) {
    let old = input.status.managed.clone().unwrap_or_default();
    let r = input.resolved;
    let (tags, processes, metrics) = match &input.state.group {
        Some(g) => (keys(&g.tags), g.suspended.clone(), g.metrics.clone()),
        None => Default::default(),
    };
    let hooks = input.state.hooks.iter().flatten().map(|h| h.name.clone()).collect();
    let managed = ManagedAttributes {
        tags: union(keys(&r.tags), &old.tags, tags),
        hooks: union(r.wanted.hooks.iter().map(|h| h.name.clone()).collect(), &old.hooks, hooks),
        processes: union(r.wanted.suspend.iter().cloned().collect(), &old.processes, processes),
        metrics: union(r.wanted.metrics.iter().cloned().collect(), &old.metrics, metrics),
        auth_entries: match input.state.auth {
            EntryState::Absent => vec![r.role_arn.clone()],
            _ if input.state.auth_is_ours => vec![r.role_arn.clone()],
            EntryState::Present | EntryState::Conflict { .. } | EntryState::Unparsable { .. } => {
                old.auth_entries.clone()
            }
        },
        policies: union(
            if r.own_role { r.policies.clone() } else { Vec::new() },
            &old.policies,
            input.state.attached.clone(),
        ),
        configurations: configuration::recorded(input),
        warm_pool: r.wanted.warm_pool.is_some()
            || (old.warm_pool && input.state.group.as_ref().is_some_and(|g| g.warm_pool.is_some())),
    };
    if managed != old || input.status.managed.is_none() {
        let mut status = json!({ "managed": managed });
        if input.status.active_scaling_group_name.as_deref() != Some(&r.names.group) {
            status["activeScalingGroupName"] = json!(r.names.group);
            status["activeLaunchTemplateName"] = json!(r.names.template);
            status["nodesInstanceRoleArn"] = json!(r.role_arn);
        }
        draft.step(Step::Record { status });
    }
}

/// A recommendation is remembered before it is followed, because its event goes.
fn recommended(input: &Input, draft: &mut Draft) {
    let found = &input.resolved.wanted.recommended;
    if found.is_some() && *found != input.status.spot_recommendation {
        draft.step(Step::Record { status: json!({ "spotRecommendation": found }) });
    }
    // Who never heard of one is not told so.
    if found.is_some() || input.status.using_spot_recommendation.is_some() {
        draft.facts.status.insert("usingSpotRecommendation".into(), json!(found.is_some()));
    }
}

fn keys(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|t| t.key.clone()).collect()
}

/// Wanted ones, and recorded ones that are still there.
fn union(wanted: Vec<String>, recorded: &[String], present: Vec<String>) -> Vec<String> {
    let present: BTreeSet<_> = present.into_iter().collect();
    let mut all: BTreeSet<_> = wanted.into_iter().collect();
    all.extend(recorded.iter().filter(|r| present.contains(*r)).cloned());
    all.into_iter().collect()
}

/// The role's entry in aws-auth. What cannot be done here is told and stops nothing else.
pub fn authorise(input: &Input, draft: &mut Draft) {
    let entry = &input.resolved.auth;
    match &input.state.auth {
        EntryState::Present => {}
        EntryState::Absent => {
            draft.because(Step::PutAuthEntry(entry.clone()), vec![Drift::new("aws-auth", "", &entry.role_arn)])
        }
        EntryState::Conflict { detail } | EntryState::Unparsable { detail } => draft.notes.push(Note {
            condition: AUTH,
            status: false,
            reason: Reason::AuthConflict.to_string(),
            message: format!("kube-system/aws-auth: {detail}; new nodes cannot join until it is mended by hand"),
        }),
    }
}

/// A note of this name blocks the group instead of becoming a condition.
pub const AUTH: &str = "aws-auth";

fn template(input: &Input, group: &ScalingGroup, draft: &mut Draft) -> Option<Pin> {
    let r = input.resolved;
    let Some(pin) = &group.template else { return configuration::template(input, group, draft) };
    let id = pin.id.clone();
    if input.state.template.as_ref().is_some_and(|t| !t.id.eq(&id)) || input.state.template.is_none() {
        return replace_template(input, draft);
    }
    match state::pinned(r, input.state, input.status, pin) {
        Pinned::Current { number, floating } => {
            remember(input, &id, number, draft);
            floating.then_some(Pin::Version { template: id, number })
        }
        Pinned::Repin { number, because } => {
            draft.facts.status.insert("latestTemplateVersion".into(), json!(number.to_string()));
            draft.because(
                Step::UpdateGroup {
                    group: group.name.clone(),
                    change: ScalingGroupChange::default(),
                    pin: Some(Pin::Version { template: id, number }),
                },
                because,
            );
            None
        }
        Pinned::New { because } => {
            new_version(input, &id, pin, because, draft);
            Some(Pin::Made { hash: r.fingerprint.hash.clone() })
        }
    }
}

/// The group refers to a template that is gone or is not ours by name: make ours again.
fn replace_template(input: &Input, draft: &mut Draft) -> Option<Pin> {
    create::template(input, draft)
}

fn new_version(input: &Input, id: &str, pin: &TemplatePin, because: Vec<Drift>, draft: &mut Draft) {
    let r = input.resolved;
    let version = NewVersion {
        token: create::token(&[id, &r.fingerprint.hash, &pin.version]),
        description: r.fingerprint.line(),
        data: r.data.clone(),
    };
    draft.because(Step::PutTemplateVersion { template: id.into(), version }, because);
    draft.events.extend(create::ignored(r));
    let unused = superfluous(input, pin);
    if !unused.is_empty() {
        draft.step(Step::DeleteTemplateVersions { template: id.into(), numbers: unused });
    }
}

/// Versions that nothing uses, beyond the ones to be retained.
fn superfluous(input: &Input, pin: &TemplatePin) -> Vec<i64> {
    let Some(template) = &input.state.template else { return Vec::new() };
    // Nobody looks into a pool of others.
    if warm::of_others(input) {
        return Vec::new();
    }
    let mut used: BTreeSet<i64> = [template.default_version, template.latest_version].into();
    used.extend(state::number(pin, Some(template)));
    let remembered = input.status.template.as_ref();
    used.extend(remembered.and_then(|t| t.last_ready_version.as_ref()).and_then(|v| v.parse::<i64>().ok()));
    let warm = input.state.warm.iter().flatten().map(|w| &w.instance);
    let instances = input.state.group.iter().flat_map(|g| &g.instances).chain(warm);
    used.extend(instances.filter_map(|i| state::number(i.template.as_ref()?, Some(template))));
    let unused: Vec<_> = input.state.versions.keys().rev().filter(|n| !used.contains(n)).copied().collect();
    unused.into_iter().skip(input.retention).collect()
}

fn remember(input: &Input, id: &str, number: i64, draft: &mut Draft) {
    let r = input.resolved;
    let old = input.status.template.clone().unwrap_or_default();
    let version = Some(number.to_string());
    let mut new = old.clone();
    (new.id, new.version) = (Some(id.to_owned()), version.clone());
    let own = input.state.versions.get(&number).and_then(|v| v.fingerprint.as_ref());
    match own {
        Some(print) => new.hash = Some(print.hash.clone()),
        None => {
            new.hash = Some(r.fingerprint.hash.clone());
            new.adopted_hash = Some(r.fingerprint.hash.clone());
            new.adopted_version = version.clone();
        }
    }
    draft.facts.status.insert("latestTemplateVersion".into(), json!(version));
    if new != old && own.is_none() {
        adopt::group(input, &adopt::Found::version(input, number), &new, draft);
    }
    draft.facts.status.insert("template".into(), json!(new));
}

fn sizes(input: &Input, group: &ScalingGroup, pin: Option<Pin>, draft: &mut Draft) {
    let w = &input.resolved.wanted;
    let mut because = Vec::new();
    let mut change = ScalingGroupChange::default();
    if group.min != w.min {
        change.min = Some(w.min);
        because.push(Drift::new("minSize", group.min, w.min));
    }
    // Below desired AWS would kill nodes undrained: first no further growth, and the rest is drained away.
    let surplus = group.desired - w.max;
    let heavy = |i: &Instance| i64::from(i.weight) > i64::from(surplus);
    // What is less than any node weighs takes no node away.
    let none = !group.instances.is_empty() && group.instances.iter().all(heavy);
    let max = if none { w.max } else { w.max.max(group.desired.min(group.max)) };
    if group.max != max {
        change.max = Some(max);
        because.push(Drift::new("maxSize", group.max, max));
    }
    if w.unsupported.is_empty() && group.subnets != input.resolved.subnets {
        change.subnets = Some(input.resolved.subnets.clone());
        because.push(Drift::new("subnets", group.subnets.join(", "), input.resolved.subnets.join(", ")));
    }
    let pin = buy(input, group, pin, &mut change, &mut because, draft);
    let repin = draft.steps.iter_mut().find(|s| matches!(s.step, Step::UpdateGroup { .. }));
    match repin {
        Some(Planned { step: Step::UpdateGroup { change: c, .. }, because: b }) => {
            *c = change;
            b.extend(because);
        }
        _ if change != ScalingGroupChange::default() || pin.is_some() => {
            because.extend(pin.as_ref().and_then(|pin| repinned(group, pin)));
            // The version is made right before it is pinned.
            let delete = draft
                .steps
                .iter()
                .position(|s| matches!(s.step, Step::DeleteTemplateVersions { .. }))
                .unwrap_or(draft.steps.len());
            draft.steps.insert(
                delete,
                Planned { step: Step::UpdateGroup { group: group.name.clone(), change, pin }, because },
            );
        }
        _ => {}
    }
}

/// A version that the group is not pinned to yet.
fn repinned(group: &ScalingGroup, pin: &Pin) -> Option<Drift> {
    let to = match pin {
        Pin::Version { number, .. } => number.to_string(),
        Pin::Made { .. } => "the new one".into(),
    };
    match &group.template {
        Some(from) => (from.version != to).then(|| Drift::new("template version", &from.version, to)),
        None => {
            let from = group.launch_configuration.clone().unwrap_or_default();
            Some(Drift::new("launch configuration", from, "a launch template"))
        }
    }
}

/// A mixed instances policy and the pinned template go to AWS together: each without the other would undo it.
fn buy(
    input: &Input,
    group: &ScalingGroup,
    pin: Option<Pin>,
    change: &mut ScalingGroupChange,
    because: &mut Vec<Drift>,
    draft: &Draft,
) -> Option<Pin> {
    if !input.resolved.wanted.unsupported.is_empty() || draft.outcome.is_some() {
        return pin;
    }
    let repins = draft.steps.iter().any(|s| matches!(s.step, Step::UpdateGroup { .. }));
    let changes = repins || matches!(pin, Some(Pin::Made { .. })) || change.subnets.is_some();
    let policy = purchase::policy(input, Some(group), changes);
    let differs = purchase::drift(group.mixed.as_ref(), policy.as_ref());
    if pin.is_none() && !repins && differs.is_empty() {
        return None;
    }
    let current = || {
        let pin = group.template.as_ref()?;
        Some(Pin::Version { template: pin.id.clone(), number: state::number(pin, input.state.template.as_ref())? })
    };
    let pin = if repins { None } else { pin.or_else(current) };
    // A launch configuration takes no policy; it comes with the template.
    if pin.is_none() && !repins {
        return None;
    }
    change.mixed = policy;
    because.extend(differs);
    pin
}

fn attributes(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let managed = input.status.managed.clone().unwrap_or_default();
    tags(input, group, &managed, draft);
    let w = &input.resolved.wanted;
    let name = || group.name.clone();
    let (add, remove) = differ(&w.suspend, &group.suspended, &managed.processes);
    if !add.is_empty() {
        draft.because(
            Step::SuspendProcesses { group: name(), processes: add.clone() },
            vec![Drift::new("suspendProcesses", "", add.join(", "))],
        );
    }
    if !remove.is_empty() {
        draft.because(
            Step::ResumeProcesses { group: name(), processes: remove.clone() },
            vec![Drift::new("suspendProcesses", remove.join(", "), "")],
        );
    }
    let (add, remove) = differ(&w.metrics, &group.metrics, &managed.metrics);
    if !add.is_empty() {
        draft.because(
            Step::EnableMetrics { group: name(), metrics: add.clone() },
            vec![Drift::new("metricsCollection", "", add.join(", "))],
        );
    }
    if !remove.is_empty() {
        draft.because(
            Step::DisableMetrics { group: name(), metrics: remove.clone() },
            vec![Drift::new("metricsCollection", remove.join(", "), "")],
        );
    }
    hooks(input, group, &managed, draft);
    warm::pool(input, group, &managed, draft);
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
    let put: Vec<_> = input
        .resolved
        .tags
        .iter()
        .filter(|t| present.get(t.key.as_str()) != Some(&t.value.as_str()))
        .cloned()
        .collect();
    if !put.is_empty() {
        let because = put
            .iter()
            .map(|t| Drift::new(format!("tags[{}]", t.key), present.get(t.key.as_str()).unwrap_or(&""), &t.value))
            .collect();
        draft.because(Step::PutTags { group: group.name.clone(), tags: put }, because);
    }
    let delete: Vec<_> = present
        .keys()
        .filter(|k| !wanted.contains_key(*k) && managed.tags.iter().any(|m| m == *k))
        .map(|k| (*k).to_owned())
        .collect();
    if !delete.is_empty() {
        let because = delete.iter().map(|k| Drift::new(format!("tags[{k}]"), present[k.as_str()], "")).collect();
        draft.because(Step::DeleteTags { group: group.name.clone(), keys: delete }, because);
    }
}

fn hooks(input: &Input, group: &ScalingGroup, managed: &ManagedAttributes, draft: &mut Draft) {
    let Some(present) = &input.state.hooks else { return };
    for hook in &input.resolved.wanted.hooks {
        let because = match present.iter().find(|h| h.name == hook.name) {
            None => vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "", "present")],
            Some(found) => super::drift::hook(found, hook),
        };
        let found = present.iter().find(|h| h.name == hook.name);
        // What PutLifecycleHook does not name stays as it was.
        if found.is_some_and(|found| super::drift::loses(found, hook)) {
            draft.step(Step::DeleteHook { group: group.name.clone(), hook: hook.name.clone() });
        }
        if !because.is_empty() {
            draft.because(Step::PutHook { group: group.name.clone(), hook: hook.clone() }, because);
        }
    }
    let wanted = |name: &str| input.resolved.wanted.hooks.iter().any(|h| h.name == name);
    for hook in present.iter().filter(|h| managed.hooks.contains(&h.name) && !wanted(&h.name)) {
        let because = vec![Drift::new(format!("lifecycleHooks[{}]", hook.name), "present", "")];
        draft.because(Step::DeleteHook { group: group.name.clone(), hook: hook.name.clone() }, because);
    }
}

/// The age of something that AWS made, as far as it is known.
pub fn age(created: Option<Timestamp>, now: Timestamp) -> Option<SignedDuration> {
    created.map(|c| now.duration_since(c))
}
