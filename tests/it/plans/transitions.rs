//! From any valid spec to any other one, a group converges in an AWS that refuses what its documentation excludes.
//!
//! The model applies the steps of each plan in order. It panics where AWS would return an error, because the same plan
//! would follow forever.

use std::collections::BTreeSet;

use instance_manager::aws::{NewVersion, TemplateData, WarmPool, WarmSizes};
use instance_manager::plan::{JoinStep, NodeStep, ObjectStep, Pin};
use instance_manager::rotation::DrainView;

use super::*;

/// Passes that suffice for every change, including a rotation of all nodes.
const MAX_PASSES: usize = 60;
/// Passes that AWS takes to delete a warm pool.
const POOL_DELETION: usize = 3;

/// A group in a model of AWS.
struct AwsModel {
    group: Scenario,
    /// Passes until the warm pool is deleted.
    pool_deletion: usize,
    launched: usize,
}

impl AwsModel {
    /// A converged group of this spec.
    fn new(spec: &str) -> Self {
        let mut model = AwsModel { group: new_group(resolved(spec, &[])), pool_deletion: 0, launched: 0 };
        let created = converged();
        model.group.state.instance_profile = created.state.instance_profile;
        model.group.state.join = created.state.join;
        model.group.state.scaling_group = created.state.scaling_group;
        model.group.state.template = created.state.template;
        model.group.state.versions = created.state.versions;
        model.group.state.nodes = created.state.nodes;
        model.group.state.attached_policies = created.state.attached_policies;
        model.group.state.lifecycle_hooks = Some(vec![]);
        model.group.state.warm_instances = Some(vec![]);
        model.group.status = created.status;
        model.group.state.scaling_group.as_mut().expect("a group").max = 6;
        model.converge("{}", spec);
        model
    }

    /// Changes the spec, and reconciles until the group converges.
    fn change(&mut self, from: &str, to: &str) {
        self.group.resolved = resolved(to, &[]);
        self.converge(from, to);
    }

    fn converge(&mut self, from: &str, to: &str) {
        let mut last = None;
        for _ in 0..MAX_PASSES {
            let plan = self.group.plan();
            for planned in &plan.steps {
                if let Err(refused) = self.apply(&planned.step) {
                    panic!("AWS refuses {}: {refused}\nfrom {from}\nto {to}", planned.step.name());
                }
            }
            self.merge_status(&json!(plan.status_update.fields));
            if plan.outcome == Outcome::Converged && plan.steps.is_empty() {
                return;
            }
            last = Some((plan.outcome, plan.steps.len()));
            self.advance();
        }
        panic!("not converged: {last:?}\nfrom {from}\nto {to}");
    }

    fn scaling_group(&self) -> &ScalingGroup {
        self.group.state.scaling_group.as_ref().expect("a group")
    }

    fn scaling_group_mut(&mut self) -> &mut ScalingGroup {
        self.group.state.scaling_group.as_mut().expect("a group")
    }

    fn merge_status(&mut self, patch: &Value) {
        let mut status = json!(self.group.status);
        merge(&mut status, patch);
        self.group.status = serde_json::from_value(status).expect("a status");
    }

    /// What AWS and the nodes do between two passes.
    fn advance(&mut self) {
        if self.scaling_group().warm_pool.as_ref().is_some_and(|pool| pool.deleting) {
            self.pool_deletion -= 1;
            if self.pool_deletion == 0 {
                self.scaling_group_mut().warm_pool = None;
            }
        }
        let gone: Vec<_> = (self.scaling_group().instances.iter())
            .filter(|i| i.state == InstanceState::Terminating)
            .map(|i| i.id.clone())
            .collect();
        for id in gone {
            self.scaling_group_mut().instances.retain(|i| i.id != id);
            self.group.state.nodes.remove(&id);
            self.group.state.drains.clear();
        }
        while (self.scaling_group().instances.len() as i32) < self.scaling_group().desired {
            self.launched += 1;
            let id = format!("i-new-{}", self.launched);
            self.group.state.nodes.insert(id.clone(), node(&id));
            let instance_type = self.pinned_data().map_or("m5.large".into(), |data| data.instance_type.clone());
            let group = self.scaling_group_mut();
            group.instances.push(Instance {
                instance_type,
                template: group.template.clone(),
                in_service_since: Some(timestamp(LONG_AGO)),
                ..samples::instance(&id)
            });
        }
    }

    fn apply(&mut self, step: &Step) -> Result<(), &'static str> {
        match step {
            Step::Object(ObjectStep::UpdateStatus { status }) => self.merge_status(status),
            Step::Iam(step) => return self.apply_iam(step),
            Step::Join(JoinStep::PutAwsAuthEntry(_)) => {
                (self.group.state.join.auth_entry, self.group.state.join.owns_auth_entry) =
                    (AuthEntryState::Present, true);
            }
            Step::Node(step) => self.apply_node(step),
            Step::Eks(step) => return self.apply_eks(step),
            other => panic!("not modelled: {other:?}"),
        }
        Ok(())
    }

    fn apply_iam(&mut self, step: &IamStep) -> Result<(), &'static str> {
        let attached = &mut self.group.state.attached_policies;
        match step {
            IamStep::AttachPolicy { policy, .. } => attached.push(policy.clone()),
            IamStep::DetachPolicy { policy, .. } => attached.retain(|p| p != policy),
            other => panic!("not modelled: {other:?}"),
        }
        // AWS IAM User Guide, "IAM and AWS STS quotas".
        if attached.len() > 10 { Err("a role has at most 10 managed policies") } else { Ok(()) }
    }

    fn apply_node(&mut self, step: &NodeStep) {
        match step {
            NodeStep::CordonNode { instance, template_version, .. } => {
                let node = self.group.state.nodes.get_mut(instance).expect("a node");
                node.cordoned = true;
                node.disruption = Some(disruption_record(template_version));
                self.group.state.drains.insert(node.name.clone(), DrainView::default());
            }
            NodeStep::UncordonNode { node, .. } => {
                let node = self.group.state.nodes.values_mut().find(|n| n.name == *node).expect("a node");
                (node.cordoned, node.disruption) = (false, None);
            }
            NodeStep::Terminate { instance, decrement_desired, .. } => {
                let group = self.scaling_group_mut();
                group.desired -= i32::from(*decrement_desired);
                let found = group.instances.iter_mut().find(|i| i.id == *instance).expect("an instance");
                found.state = InstanceState::Terminating;
            }
            other => panic!("not modelled: {other:?}"),
        }
    }

    fn apply_eks(&mut self, step: &EksStep) -> Result<(), &'static str> {
        match step {
            EksStep::PutTemplateVersion { version, .. } => self.add_version(version),
            EksStep::DeleteTemplateVersions { numbers, .. } => {
                self.group.state.versions.retain(|number, _| !numbers.contains(number));
            }
            EksStep::UpdateGroup { change, pin, .. } => return self.update_group(change, pin.as_ref()),
            EksStep::PutTags { tags, .. } => {
                let group = self.scaling_group_mut();
                group.tags.retain(|t| tags.iter().all(|new| new.key != t.key));
                group.tags.extend(tags.iter().cloned());
                // Amazon EC2 Auto Scaling User Guide, "Tag Auto Scaling groups and instances".
                if group.tags.len() > 50 {
                    return Err("a scaling group has at most 50 tags");
                }
            }
            EksStep::DeleteTags { keys, .. } => self.scaling_group_mut().tags.retain(|t| !keys.contains(&t.key)),
            EksStep::SuspendProcesses { processes, .. } => {
                self.scaling_group_mut().suspended_processes.extend(processes.iter().cloned());
            }
            EksStep::ResumeProcesses { processes, .. } => {
                self.scaling_group_mut().suspended_processes.retain(|p| !processes.contains(p));
            }
            EksStep::EnableMetrics { metrics, .. } => {
                self.scaling_group_mut().enabled_metrics.extend(metrics.iter().cloned());
            }
            EksStep::DisableMetrics { metrics, .. } => {
                self.scaling_group_mut().enabled_metrics.retain(|m| !metrics.contains(m));
            }
            EksStep::PutHook { hook, .. } => return self.put_hook(hook),
            EksStep::DeleteHook { hook, .. } => {
                let hooks = self.group.state.lifecycle_hooks.as_mut().expect("hooks");
                hooks.retain(|h| h.name != *hook);
                // Amazon EC2 Auto Scaling API Reference, DeleteLifecycleHook: it completes the actions of instances.
                if self.scaling_group().instances.iter().any(|i| i.waits_in_hook) {
                    return Err("an instance waits in the hook");
                }
            }
            EksStep::PutWarmPool { sizes, .. } => return self.put_warm_pool(sizes),
            EksStep::DeleteWarmPool { .. } => {
                self.scaling_group_mut().warm_pool.as_mut().ok_or("the group has no warm pool")?.deleting = true;
                self.pool_deletion = POOL_DELETION;
            }
            other => panic!("not modelled: {other:?}"),
        }
        Ok(())
    }

    fn add_version(&mut self, version: &NewVersion) {
        let number = self.group.state.template.as_ref().expect("a template").latest_version + 1;
        self.group.state.template.as_mut().expect("a template").latest_version = number;
        let fingerprint = Some(self.group.resolved.fingerprint.clone());
        let version = ObservedVersion::new(fingerprint, Some(version.data.clone()));
        self.group.state.versions.insert(number, version);
    }

    /// Amazon EC2 Auto Scaling API Reference, PutLifecycleHook: it keeps the fields that are left out. At most 50 hooks.
    fn put_hook(&mut self, hook: &LifecycleHook) -> Result<(), &'static str> {
        let hooks = self.group.state.lifecycle_hooks.as_mut().expect("hooks");
        let mut new = hook.clone();
        if let Some(old) = hooks.iter().find(|h| h.name == hook.name) {
            new.metadata = new.metadata.or(old.metadata.clone());
            new.notification_arn = new.notification_arn.or(old.notification_arn.clone());
            new.role_arn = new.role_arn.or(old.role_arn.clone());
        }
        hooks.retain(|h| h.name != hook.name);
        hooks.push(new);
        if hooks.len() > 50 { Err("a scaling group has at most 50 lifecycle hooks") } else { Ok(()) }
    }

    /// Amazon EC2 Auto Scaling User Guide, "Warm pools", Limitations; API Reference, PutWarmPool.
    fn put_warm_pool(&mut self, sizes: &WarmSizes) -> Result<(), &'static str> {
        if self.asks_for_spot() || self.excludes_pool() {
            return Err("no warm pool for a group with Spot Instances or weights");
        }
        if self.scaling_group().warm_pool.as_ref().is_some_and(|pool| pool.deleting) {
            return Err("the warm pool is pending delete");
        }
        let pool = WarmPool {
            sizes: sizes.clone(),
            state: "Stopped".into(),
            reuse_on_scale_in: None,
            deleting: false,
            size: None,
        };
        self.scaling_group_mut().warm_pool = Some(pool);
        Ok(())
    }

    /// Whether the mixed instances policy buys Spot Instances or has weights.
    fn excludes_pool(&self) -> bool {
        let mixed = self.scaling_group().mixed.as_ref();
        mixed.is_some_and(|mixed| mixed.distribution.on_demand_percent < 100 || mixed.weighted)
    }

    /// Whether the pinned version asks for Spot Instances.
    fn asks_for_spot(&self) -> bool {
        self.pinned_data().is_some_and(|data| data.spot_price.is_some())
    }

    /// The content of the pinned version.
    fn pinned_data(&self) -> Option<&TemplateData> {
        let number = self.scaling_group().template.as_ref().and_then(|pin| pin.version.parse().ok());
        let version = number.and_then(|number| self.group.state.versions.get(&number)).expect("a pinned version");
        version.data.as_ref()
    }

    fn update_group(
        &mut self,
        change: &instance_manager::aws::ScalingGroupChange,
        pin: Option<&Pin>,
    ) -> Result<(), &'static str> {
        let latest = self.group.state.template.as_ref().expect("a template").latest_version;
        let group = self.scaling_group_mut();
        (group.min, group.max) = (change.min.unwrap_or(group.min), change.max.unwrap_or(group.max));
        group.desired = group.desired.clamp(group.min, group.max);
        if group.min > group.max {
            return Err("the minimum is above the maximum");
        }
        if let Some(pin) = pin {
            let number = match pin {
                Pin::Version { number, .. } => *number,
                Pin::Made { .. } => latest,
            };
            group.template = Some(TemplatePin { id: "lt-1".into(), version: number.to_string() });
            group.mixed.clone_from(&change.mixed);
        }
        let (mixed, pool) = (group.mixed.is_some(), group.warm_pool.is_some());
        match (self.asks_for_spot(), mixed, pool) {
            (true, true, _) => Err("a template that requests Spot Instances beside a mixed instances policy"),
            (true, _, true) => Err("Spot Instances beside a warm pool"),
            (_, _, true) if self.excludes_pool() => Err("Spot Instances or weights beside a warm pool"),
            _ => Ok(()),
        }
    }
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => _ = into.as_object_mut().expect("an object").remove(key),
            value => merge(&mut into[key], value),
        }
    }
}

/// Values of one part of a spec; the first is none.
fn choices() -> Vec<Vec<String>> {
    let configuration = |text: &str| format!("eks: {{configuration: {{{text}}}}}");
    let many = |kind: &str| {
        let tags: Vec<_> = (0..40).map(|n| format!("{{key: {kind}-{n}, value: x}}")).collect();
        configuration(&format!("tags: [{}]", tags.join(", ")))
    };
    let policies = |kind: &str| {
        let names: Vec<_> = (0..6).map(|n| format!("{kind}{n}")).collect();
        configuration(&format!("managedPolicies: [{}]", names.join(", ")))
    };
    let hooks = |kind: &str, more: &str| {
        let all: Vec<_> = (0..50).map(|n| format!("{{name: {kind}-{n}, lifecycle: terminate{more}}}")).collect();
        configuration(&format!("lifecycleHooks: [{}]", all.join(", ")))
    };
    vec![
        vec![
            "{}".into(),
            SPOT.into(),
            SPOT.replace("0.08", "0.1"),
            MIXED.into(),
            POOL.into(),
            configuration("mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}]}"),
            "eks: {warmPool: {minSize: 1, maxSize: 4}}".into(),
            "eks: {warmPool: {minSize: 2}}".into(),
            "eks: {warmPool: {minSize: 1}, configuration: {mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}]}}}".into(),
        ],
        vec!["{}".into(), many("a"), many("b")],
        vec!["{}".into(), policies("a"), policies("b")],
        vec![
            "{}".into(),
            hooks("a", ""),
            hooks("b", ""),
            hooks("b", ", metadata: x"),
            hooks("b", ", heartbeatTimeout: 60"),
        ],
        vec!["{}".into(), NEW_IMAGE.into(), configuration("instanceType: c5.large")],
        vec!["{}".into(), "eks: {minSize: 1, maxSize: 3}".into(), "eks: {minSize: 3, maxSize: 6}".into()],
        vec!["{}".into(), configuration("suspendProcesses: [AZRebalance, ReplaceUnhealthy]")],
        vec!["{}".into(), configuration("metricsCollection: [all]")],
        vec!["{}".into(), "strategy: {rollingUpdate: {maxUnavailable: 2}}".into()],
    ]
}

/// The spec with one choice of each part.
fn spec(chosen: &[String]) -> String {
    let mut all = json!({});
    for text in chosen {
        deep_merge(&mut all, &serde_yaml::from_str(text).expect("YAML"));
    }
    serde_yaml::to_string(&all).expect("YAML")
}

#[test]
fn every_pair_of_features_converges() {
    let features: BTreeSet<_> = choices().concat().into_iter().collect();
    for from in &features {
        for to in &features {
            AwsModel::new(from).change(from, to);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_spec_converges_from_every_other(
        from in choices().into_iter().map(prop::sample::select).collect::<Vec<_>>(),
        to in choices().into_iter().map(prop::sample::select).collect::<Vec<_>>(),
    ) {
        let (from, to) = (spec(&from), spec(&to));
        AwsModel::new(&from).change(&from, &to);
    }
}
