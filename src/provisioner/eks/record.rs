//! What the status has to remember of a group before it is done.

use std::collections::BTreeSet;

use serde_json::json;

use super::input::Input;
use super::join::joining;
use super::launch_configuration;
use crate::api::ManagedAttributes;
use crate::auth::access_entries::Joined;
use crate::aws::Tag;
use crate::plan::{Draft, ObjectStep};

/// What we set is recorded before it is set; what is not there any more leaves the record.
pub fn record(input: &Input, joined: &Joined, draft: &mut Draft) {
    let old = input.status.managed.clone().unwrap_or_default();
    let r = input.resolved;
    let joining = joining(input);
    let (tags, processes, metrics) = match &input.state.group {
        Some(g) => (keys(&g.tags), g.suspended.clone(), g.metrics.clone()),
        None => Default::default(),
    };
    let hooks = input.state.hooks.iter().flatten().map(|h| h.name.clone()).collect();
    let present = |all: &[String]| all.iter().filter(|arn| **arn == r.role_arn).cloned().collect::<Vec<_>>();
    let managed = ManagedAttributes {
        tags: union(keys(&r.tags), &old.tags, tags),
        hooks: union(r.wanted.hooks.iter().map(|h| h.name.clone()).collect(), &old.hooks, hooks),
        processes: union(r.wanted.suspend.iter().cloned().collect(), &old.processes, processes),
        metrics: union(r.wanted.metrics.iter().cloned().collect(), &old.metrics, metrics),
        auth_entries: [
            joining.auth_entries(joined, &r.role_arn, &present(&old.auth_entries)),
            input.state.former.auth.clone(),
        ]
        .concat(),
        access_entries: [
            joining.access_entries(joined, &present(&old.access_entries)),
            input.state.former.access.clone(),
        ]
        .concat(),
        policies: union(
            if r.own_role { r.policies.clone() } else { Vec::new() },
            &old.policies,
            input.state.attached.clone(),
        ),
        configurations: launch_configuration::recorded(input),
        warm_pool: r.wanted.warm_pool.is_some()
            || (old.warm_pool && input.state.group.as_ref().is_some_and(|g| g.warm_pool.is_some())),
        adopted: old.adopted.clone(),
        pool: if r.pool.is_some() { old.pool.clone() } else { Vec::new() },
        ..ManagedAttributes::default()
    };
    if managed != old || input.status.managed.is_none() {
        let mut status = json!({ "managed": managed.over(&old) });
        if input.status.active_scaling_group_name.as_deref() != Some(&r.names.group) {
            status["activeScalingGroupName"] = json!(r.names.group);
            status["activeLaunchTemplateName"] = json!(r.names.template);
            status["nodesInstanceRoleArn"] = json!(r.role_arn);
        }
        draft.step(ObjectStep::Record { status });
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
