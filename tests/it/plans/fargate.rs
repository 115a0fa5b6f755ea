//! The provisioner `eks-fargate`: profiles, their role, and the line before EKS.

use instance_manager::api::FargateStatus;
use instance_manager::api::spec_error::SpecError;
use instance_manager::api::{InstanceGroupStatus, decode_spec};
use instance_manager::auth::access_entries::{AccessEntryState, JoinMethod, ObservedEntries};
use instance_manager::auth::aws_auth::AuthEntryState;
use instance_manager::aws::fargate::{FargateProfile, NewFargateProfile, ProfileStatus, RouteTable};
use instance_manager::aws::{NetworkObject, Role, Tag};
use instance_manager::index::groups::QueuePosition;
use instance_manager::plan::FargateStep;
use instance_manager::plan::{IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, PlannedStep, Reason, Step};
use instance_manager::provisioner::fargate::input::PlanInput;
use instance_manager::provisioner::fargate::observed::{ObservedState, PreviousRole, recorded_role_id};
use instance_manager::provisioner::fargate::ownership::name_conflict;
use instance_manager::provisioner::fargate::ownership::{OwnershipEvidence, RemainingProfiles};
use instance_manager::provisioner::fargate::plan::plan;
use instance_manager::provisioner::fargate::resolve::{self, References, ResolvedGroup, public_subnet_errors, resolve};
use instance_manager::provisioner::fargate::{delete, desired};
use instance_manager::settings::Timing;
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::Value;

use super::{NOW, assert_golden, common, deep_merge, timestamp};

const OTHER: &str = "eks-fargate: {selectors: [{namespace: team}, {namespace: prod-*}]}";

/// The shortest spec that stands for a complete group; `extra` is laid over `spec`.
fn resolved(extra: &str) -> ResolvedGroup {
    let base = "{provisioner: eks-fargate, strategy: {type: managed}, eks-fargate: {clusterName: demo, subnets: [subnet-1], selectors: [{namespace: team}], tags: [{owner: web}]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    let spec = decode_spec(&spec).expect("a spec");
    let id = common::group_id(3, timestamp(super::LONG_AGO));
    resolve(desired::parse(&id, &spec).expect("a group"), &references(), false).expect("it resolves")
}

fn references() -> References {
    let subnet = |id: &str| NetworkObject {
        id: id.into(),
        name: Some(format!("name-of-{id}")),
        vpc: "vpc-1".into(),
        zone: None,
    };
    References {
        cluster: Some(common::cluster()),
        subnets: vec![subnet("subnet-1"), subnet("subnet-2")],
        in_other_vpcs: vec![],
    }
}

fn profile(r: &ResolvedGroup, name: &str, status: ProfileStatus) -> FargateProfile {
    FargateProfile {
        name: name.into(),
        arn: format!("arn:aws:eks:us-west-2:1:fargateprofile/demo/{name}/1"),
        role_arn: r.role_arn.clone(),
        subnets: r.subnets.clone(),
        selectors: r.desired.selectors.clone(),
        status,
        issues: vec![],
        tags: r.tags.clone(),
    }
}

/// A group, and how it is planned.
#[derive(Clone, Debug)]
struct Scenario {
    resolved: ResolvedGroup,
    observed: ObservedState,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
    after: Option<&'static str>,
    now: jiff::Timestamp,
}

impl Scenario {
    fn plan(&self) -> Plan {
        let Scenario { resolved, observed, status, lock, now, .. } = self;
        plan(&PlanInput {
            resolved,
            observed,
            status,
            lock: *lock,
            config_retention: 2,
            timing: &Timing::default(),
            now: *now,
        })
    }

    fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    /// The same group with another spec.
    fn with_spec(self, extra: &str) -> Self {
        self.with(|w| w.resolved = resolved(extra))
    }

    fn step_names(&self) -> Vec<&'static str> {
        self.plan().steps.iter().map(|p| p.step.name()).collect()
    }

    /// What the status is once a plan has been applied.
    fn apply_records(&mut self, plan: &Plan) {
        let mut status = serde_json::json!(self.status);
        for (key, value) in &plan.status_update.fields {
            status[key] = value.clone();
        }
        self.status = serde_json::from_value(status).expect("a status");
    }

    /// Does what a plan says, as EKS would do it at once.
    fn apply(&mut self, plan: &Plan) {
        self.apply_records(plan);
        for PlannedStep { step, .. } in &plan.steps {
            match step {
                Step::Object(ObjectStep::AddFinalizer) => self.resolved.desired.id.has_finalizer = true,
                Step::Iam(IamStep::CreateRole(new)) => {
                    self.observed.role = Some(Role {
                        id: "AROA-1".into(),
                        name: new.name.clone(),
                        arn: self.resolved.role_arn.clone(),
                        tags: new.tags.clone(),
                    });
                }
                Step::Iam(IamStep::AttachPolicy { .. }) => self.observed.is_role_ready = true,
                Step::Join(JoinStep::PutAwsAuthEntry(_)) => {
                    (self.observed.join_state.auth_entry, self.observed.join_state.owns_auth_entry) =
                        (AuthEntryState::Present, true)
                }
                Step::Fargate(FargateStep::CreateFargateProfile(new)) => self.create(new),
                Step::Fargate(FargateStep::DeleteFargateProfile { profile, .. }) => {
                    self.set(profile, ProfileStatus::Deleting)
                }
                Step::Fargate(FargateStep::TagFargateProfile { profile, tags, .. }) => {
                    let found = self.observed.profiles.iter_mut().find(|p| p.name == *profile).expect("a profile");
                    found.tags.retain(|t| tags.iter().all(|new| new.key != t.key));
                    found.tags.extend(tags.iter().cloned());
                }
                Step::Fargate(FargateStep::UntagFargateProfile { profile, keys, .. }) => {
                    let found = self.observed.profiles.iter_mut().find(|p| p.name == *profile).expect("a profile");
                    found.tags.retain(|t| !keys.contains(&t.key));
                }
                Step::Object(ObjectStep::UpdateStatus { .. }) => {}
                other => panic!("{} is not expected", other.name()),
            }
        }
    }

    fn create(&mut self, new: &NewFargateProfile) {
        let changing = [ProfileStatus::Creating, ProfileStatus::Deleting];
        assert!(self.observed.profiles.iter().all(|p| !changing.contains(&p.status)), "EKS makes one at a time");
        assert!(self.observed.profiles.iter().all(|p| p.name != new.name), "{} is there", new.name);
        assert!(new.name.len() <= 100);
        self.observed.profiles.push(FargateProfile {
            name: new.name.clone(),
            arn: format!("arn:{}", new.name),
            role_arn: new.role_arn.clone(),
            subnets: new.subnets.clone(),
            selectors: new.selectors.clone(),
            status: ProfileStatus::Creating,
            issues: vec![],
            tags: new.tags.clone(),
        });
    }

    fn set(&mut self, name: &str, status: ProfileStatus) {
        self.observed.profiles.iter_mut().find(|p| p.name == name).expect("a profile").status = status;
    }

    /// EKS goes on: what is being made is there, what is being deleted is gone.
    fn finish_eks_operations(&mut self) {
        self.now += SignedDuration::from_secs(30);
        self.observed.profiles.retain(|p| p.status != ProfileStatus::Deleting);
        for profile in self.observed.profiles.iter_mut().filter(|p| p.status == ProfileStatus::Creating) {
            profile.status = ProfileStatus::Active;
        }
    }

    fn serves(&self, namespace: &str) -> bool {
        let active = self.observed.profiles.iter().filter(|p| p.status == ProfileStatus::Active);
        active.flat_map(|p| &p.selectors).any(|s| s.namespace == namespace)
    }
}

/// Nothing has been made.
fn new_group(extra: &str) -> Scenario {
    let observed = ObservedState {
        profiles: vec![],
        is_role_ready: false,
        role: None,
        join_state: ObservedEntries {
            auth_entry: AuthEntryState::Absent,
            owns_auth_entry: false,
            allows_windows: false,
            access_entry: AccessEntryState::NotQueried,
            is_shared: false,
            peers_have_access_entry: true,
            role_id: None,
        },
        unused_auth_entries: vec![],
        kept_auth_entries: vec![],
        kept_access_entries: vec![],
        unused_access_entries: vec![],
        previous_role: None,
        is_derived_role_shared: false,
        tag_retry_pending: false,
        queue_position: QueuePosition::default(),
    };
    let status = InstanceGroupStatus::default();
    Scenario { resolved: resolved(extra), observed, status, lock: None, after: None, now: timestamp(NOW) }
}

/// A converged group.
fn converged() -> Scenario {
    let mut world = new_group("{}");
    for _ in 0..8 {
        let plan = world.plan();
        world.apply(&plan);
        world.finish_eks_operations();
    }
    assert_eq!(world.plan().outcome, Outcome::Converged);
    world
}

/// What the original made: no tags of ours, no status of ours.
fn created_by_keiko() -> Scenario {
    converged().with(|w| {
        w.status = InstanceGroupStatus::default();
        let made = &mut w.observed.profiles[0];
        made.tags = vec![Tag { key: "owner".into(), value: "web".into() }];
        w.observed.role.as_mut().expect("a role").tags.clear();
    })
}

fn blocked(plan: &Plan) -> (Reason, &str) {
    match &plan.outcome {
        Outcome::Blocked { reason, message, .. } => (*reason, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn plans_match_golden_files() {
    let ready = |w: &mut Scenario| {
        w.observed.is_role_ready = true;
        w.observed.join_state.auth_entry = AuthEntryState::Present;
    };
    let second = |w: &mut Scenario| {
        let name = w.resolved.names.replacement_name(&w.resolved.hash);
        let new = profile(&w.resolved, &name, ProfileStatus::Active);
        w.observed.profiles.push(new);
    };
    for (name, world) in [
        ("fargate/create-role", new_group("{}").with(|w| w.resolved.desired.id.has_finalizer = false)),
        ("fargate/create", new_group("{}").with(ready)),
        ("fargate/existing-role", new_group("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/path/given'}")),
        ("fargate/queued", new_group("{}").with(ready).with(|w| w.observed.queue_position.ahead = 2)),
        ("fargate/converged", converged()),
        ("fargate/tags-in-place", converged().with_spec("eks-fargate: {tags: [{team: a}]}")),
        ("fargate/selectors-changed", converged().with_spec(OTHER)),
        ("fargate/delete-outdated-profile", converged().with_spec(OTHER).with(second)),
        ("fargate/adopted", created_by_keiko()),
        ("fargate/adopted-with-drift", created_by_keiko().with_spec(OTHER)),
    ] {
        assert_golden(name, &world.plan());
    }
}

#[test]
fn selector_change_keeps_pods_covered() {
    let mut world = converged().with_spec(OTHER);
    let mut told = Vec::new();
    for _ in 0..8 {
        let plan = world.plan();
        told.extend(plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "UpdateStatus"));
        world.apply(&plan);
        assert!(world.serves("team"), "{told:?}");
        world.finish_eks_operations();
        assert!(world.serves("team"), "{told:?}");
    }
    assert_eq!(told, ["CreateFargateProfile", "DeleteFargateProfile"]);
    assert_eq!(world.plan().outcome, Outcome::Converged);
    assert_eq!((world.observed.profiles.len(), world.serves("prod-*")), (1, true));
    assert_eq!(world.status.fargate.clone().unwrap_or_default().waiting_since, None);
    assert_eq!(world.status.active_scaling_group_name.as_ref(), Some(&world.observed.profiles[0].name));
}

#[test]
fn lock_blocks_old_profile_deletion_only() {
    let mut world = converged().with_spec(OTHER).with(|w| w.lock = Some("the InstanceGroup"));
    assert_eq!(world.step_names(), ["UpdateStatus", "CreateFargateProfile"]);
    let plan = world.plan();
    world.apply(&plan);
    world.finish_eks_operations();
    let plan = world.plan();
    assert!(matches!(plan.outcome, Outcome::Locked { .. }) && plan.steps.is_empty(), "{plan:?}");
    world.apply_records(&plan);
    assert_eq!(world.status.fargate.clone().unwrap_or_default().waiting_since, None, "it lets others pass");
    world.lock = None;
    assert_eq!(world.step_names(), ["UpdateStatus", "DeleteFargateProfile"]);
    assert!(world.plan().steps.iter().any(|p| p.step.is_disruptive()));
}

#[test]
fn queued_group_plans_no_eks_calls() {
    let mut world = converged().with_spec(OTHER).with(|w| w.observed.queue_position.ahead = 1);
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{plan:?}");
    let Outcome::Progressing { message, .. } = &plan.outcome else { panic!("{plan:?}") };
    assert!(message.contains("behind 1 group;"), "{message}");
    world.apply_records(&plan);
    let since = world.status.fargate.clone().unwrap_or_default().waiting_since;
    assert_eq!(since, Some(world.now.to_string()));
    world.now += SignedDuration::from_mins(9);
    world.observed.queue_position.ahead = 0;
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(world.status.fargate.clone().unwrap_or_default().waiting_since, since, "while EKS is at work");
}

#[test]
fn failed_profile_is_recreated_with_new_token() {
    let token = |plan: &Plan| {
        plan.steps.iter().find_map(|p| match &p.step {
            Step::Fargate(FargateStep::CreateFargateProfile(new)) => Some(new.token.clone()),
            _ => None,
        })
    };
    let mut world = new_group("{}").with(|w| w.observed.is_role_ready = true);
    let plan = world.plan();
    let first = token(&plan).expect("it is made");
    world.apply(&plan);
    world.observed.profiles[0].status = ProfileStatus::CreateFailed;
    world.observed.profiles[0].issues = vec!["AccessDenied: no".into()];
    let plan = world.plan();
    let (reason, message) = blocked(&plan);
    assert_eq!(reason, Reason::ProfileFailed);
    assert!(message.contains("AccessDenied: no") && plan.steps.is_empty(), "{message}");
    let wake = plan.recheck_at.expect("it is tried again");
    world.apply_records(&plan);
    assert_eq!(world.plan().recheck_at, Some(wake), "looking at it does not push the moment away");
    world.now = wake;
    let plan = world.plan();
    assert!(
        plan.steps
            .iter()
            .any(|p| matches!(p.step, Step::Fargate(FargateStep::DeleteFargateProfile { may_run_pods: false, .. })))
    );
    world.apply(&plan);
    world.finish_eks_operations();
    let plan = world.plan();
    assert_ne!(token(&plan), Some(first));
    world.apply(&plan);
    world.finish_eks_operations();
    let plan = world.plan();
    world.apply_records(&plan);
    assert_eq!(plan.outcome, Outcome::Converged);
    assert_eq!(world.status.fargate.clone().unwrap_or_default().failures, None);
}

#[test]
fn outdated_failed_profile_is_deleted_at_once() {
    let mut world = converged();
    let unwanted = profile(&resolved(OTHER), &world.resolved.names.replacement_name("x"), ProfileStatus::CreateFailed);
    world.observed.profiles.push(unwanted);
    assert_eq!(world.step_names(), ["UpdateStatus", "DeleteFargateProfile"]);
    assert!(!world.plan().steps.iter().any(|p| p.step.is_disruptive()), "no pod runs by it");
}

#[test]
fn failed_deletion_is_reported_and_retried() {
    let world = converged().with(|w| {
        let old = profile(&resolved(OTHER), &w.resolved.names.replacement_name("x"), ProfileStatus::DeleteFailed);
        w.observed.profiles.push(old);
    });
    let plan = world.plan();
    assert_eq!(blocked(&plan).0, Reason::ProfileFailed);
    assert!(plan.recheck_at.is_some() && plan.steps.is_empty());
}

#[test]
fn unproven_profile_is_left_alone() {
    let stranger = created_by_keiko().with(|w| w.observed.profiles[0].role_arn = "arn:aws:iam::1:role/theirs".into());
    let plan = stranger.plan();
    assert_eq!(blocked(&plan).0, Reason::OwnershipConflict);
    assert!(plan.steps.is_empty());
    let role = new_group("{}").with(|w| {
        let arn = w.resolved.role_arn.clone();
        w.observed.role = Some(Role { id: "AROA-2".into(), name: w.resolved.names.role.clone(), arn, tags: vec![] });
    });
    assert_eq!(blocked(&role.plan()).0, Reason::OwnershipConflict);
    assert_eq!(role.step_names(), ["UpdateStatus", "PutAwsAuthEntry"]);
}

#[test]
fn adopted_profile_stays_until_spec_changes() {
    let mut world = created_by_keiko().with_spec(OTHER);
    for _ in 0..4 {
        let plan = world.plan();
        // The role's own tags are beside the point here.
        world.apply_records(&plan);
        for PlannedStep { step, .. } in &plan.steps {
            assert!(!matches!(
                step,
                Step::Fargate(FargateStep::CreateFargateProfile(_))
                    | Step::Fargate(FargateStep::DeleteFargateProfile { .. })
            ));
            if let Step::Fargate(FargateStep::TagFargateProfile { tags, .. }) = step {
                world.observed.profiles[0].tags.extend(tags.iter().cloned());
                world.observed.role.as_mut().expect("a role").tags.clone_from(tags);
            }
        }
    }
    assert_eq!(world.plan().outcome, Outcome::Converged);
    let changed = world.with_spec("eks-fargate: {selectors: [{namespace: elsewhere}]}");
    assert_eq!(changed.step_names(), ["UpdateStatus", "CreateFargateProfile"]);
}

#[test]
fn denied_tagging_is_retried_and_deletes_nothing() {
    let mut world = created_by_keiko();
    let plan = world.plan();
    world.apply_records(&plan);
    assert_eq!(world.step_names(), ["TagFargateProfile", "TagRole"]);
    world.observed.tag_retry_pending = true;
    assert_eq!((world.step_names(), world.plan().outcome), (vec![], Outcome::Converged));
    let mut world = world.with_spec(OTHER);
    let plan = world.plan();
    world.apply(&plan);
    world.finish_eks_operations();
    assert_eq!(blocked(&world.plan()).0, Reason::OwnershipConflict, "the older one is not provably ours");
}

/// Else every pass would ask AWS for what it refuses, many times a second.
#[test]
fn denied_tags_do_not_block_other_changes() {
    let mut world = converged().with_spec("eks-fargate: {tags: [{owner: other}]}");
    assert!(world.step_names().contains(&"TagFargateProfile"));
    world.observed.tag_retry_pending = true;
    let plan = world.plan();
    assert_eq!(plan.steps, [], "nothing is written without a difference that can be made");
    let (reason, message) = blocked(&plan);
    assert!(reason == Reason::MissingPermission && message.contains("lacks eks:TagResource;"), "{message}");
    let older = profile(&resolved(OTHER), &world.resolved.names.replacement_name("x"), ProfileStatus::Active);
    world.observed.profiles.push(older);
    assert_eq!(world.step_names(), ["UpdateStatus", "DeleteFargateProfile"]);
    let mut world = converged().with_spec("eks-fargate: {tags: []}");
    assert!(world.step_names().contains(&"UntagFargateProfile"));
    world.observed.tag_retry_pending = true;
    let plan = world.plan();
    let (_, message) = blocked(&plan);
    assert!(plan.steps.is_empty() && message.contains("lacks eks:UntagResource;"), "{message}");
}

/// Else the deletion of a group that was taken over would ask for ever, and never say what it waits for.
#[test]
fn deletion_reports_denied_tagging() {
    let mut world = created_by_keiko();
    world.observed.profiles[0].tags.clear();
    let left = world.observed.profiles.clone();
    let tries = deletion_plan(&world, &left, None);
    assert!(tries.steps.iter().any(|p| p.step.name() == "TagFargateProfile"), "{tries:?}");
    world.observed.tag_retry_pending = true;
    let plan = deletion_plan(&world, &left, None);
    assert_eq!(plan.steps, []);
    assert!(blocked(&plan).1.contains("eks:TagResource"));
    assert!(matches!(plan.outcome, Outcome::Blocked { reason: Reason::MissingPermission, is_deleting: true, .. }));
}

/// EKS lets in the very role that an entry was made for: pods of a later one of the same name could not start. Wherever
/// the controller is killed in between, it looks at both again.
#[test]
fn recreated_role_gets_new_access_entry() {
    let entry = |of: &str| AccessEntryState::Present {
        kind: "FARGATE_LINUX".into(),
        is_owned: true,
        created_at: None,
        role_id: Some(of.into()),
    };
    let mut world = converged().with(|w| {
        w.resolved.join_method = JoinMethod::AccessEntries { remove_other: false };
        (w.observed.join_state.access_entry, w.observed.join_state.role_id) = (entry("AROA-1"), Some("AROA-1".into()));
    });
    let plan = world.plan();
    world.apply_records(&plan);
    let arn = world.resolved.role_arn.clone();
    assert_eq!(recorded_role_id(&world.status, &arn).map(String::as_str), Some("AROA-1"), "it costs no call in quiet");
    assert_eq!(recorded_role_id(&world.status, "arn:aws:iam::1:role/given"), None);
    (world.observed.is_role_ready, world.observed.role, world.observed.join_state.role_id) = (false, None, None);
    let plan = world.plan();
    let forgets = plan.steps.iter().position(|p| match &p.step {
        Step::Object(ObjectStep::UpdateStatus { status }) => status["join"].get("roleId").is_some_and(Value::is_null),
        _ => false,
    });
    let makes = plan.steps.iter().position(|p| matches!(p.step, Step::Iam(IamStep::CreateRole(_))));
    assert!(forgets.is_some() && forgets < makes, "{plan:?}");
    world.apply_records(&plan);
    (world.observed.is_role_ready, world.observed.join_state.role_id) = (true, Some("AROA-2".into()));
    let plan = world.plan();
    let names: Vec<_> = plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "UpdateStatus").collect();
    assert_eq!(names, ["RemoveAccessEntry", "PutAccessEntry"]);
    world.apply_records(&plan);
    assert_eq!(recorded_role_id(&world.status, &arn), None, "until its own entry was seen");
    world.observed.join_state.access_entry = entry("AROA-2");
    let plan = world.plan();
    world.apply_records(&plan);
    assert_eq!(recorded_role_id(&world.status, &arn).map(String::as_str), Some("AROA-2"));
}

#[test]
fn existing_role_replaces_own_role() {
    let mut world = converged().with_spec("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = world.plan();
        world.apply(&plan);
        world.finish_eks_operations();
    }
    let r = resolved("{}");
    world.observed.previous_role = Some(PreviousRole {
        role: Role { id: "AROA-1".into(), name: r.names.role.clone(), arn: r.role_arn.clone(), tags: r.ownership_tags },
        attached_policies: vec![r.managed_policy],
        inline_policies: vec![],
    });
    world.observed.unused_auth_entries = vec![r.aws_auth_entry];
    assert_eq!(world.step_names(), ["RemoveAwsAuthEntry", "DetachPolicy", "DeleteRole"]);
}

/// When all groups leave a role at once, the profiles of those that wait for their turn serve pods by it still: a record
/// that was dropped now would leave the entry for good.
#[test]
fn shared_previous_entries_stay_recorded() {
    let old = "arn:aws:iam::1:role/old".to_owned();
    let recorded = |world: &Scenario| {
        let managed = world.status.managed.clone().expect("a record");
        (managed.auth_entries.contains(&old), managed.access_entries.contains(&old))
    };
    let mut world = converged().with_spec("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = world.plan();
        world.apply(&plan);
        world.finish_eks_operations();
    }
    let managed = world.status.managed.as_mut().expect("a record");
    managed.auth_entries.push(old.clone());
    managed.access_entries.push(old.clone());
    (world.observed.kept_auth_entries, world.observed.kept_access_entries) = (vec![old.clone()], vec![old.clone()]);
    assert_eq!(world.step_names(), Vec::<&str>::new());
    (world.observed.kept_auth_entries, world.observed.kept_access_entries) = (vec![old.clone()], vec![]);
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(recorded(&world), (true, false));
    world.observed.kept_auth_entries = vec![];
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(recorded(&world), (false, false), "nobody needs it any more");
}

/// Its pods could start no longer.
#[test]
fn shared_role_is_kept() {
    let derived = resolved("{}").role_arn;
    let former = |world: &Scenario| {
        let r = resolved("{}");
        let role = Role { id: "AROA-1".into(), name: r.names.role, arn: r.role_arn, tags: r.ownership_tags };
        world.clone().with(|w| {
            w.observed.previous_role =
                Some(PreviousRole { role, attached_policies: vec![r.managed_policy], inline_policies: vec![] });
        })
    };
    let named = converged().with_spec(&format!("eks-fargate: {{podExecutionRoleArn: '{derived}'}}"));
    assert_eq!(former(&named).step_names(), Vec::<&str>::new(), "the spec names the group's own role");
    assert_eq!(named.plan().outcome, Outcome::Converged);
    let mut other = converged().with_spec("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = other.plan();
        other.apply(&plan);
        other.finish_eks_operations();
    }
    assert_eq!(former(&other).step_names(), ["DetachPolicy", "DeleteRole"]);
    other.status.managed.as_mut().expect("a record").policies = vec![other.resolved.managed_policy.clone()];
    other.observed.is_derived_role_shared = true;
    assert_eq!(former(&other).step_names(), Vec::<&str>::new(), "another group uses it");
    assert_eq!(other.step_names(), Vec::<&str>::new(), "it is remembered for when nobody does");
}

#[test]
fn auth_conflict_keeps_old_profile() {
    let conflict = AuthEntryState::Conflict { detail: "another entry".into() };
    let world = converged().with_spec(OTHER).with(|w| {
        let name = w.resolved.names.replacement_name(&w.resolved.hash);
        let new = profile(&w.resolved, &name, ProfileStatus::Active);
        w.observed.profiles.push(new);
        w.observed.join_state.auth_entry = conflict;
    });
    assert_eq!(blocked(&world.plan()).0, Reason::AuthConflict);
    assert_eq!(world.step_names(), Vec::<&str>::new());
}

#[test]
fn public_subnets_are_rejected_before_creation() {
    let r = resolved("eks-fargate: {subnets: [subnet-1, name-of-subnet-2]}");
    let table = |is_main, subnets: &[&str], has_internet_gateway| RouteTable {
        is_main,
        subnets: subnets.iter().map(|s| (*s).to_owned()).collect(),
        has_internet_gateway,
    };
    let paths =
        |tables: &[RouteTable]| -> Vec<_> { public_subnet_errors(&r, tables).into_iter().map(|p| p.value).collect() };
    assert_eq!(paths(&[]), Vec::<String>::new(), "nobody may look");
    assert_eq!(paths(&[table(true, &[], true), table(false, &["subnet-1"], false)]), ["subnet-2"]);
    assert_eq!(paths(&[table(true, &[], false), table(false, &["subnet-1"], true)]), ["subnet-1"]);
}

#[test]
fn role_trusts_only_its_cluster() {
    let trust: Value = serde_json::from_str(&resolved("{}").trust_policy).expect("JSON");
    let source = &trust["Statement"][0]["Condition"]["ArnLike"]["aws:SourceArn"];
    assert_eq!(source, "arn:aws:eks:us-west-2:1:fargateprofile/demo/*");
    let mut china = references();
    let cluster = china.cluster.as_mut().expect("a cluster");
    cluster.arn = "arn:aws-cn:eks:cn-north-1:1:cluster/demo".into();
    cluster.authentication_mode = "API".into();
    let r = resolve::resolve(resolved("{}").desired, &china, false).expect("it resolves");
    assert_eq!(r.managed_policy, "arn:aws-cn:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy");
    assert_eq!(r.join_method, JoinMethod::AccessEntries { remove_other: false });
    assert_eq!(r.access_entry.kind.as_str(), "FARGATE_LINUX");
}

fn deletion_plan(world: &Scenario, left: &[FargateProfile], role: Option<&PreviousRole>) -> Plan {
    deletion_plan_with_role(world, left, role, None)
}

fn deletion_plan_with_role(
    world: &Scenario,
    left: &[FargateProfile],
    role: Option<&PreviousRole>,
    role_in_use: Option<&str>,
) -> Plan {
    let evidence =
        OwnershipEvidence::from_status(world.resolved.desired.existing_role.as_deref(), false, &world.status);
    deletion_plan_from(world, left, &evidence, &[], (role, role_in_use))
}

/// The deletion of a group whose spec the admin's policy refuses.
fn deletion_plan_with_rejected_spec(world: &Scenario, left: &[FargateProfile]) -> Plan {
    let rule = "is not among the namespaces that policy.fargateNamespaces allows";
    let problem = SpecError::invalid("spec.eks-fargate.selectors[0].namespace", "team", rule, "name another");
    let evidence = OwnershipEvidence::from_status(world.resolved.desired.existing_role.as_deref(), true, &world.status);
    deletion_plan_from(world, left, &evidence, &[problem.with_reason(Reason::PolicyViolation)], (None, None))
}

fn deletion_plan_from(
    world: &Scenario,
    left: &[FargateProfile],
    evidence: &OwnershipEvidence,
    forbidden: &[SpecError],
    (previous_role, role_in_use): (Option<&PreviousRole>, Option<&str>),
) -> Plan {
    let r = &world.resolved;
    let auth = [r.aws_auth_entry.clone()];
    delete::plan(&delete::DeleteInput {
        id: &r.desired.id,
        cluster: "demo",
        ownership_tags: &r.ownership_tags,
        forbidden,
        profiles: &RemainingProfiles::classify(left.to_vec(), &r.names, &r.ownership_tags, evidence),
        untagged_role: None,
        tag_retry_pending: world.observed.tag_retry_pending,
        previous_role,
        role_in_use,
        aws_auth_entries: &auth,
        access_entries: &[],
        wait_for: world.after,
        queue_position: QueuePosition::default(),
        status: &world.status,
        timing: &Timing::default(),
        now: world.now,
    })
}

/// A group as the original left it, which is to go after its spec was refused.
fn created_by_keiko_with_rejected_spec(extra: &str) -> Scenario {
    created_by_keiko().with_spec(extra).with(|w| {
        w.resolved.desired.id.has_finalizer = true;
        w.status = serde_json::from_value(serde_json::json!({ "currentState": "Error" })).expect("a status");
        w.observed.profiles[0].role_arn = w.resolved.role_arn.clone();
    })
}

fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|p| p.step.name()).collect()
}

/// The refusal overwrites the only word of the original's that it made something: the pods' profile would serve for ever.
#[test]
fn keiko_profile_is_deleted_with_rejected_spec() {
    let mut world = created_by_keiko_with_rejected_spec("{}");
    let mut left = world.observed.profiles.clone();
    let plan = deletion_plan_with_rejected_spec(&world, &left);
    assert_eq!(step_names(&plan), ["UpdateStatus", "TagFargateProfile"], "{plan:?}");
    let Step::Object(ObjectStep::UpdateStatus { status }) = &plan.steps[0].step else { panic!("{plan:?}") };
    world.status = serde_json::from_value(status.clone()).expect("a status");
    left[0].tags = world.resolved.ownership_tags.clone();
    let plan = deletion_plan_with_rejected_spec(&world, &left);
    assert_eq!(step_names(&plan), ["DeleteFargateProfile"], "killed after the tags, it goes on: {plan:?}");
    assert_eq!(step_names(&deletion_plan_with_rejected_spec(&world, &[])), ["RemoveAwsAuthEntry", "RemoveFinalizer"]);
}

#[test]
fn rejected_spec_role_is_no_evidence() {
    let named = "{eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/pods'}}";
    for state in ["Error", "Ready"] {
        let world = created_by_keiko_with_rejected_spec(named).with(|w| w.status.current_state = Some(state.into()));
        let left = world.observed.profiles.clone();
        let plan = deletion_plan_with_rejected_spec(&world, &left);
        let (reason, message) = blocked(&plan);
        assert!(reason == Reason::PolicyViolation && plan.steps.is_empty(), "{plan:?}");
        assert!(message.contains(&left[0].name) && message.contains("policy.fargateNamespaces"), "{message}");
        assert_eq!(
            step_names(&deletion_plan(&world, &left, None)),
            ["UpdateStatus", "TagFargateProfile"],
            "allowed, it is believed"
        );
    }
    let world = created_by_keiko_with_rejected_spec(named);
    let strangers =
        FargateProfile { role_arn: "arn:aws:iam::1:role/admin".into(), ..world.observed.profiles[0].clone() };
    let tagged = FargateProfile { tags: world.resolved.ownership_tags.clone(), ..world.observed.profiles[0].clone() };
    for left in [vec![], vec![strangers], vec![tagged]] {
        let plan = deletion_plan_with_rejected_spec(&world, &left);
        assert_eq!(step_names(&plan), ["RemoveFinalizer"], "{plan:?}");
        assert!(plan.events.iter().any(|told| told.message.contains("nothing was created for this group")));
    }
}

/// Its tags were refused, then its spec: what we have on record is true all the same.
#[test]
fn adopted_profile_is_tagged_before_deletion() {
    let role = "arn:aws:iam::1:role/pods";
    let named = format!("{{eks-fargate: {{podExecutionRoleArn: '{role}'}}}}");
    let recorded = serde_json::json!({ "nodesInstanceRoleArn": role, "fargate": { "cluster": "demo" } });
    let adopted = serde_json::json!({ "nodesInstanceRoleArn": "arn:aws:iam::1:role/next", "fargate": { "cluster": "demo", "adoptedHash": "1" } });
    for status in [recorded, adopted] {
        let mut world = created_by_keiko_with_rejected_spec(&named);
        world.status = serde_json::from_value(status).expect("a status");
        let left = world.observed.profiles.clone();
        assert_eq!(step_names(&deletion_plan_with_rejected_spec(&world, &left)), ["TagFargateProfile"]);
        world.observed.tag_retry_pending = true;
        let plan = deletion_plan_with_rejected_spec(&world, &left);
        assert!(blocked(&plan).0 == Reason::MissingPermission && plan.steps.is_empty(), "{plan:?}");
    }
}

#[test]
fn deletion_removes_profiles_then_the_rest() {
    let world = converged();
    let first = world.observed.profiles[0].clone();
    let second = profile(&world.resolved, &world.resolved.names.replacement_name("x"), ProfileStatus::Active);
    assert_golden("fargate/delete", &deletion_plan(&world, &[first.clone(), second.clone()], None));
    let going = FargateProfile { status: ProfileStatus::Deleting, ..first };
    let plan = deletion_plan(&world, &[going, second], None);
    assert!(plan.steps.is_empty() && matches!(plan.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }));
    let role = PreviousRole {
        role: world.observed.role.clone().expect("a role"),
        attached_policies: vec![world.resolved.managed_policy.clone()],
        inline_policies: vec![],
    };
    assert_golden("fargate/delete-supporting-resources", &deletion_plan(&world, &[], Some(&role)));
    let kept = deletion_plan_with_role(&world, &[], None, Some("fargate-role"));
    let names: Vec<_> = kept.steps.iter().map(|p| p.step.name()).collect();
    assert_eq!(names, ["RemoveAwsAuthEntry", "RemoveFinalizer"]);
    assert!(
        kept.events.iter().any(|told| told.is_warning() && told.message.contains("keeping the role fargate-role")),
        "{kept:?}"
    );
    let plan = deletion_plan(&world.clone().with(|w| w.after = Some("team/db")), &[], Some(&role));
    assert!(plan.steps.is_empty() && matches!(plan.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }));
    let theirs = PreviousRole { inline_policies: vec!["theirs".into()], ..role };
    let plan = deletion_plan(&world, &[], Some(&theirs));
    assert_eq!(blocked(&plan).0, Reason::OwnershipConflict);
    assert!(
        !plan.steps.iter().any(|p| matches!(
            p.step,
            Step::Object(ObjectStep::RemoveFinalizer) | Step::Iam(IamStep::DeleteRole { .. })
        ))
    );
}

fn any_spec() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("{}"),
        Just(OTHER),
        Just("eks-fargate: {subnets: [subnet-2]}"),
        Just("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}"),
        Just("eks-fargate: {tags: [{owner: other}]}"),
    ]
}

proptest! {
    #[test]
    fn any_spec_sequence_converges_without_gap(
        specs in prop::collection::vec((any_spec(), 1..6usize, any::<bool>()), 1..6),
    ) {
        let mut world = converged();
        for (spec, passes, fails) in specs {
            world = world.with_spec(spec);
            world.observed.is_role_ready = world.resolved.is_own_role;
            for pass in 0..passes {
                let plan = world.plan();
                world.apply(&plan);
                if fails && pass == 0 {
                    for p in world.observed.profiles.iter_mut().filter(|p| p.status == ProfileStatus::Creating) {
                        p.status = ProfileStatus::CreateFailed;
                    }
                }
                prop_assert!(world.serves("team"));
                world.finish_eks_operations();
            }
        }
        for _ in 0..60 {
            let plan = world.plan();
            world.apply(&plan);
            world.finish_eks_operations();
            prop_assert!(world.serves("team"));
        }
        let plan = world.plan();
        prop_assert_eq!(&plan.outcome, &Outcome::Converged);
        prop_assert_eq!(world.observed.profiles.len(), 1);
        prop_assert!(plan.steps.is_empty());
        let left = world.status.fargate.clone().unwrap_or_default();
        prop_assert_eq!(left.profiles, vec![world.observed.profiles[0].name.clone()]);
        let quiet = (left.waiting_since, left.retry_at, left.failures);
        prop_assert_eq!(quiet, (None, None, None));
    }
}

/// The status of a group that waits decodes from what a plan tells.
#[test]
fn status_keeps_guard_fields() {
    let told = FargateStatus { cluster: Some("demo".into()), failures: Some(2), ..FargateStatus::default() };
    let status: InstanceGroupStatus = serde_json::from_value(serde_json::json!({ "fargate": told })).expect("a status");
    assert_eq!(status.fargate, Some(told));
}

#[test]
fn plan_command_reports_old_profile_deletion_and_lock() {
    use instance_manager::api::ScalingConfigurationKind;
    use instance_manager::auth::JoinAuth;
    use instance_manager::provisioner::fargate::input::Snapshot;
    use instance_manager::provisioner::{PlanContext, PlanSnapshot as _};
    use instance_manager::settings::Settings;
    let world = converged().with_spec(OTHER);
    let settings = Settings {
        timing: Timing::default(),
        resync_period: std::time::Duration::from_secs(300),
        config_retention: 2,
        cluster_name: None,
        default_scaling_configuration: ScalingConfigurationKind::LaunchTemplate,
        windows_discovers_endpoint: false,
        join_auth: JoinAuth::Auto,
        config_namespace: "instance-manager".into(),
    };
    let foreseen = |lock| {
        let seen = Snapshot { resolved: world.resolved.clone(), observed: world.observed.clone() };
        let given = PlanContext { status: &world.status, lock, settings: &settings, now: world.now };
        let told = seen.simulate(&world.plan(), &given);
        let names: Vec<_> = told.steps.iter().map(|p| p.step.name()).filter(|n| *n != "UpdateStatus").collect();
        (names, told.outcome)
    };
    assert_eq!(foreseen(None).0, ["DeleteFargateProfile"]);
    let (names, outcome) = foreseen(Some("the InstanceGroup"));
    assert!(names.is_empty() && matches!(outcome, Outcome::Locked { .. }), "{outcome:?}");
}

#[test]
fn release_reports_profile_unknown_to_keiko() {
    use instance_manager::provisioner::PlanSnapshot as _;
    use instance_manager::provisioner::Release;
    use instance_manager::provisioner::fargate::input::Snapshot;
    let told = |world: &Scenario| {
        let seen = Snapshot { resolved: world.resolved.clone(), observed: world.observed.clone() };
        match seen.release(&world.status) {
            Release::NotNeeded(text) => text.to_owned(),
            Release::RotationInProgress(what) => format!("{what} is being replaced"),
            other => panic!("{other:?}"),
        }
    };
    let mut world = converged();
    assert!(told(&world).contains("the previous controller knows"));
    world = world.with_spec(OTHER);
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(told(&world), format!("the Fargate profile {} is being replaced", world.resolved.names.first_profile));
    for _ in 0..4 {
        world.finish_eks_operations();
        let plan = world.plan();
        world.apply(&plan);
    }
    assert!(told(&world).contains("does not know"));
}

#[test]
fn ambiguous_group_names_never_share_profiles() {
    let theirs = |name: String| {
        let mut profile = profile(&resolved("{}"), &name, ProfileStatus::Active);
        profile.tags.iter_mut().filter(|t| t.key.ends_with("/Namespace")).for_each(|t| t.value = "other".into());
        profile
    };
    let taken = |w: &Scenario| name_conflict(&w.observed.profiles, &w.resolved.names, &w.resolved.ownership_tags);
    let names = resolved("{}").names;
    let first = new_group("{}").with(|w| w.observed.profiles.push(theirs(names.first_profile.clone())));
    assert!(taken(&first), "it goes by names with a hash");
    // What goes by such a name reads like a later profile of the group that came first.
    let beside = theirs(names.replacement_name("theirs"));
    let world = converged().with(|w| w.observed.profiles.push(beside));
    assert!(!taken(&world));
    assert_eq!((world.step_names(), world.plan().outcome), (vec![], Outcome::Converged));
    // And who has a later name keeps it when another group takes the first one.
    let swapped = converged().with(|w| {
        w.observed.profiles[0].name = names.replacement_name("ours");
        w.observed.profiles.push(theirs(names.first_profile.clone()));
    });
    assert!(!taken(&swapped));
    assert_eq!(swapped.plan().outcome, Outcome::Converged);
    assert_eq!(swapped.with_spec(OTHER).step_names(), ["UpdateStatus", "CreateFargateProfile"]);
}
