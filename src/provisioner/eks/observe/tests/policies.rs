//! The managed policies of the group's own role.

use super::*;
use crate::plan::{IamStep, Step};
use crate::provisioner::PlanContext;
use crate::provisioner::eks::{input, plan};
use crate::settings::Settings;

/// IAM refuses one more policy than its quota, so the new policy of a full role would never be attached. The policies of
/// users count as well. In a role with room, the nodes keep their permissions in between.
#[tokio::test]
async fn full_role_gets_a_new_policy_in_place_of_the_old_one() {
    const OLD: &str = "arn:aws:iam::1:policy/old";
    const NEW: &str = "arn:aws:iam::1:policy/new";
    for (of_users, expected) in [(5, [("attach", NEW), ("detach", OLD)]), (6, [("detach", OLD), ("attach", NEW)])] {
        let (stub, mut resolved) = (Arc::new(FakeAws::default()), resolved());
        let (name, tags) = (resolved.names.role.clone(), resolved.iam_tags());
        let arn = resolved.role_arn.clone();
        let role = Role { id: "AROA-1".into(), name: name.clone(), arn, tags: tags.clone(), ..Role::default() };
        let profile = InstanceProfile {
            id: "AIPA-1".into(),
            name: name.clone(),
            arn: resolved.template_data.profile_arn.clone(),
            created: None,
            role: Some(role.clone()),
            tags,
        };
        let mut recorded = resolved.managed_policies.clone();
        assert_eq!(recorded.len(), 3, "with the old one, and six of users, the role is full");
        recorded.push(OLD.into());
        let users = (0..of_users).map(|n| format!("arn:aws:iam::1:policy/of-a-user-{n}"));
        stub.update(|d| {
            d.policies = recorded.iter().cloned().chain(users).map(|policy| (policy, vec![name.clone()])).collect();
            d.roles.insert(name.clone(), role);
            d.profiles.insert(name.clone(), profile);
        });
        resolved.managed_policies.push(NEW.into());
        let status: InstanceGroupStatus =
            serde_json::from_value(json!({"managed": {"policies": recorded}})).expect("a status");
        let observed = observe_group(&stub, &resolved, "", &status).await.expect("a state");
        let (snapshot, settings) = (input::Snapshot { resolved, observed }, Settings::default());
        let plan = plan::plan(&snapshot.plan_input(&PlanContext {
            status: &status,
            lock: None,
            rollout_block: None,
            allowance: None,
            settings: &settings,
            ineffective_writes: &Default::default(),
            persistent_failure: &Default::default(),
            is_requested: false,
            now: jiff::Timestamp::UNIX_EPOCH,
        }));
        let changes = plan.steps.iter().filter_map(|planned| match &planned.step {
            Step::Iam(IamStep::AttachPolicy { policy, .. }) => Some(("attach", policy.as_str())),
            Step::Iam(IamStep::DetachPolicy { policy, .. }) => Some(("detach", policy.as_str())),
            _ => None,
        });
        assert_eq!(changes.collect::<Vec<_>>(), expected, "{of_users} of users");
    }
}
