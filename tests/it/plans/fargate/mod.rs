//! Plans for the provisioner `eks-fargate`: profiles, their role, and the queue for profile operations.

mod adopted_hash;
mod edited_tags;

use instance_manager::api::FargateStatus;
use instance_manager::api::conditions::Condition;
use instance_manager::api::spec_error::{SpecError, join_messages};
use instance_manager::api::{InstanceGroupStatus, decode_spec, decode_spec_with_errors};
use instance_manager::auth::access_entries::{AccessEntryState, JoinMethod, RoleAccessEntry};
use instance_manager::auth::aws_auth::AuthEntryState;
use instance_manager::aws::fargate::{FargateProfile, NewFargateProfile, ProfileStatus, RouteTable};
use instance_manager::aws::{Cluster, NetworkObject, Role, Tag};
use instance_manager::index::groups::QueuePosition;
use instance_manager::plan::{EventKind, FargateStep};
use instance_manager::plan::{IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, PlannedStep, StalledReason, Step};
use instance_manager::provisioner::fargate::desired::DesiredSpec;
use instance_manager::provisioner::fargate::input::PlanInput;
use instance_manager::provisioner::fargate::observed::{ObservedState, PreviousRole, recorded_role_id};
use instance_manager::provisioner::fargate::ownership::name_conflict;
use instance_manager::provisioner::fargate::ownership::{OwnershipEvidence, RemainingProfiles};
use instance_manager::provisioner::fargate::plan::plan;
use instance_manager::provisioner::fargate::resolve::{self, References, ResolvedGroup, public_subnet_errors, resolve};
use instance_manager::provisioner::fargate::role_owner::role_of_other_region;
use instance_manager::provisioner::fargate::{delete, desired, unchanged_parts};
use instance_manager::provisioner::name_form::NameForm;
use instance_manager::provisioner::rejected_fields::{RejectedFields, ValueSources};
use instance_manager::provisioner::role_region::{OtherRegion, iam_tags};
use instance_manager::provisioner::role_users::KeptEntry;
use instance_manager::settings::Timing;
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::Value;

use super::{NOW, assert_golden, common, deep_merge, no_join_entries, samples, step_names, timestamp};

const OTHER: &str = "eks-fargate: {selectors: [{namespace: team}, {namespace: prod-*}]}";

/// A minimal valid spec, merged with `extra`.
fn resolved(extra: &str) -> ResolvedGroup {
    try_resolve(extra).expect("a resolved group")
}

fn try_resolve(extra: &str) -> Result<ResolvedGroup, Vec<SpecError>> {
    let base = "{provisioner: eks-fargate, strategy: {type: managed}, eks-fargate: {clusterName: demo, subnets: [subnet-1], selectors: [{namespace: team}], tags: [{owner: web}]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    let spec = decode_spec(&spec).expect("a spec");
    let id = common::group_id(3, timestamp(super::LONG_AGO));
    resolve(desired::parse(&id, &spec).expect("a group"), &references(), NameForm::Plain)
}

fn references() -> References {
    let subnet = |id: &str| NetworkObject {
        id: id.into(),
        name: Some(format!("name-of-{id}")),
        vpc: "vpc-1".into(),
        zone: None,
        ipv4_cidr: None,
        assigns_ipv6: None,
    };
    References {
        cluster: Some(samples::cluster("demo")),
        subnets: vec![subnet("subnet-1"), subnet("subnet-2")],
        in_other_vpcs: vec![],
    }
}

/// EKS may answer without the VPC: an id still names a subnet, but a Name tag may belong to another VPC.
#[test]
fn subnets_of_an_unknown_vpc_are_found_by_id_only() {
    let known = references();
    let cluster = known.cluster.map(|cluster| Cluster { vpc: None, ..cluster });
    let without_vpc = References { cluster, subnets: known.subnets[..1].to_vec(), ..References::default() };
    let found = |subnet: &str| {
        let desired = DesiredSpec { subnets: vec![subnet.to_owned()], ..resolved("{}").desired };
        resolve(desired, &without_vpc, NameForm::Plain).map(|r| r.subnets).map_err(|p| join_messages(&p))
    };
    assert_eq!(found("subnet-1"), Ok(vec!["subnet-1".to_owned()]));
    let missing = found("subnet-2").expect_err("the subnet does not exist");
    assert!(missing.contains("`subnet-2` does not exist in this account and region"), "{missing}");
    let named = found("private").expect_err("no VPC to look in");
    assert!(named.contains("because EKS did not return the cluster's VPC") && named.contains("use an id"), "{named}");
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

/// The plan of a converged group whose spec cannot be used now.
pub(super) fn broken_plan(text: &str) -> Plan {
    let mut scenario = converged();
    let base = "{provisioner: eks-fargate, strategy: {type: managed}, eks-fargate: {clusterName: demo, subnets: [subnet-1], selectors: [{namespace: team}], tags: [{owner: web}]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    deep_merge(&mut spec, &serde_yaml::from_str(text).expect("YAML"));
    let (spec, violations) = decode_spec_with_errors(&spec).expect("types are right");
    let (mut desired, errors) = desired::parse_with_errors(&scenario.resolved.desired.id, &spec);
    let broken = RejectedFields::classify(
        common::all_errors(violations, errors),
        &ValueSources::default(),
        unchanged_parts::dependent_parts,
    )
    .expect("the group continues");
    let known = resolve::resolve_with_errors(desired.clone(), broken, &references(), NameForm::Plain);
    let broken = known.expect("a cluster").broken;
    let (names, found) = (scenario.resolved.names.clone(), scenario.observed.profiles[0].clone());
    unchanged_parts::keep(&mut desired, &found, &names, &broken, &scenario.status);
    scenario.resolved = resolve(desired, &references(), NameForm::Plain).expect("a resolved group");
    scenario.resolved.broken = broken;
    scenario.plan()
}

/// A group with its observed state, its status and the time.
#[derive(Clone, Debug)]
struct Scenario {
    resolved: ResolvedGroup,
    observed: ObservedState,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
    after: Option<&'static str>,
    unreadable_aws_auth: Option<&'static str>,
    /// A recorded profile that EKS does not show.
    unseen: Option<&'static str>,
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
            rollout_block: None,
            allowance: None,
            config_retention: 2,
            ineffective_writes: &Default::default(),
            persistent_failure: &Default::default(),
            is_requested: false,
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
        self.with(|s| s.resolved = resolved(extra))
    }

    fn step_names(&self) -> Vec<&'static str> {
        self.plan().steps.iter().map(|p| p.step.name()).collect()
    }

    /// Updates the status as an applied plan does.
    fn apply_records(&mut self, plan: &Plan) {
        let mut status = serde_json::json!(self.status);
        for (key, value) in &plan.status_update.fields {
            status[key] = value.clone();
        }
        self.status = serde_json::from_value(status).expect("a status");
    }

    /// Applies a plan to the observed state. EKS accepts every call.
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
                        ..Role::default()
                    });
                }
                Step::Iam(IamStep::AttachPolicy { .. }) => self.observed.is_role_ready = true,
                Step::Iam(IamStep::TagRole { tags, .. }) => {
                    self.observed.role.as_mut().expect("a role").tags.clone_from(tags)
                }
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
                other => panic!("unexpected step {}", other.name()),
            }
        }
    }

    fn create(&mut self, new: &NewFargateProfile) {
        let changing = [ProfileStatus::Creating, ProfileStatus::Deleting];
        assert!(
            self.observed.profiles.iter().all(|p| !changing.contains(&p.status)),
            "EKS creates or deletes one profile at a time"
        );
        assert!(self.observed.profiles.iter().all(|p| p.name != new.name), "{} exists already", new.name);
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

    /// EKS finishes its operations: created profiles are active, and deleted profiles do not exist.
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

/// A group without any resources.
fn new_group(extra: &str) -> Scenario {
    let observed = ObservedState {
        profiles: vec![],
        is_role_ready: false,
        role: None,
        join_state: no_join_entries(),
        missing_auth_entries: vec![],
        missing_access_entries: vec![],
        unused_auth_entries: vec![],
        kept_auth_entries: vec![],
        kept_access_entries: vec![],
        entries_of_others: vec![],
        unused_access_entries: vec![],
        previous_role: None,
        is_own_role_unknown: false,
        rivals: Default::default(),
        is_derived_role_shared: false,
        unseen_tags: Default::default(),
        tag_retry_pending: false,
        queue_position: QueuePosition::default(),
    };
    let status = InstanceGroupStatus::default();
    Scenario {
        resolved: resolved(extra),
        observed,
        status,
        lock: None,
        after: None,
        unreadable_aws_auth: None,
        unseen: None,
        now: timestamp(NOW),
    }
}

/// A converged group.
fn converged() -> Scenario {
    let mut scenario = new_group("{}");
    for _ in 0..8 {
        let plan = scenario.plan();
        scenario.apply(&plan);
        scenario.finish_eks_operations();
    }
    assert_eq!(scenario.plan().outcome, Outcome::Converged);
    scenario
}

/// A group that Keiko controller created: no ownership tags, and an empty status.
fn created_by_keiko() -> Scenario {
    converged().with(|s| {
        s.status = InstanceGroupStatus::default();
        let profile = &mut s.observed.profiles[0];
        profile.tags = vec![Tag { key: "owner".into(), value: "web".into() }];
        s.observed.role.as_mut().expect("a role").tags.clear();
    })
}

fn blocked(plan: &Plan) -> (StalledReason, &str) {
    match &plan.outcome {
        Outcome::Blocked { reason, message, .. } => (*reason, message),
        other => panic!("{other:?}"),
    }
}

/// Another client deleted it and created another one of its name and tags: EKS would refuse the name forever.
#[test]
fn profile_recreated_by_another_client_is_a_conflict() {
    let scenario = converged().with_spec(OTHER);
    let name = scenario.resolved.names.replacement_name(&scenario.resolved.hash);
    let recreated = scenario.with(|s| {
        s.observed.profiles[0].name = name.clone();
        s.status.fargate.as_mut().expect("a record").profiles = vec![name.clone()];
    });
    assert_eq!(recreated.step_names(), [""; 0]);
    let Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, .. } = recreated.plan().outcome else {
        panic!("{:?}", recreated.plan().outcome)
    };
    assert!(message.contains(&name), "{message}");
}

#[test]
fn plans_match_golden_files() {
    let ready = |s: &mut Scenario| {
        s.observed.is_role_ready = true;
        s.observed.join_state.auth_entry = AuthEntryState::Present;
    };
    let second = |s: &mut Scenario| {
        let name = s.resolved.names.replacement_name(&s.resolved.hash);
        let new = profile(&s.resolved, &name, ProfileStatus::Active);
        s.observed.profiles.push(new);
    };
    for (name, scenario) in [
        ("fargate/create-role", new_group("{}").with(|s| s.resolved.desired.id.has_finalizer = false)),
        ("fargate/create", new_group("{}").with(ready)),
        ("fargate/existing-role", new_group("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/path/given'}")),
        ("fargate/queued", new_group("{}").with(ready).with(|s| s.observed.queue_position.ahead = 2)),
        ("fargate/converged", converged()),
        ("fargate/tags-in-place", converged().with_spec("eks-fargate: {tags: [{team: a}]}")),
        ("fargate/selectors-changed", converged().with_spec(OTHER)),
        ("fargate/delete-outdated-profile", converged().with_spec(OTHER).with(second)),
        ("fargate/adopted", created_by_keiko()),
        ("fargate/adopted-with-drift", created_by_keiko().with_spec(OTHER)),
    ] {
        assert_golden(name, &scenario.plan());
    }
}

#[test]
fn selector_change_keeps_pods_covered() {
    let mut scenario = converged().with_spec(OTHER);
    let mut steps = Vec::new();
    for _ in 0..8 {
        let plan = scenario.plan();
        steps.extend(plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "UpdateStatus"));
        scenario.apply(&plan);
        assert!(scenario.serves("team"), "{steps:?}");
        scenario.finish_eks_operations();
        assert!(scenario.serves("team"), "{steps:?}");
    }
    assert_eq!(steps, ["CreateFargateProfile", "DeleteFargateProfile"]);
    assert_eq!(scenario.plan().outcome, Outcome::Converged);
    assert_eq!((scenario.observed.profiles.len(), scenario.serves("prod-*")), (1, true));
    assert_eq!(scenario.status.fargate.clone().unwrap_or_default().waiting_since, None);
    assert_eq!(scenario.status.active_scaling_group_name.as_ref(), Some(&scenario.observed.profiles[0].name));
}

#[test]
fn lock_blocks_old_profile_deletion_only() {
    let mut scenario = converged().with_spec(OTHER).with(|s| s.lock = Some("the InstanceGroup"));
    assert_eq!(scenario.step_names(), ["UpdateStatus", "CreateFargateProfile"]);
    let plan = scenario.plan();
    scenario.apply(&plan);
    scenario.finish_eks_operations();
    let plan = scenario.plan();
    assert!(matches!(plan.outcome, Outcome::Locked { .. }) && plan.steps.is_empty(), "{plan:?}");
    scenario.apply_records(&plan);
    assert_eq!(
        scenario.status.fargate.clone().unwrap_or_default().waiting_since,
        None,
        "a locked group leaves the queue"
    );
    scenario.lock = None;
    assert_eq!(scenario.step_names(), ["UpdateStatus", "DeleteFargateProfile"]);
    assert!(scenario.plan().steps.iter().any(|p| p.step.is_disruptive()));
}

#[test]
fn queued_group_plans_no_eks_calls() {
    let mut scenario = converged().with_spec(OTHER).with(|s| s.observed.queue_position.ahead = 1);
    let plan = scenario.plan();
    assert!(plan.steps.is_empty(), "{plan:?}");
    let Outcome::Progressing { message, .. } = &plan.outcome else { panic!("{plan:?}") };
    assert!(message.contains("behind 1 group;"), "{message}");
    scenario.apply_records(&plan);
    let since = scenario.status.fargate.clone().unwrap_or_default().waiting_since;
    assert_eq!(since, Some(scenario.now.to_string()));
    scenario.now += SignedDuration::from_mins(9);
    scenario.observed.queue_position.ahead = 0;
    let plan = scenario.plan();
    scenario.apply(&plan);
    assert_eq!(
        scenario.status.fargate.clone().unwrap_or_default().waiting_since,
        since,
        "the place is kept while EKS works"
    );
}

#[test]
fn failed_profile_is_recreated_with_new_token() {
    let token = |plan: &Plan| {
        plan.steps.iter().find_map(|p| match &p.step {
            Step::Fargate(FargateStep::CreateFargateProfile(new)) => Some(new.token.clone()),
            _ => None,
        })
    };
    let mut scenario = new_group("{}").with(|s| s.observed.is_role_ready = true);
    let plan = scenario.plan();
    let first = token(&plan).expect("a creation");
    scenario.apply(&plan);
    scenario.observed.profiles[0].status = ProfileStatus::CreateFailed;
    scenario.observed.profiles[0].issues = vec!["AccessDenied: no".into()];
    let plan = scenario.plan();
    let (reason, message) = blocked(&plan);
    assert_eq!(reason, StalledReason::ProfileFailed);
    assert!(message.contains("AccessDenied: no") && plan.steps.is_empty(), "{message}");
    let retry_at = plan.recheck_at.expect("a retry");
    scenario.apply_records(&plan);
    assert_eq!(scenario.plan().recheck_at, Some(retry_at), "another reconcile does not delay the retry");
    scenario.now = retry_at;
    let plan = scenario.plan();
    assert!(
        plan.steps
            .iter()
            .any(|p| matches!(p.step, Step::Fargate(FargateStep::DeleteFargateProfile { may_run_pods: false, .. })))
    );
    scenario.apply(&plan);
    scenario.finish_eks_operations();
    let plan = scenario.plan();
    assert_ne!(token(&plan), Some(first));
    scenario.apply(&plan);
    scenario.finish_eks_operations();
    let plan = scenario.plan();
    scenario.apply_records(&plan);
    assert_eq!(plan.outcome, Outcome::Converged);
    assert_eq!(scenario.status.fargate.clone().unwrap_or_default().failures, None);
}

#[test]
fn outdated_failed_profile_is_deleted_at_once() {
    let mut scenario = converged();
    let outdated =
        profile(&resolved(OTHER), &scenario.resolved.names.replacement_name("x"), ProfileStatus::CreateFailed);
    scenario.observed.profiles.push(outdated);
    assert_eq!(scenario.step_names(), ["UpdateStatus", "DeleteFargateProfile"]);
    assert!(!scenario.plan().steps.iter().any(|p| p.step.is_disruptive()), "no pod runs on it");
}

#[test]
fn failed_deletion_is_reported_and_retried() {
    let scenario = converged().with(|s| {
        let old = profile(&resolved(OTHER), &s.resolved.names.replacement_name("x"), ProfileStatus::DeleteFailed);
        s.observed.profiles.push(old);
    });
    let plan = scenario.plan();
    assert_eq!(blocked(&plan).0, StalledReason::ProfileFailed);
    assert!(plan.recheck_at.is_some() && plan.steps.is_empty());
}

#[test]
fn unverified_profile_is_not_changed() {
    let foreign = created_by_keiko().with(|s| s.observed.profiles[0].role_arn = "arn:aws:iam::1:role/foreign".into());
    let plan = foreign.plan();
    assert_eq!(blocked(&plan).0, StalledReason::OwnershipConflict);
    assert!(plan.steps.is_empty());
    let role = new_group("{}").with(|s| {
        let arn = s.resolved.role_arn.clone();
        s.observed.role = Some(Role {
            id: "AROA-2".into(),
            name: s.resolved.names.role.clone(),
            arn,
            tags: vec![],
            ..Role::default()
        });
    });
    assert_eq!(blocked(&role.plan()).0, StalledReason::OwnershipConflict);
    assert_eq!(role.step_names(), ["UpdateStatus", "PutAwsAuthEntry"]);
}

#[test]
fn adopted_profile_stays_until_spec_changes() {
    let mut scenario = created_by_keiko().with_spec(OTHER);
    for _ in 0..4 {
        let plan = scenario.plan();
        scenario.apply_records(&plan);
        for PlannedStep { step, .. } in &plan.steps {
            assert!(!matches!(
                step,
                Step::Fargate(FargateStep::CreateFargateProfile(_))
                    | Step::Fargate(FargateStep::DeleteFargateProfile { .. })
            ));
            if let Step::Fargate(FargateStep::TagFargateProfile { tags, .. }) = step {
                scenario.observed.profiles[0].tags.extend(tags.iter().cloned());
                scenario.observed.role.as_mut().expect("a role").tags.clone_from(tags);
            }
        }
    }
    assert_eq!(scenario.plan().outcome, Outcome::Converged);
    let changed = scenario.with_spec("eks-fargate: {selectors: [{namespace: elsewhere}]}");
    assert_eq!(changed.step_names(), ["UpdateStatus", "CreateFargateProfile"]);
}

#[test]
fn denied_tagging_is_retried_and_deletes_nothing() {
    let mut scenario = created_by_keiko();
    let plan = scenario.plan();
    scenario.apply_records(&plan);
    assert_eq!(scenario.step_names(), ["TagFargateProfile", "TagRole"]);
    scenario.observed.tag_retry_pending = true;
    assert_eq!((scenario.step_names(), scenario.plan().outcome), (vec![], Outcome::Converged));
    let mut scenario = scenario.with_spec(OTHER);
    let plan = scenario.plan();
    scenario.apply(&plan);
    scenario.finish_eks_operations();
    assert_eq!(
        blocked(&scenario.plan()).0,
        StalledReason::OwnershipConflict,
        "the older profile is not provably this group's"
    );
}

/// Otherwise every reconcile would repeat the denied call, many times a second.
#[test]
fn denied_tags_do_not_block_other_changes() {
    let mut scenario = converged().with_spec("eks-fargate: {tags: [{owner: other}]}");
    assert!(scenario.step_names().contains(&"TagFargateProfile"));
    scenario.observed.tag_retry_pending = true;
    let plan = scenario.plan();
    assert_eq!(plan.steps, [], "nothing is written while only denied tags differ");
    let (reason, message) = blocked(&plan);
    assert!(reason == StalledReason::MissingPermission && message.contains("lacks eks:TagResource;"), "{message}");
    let older = profile(&resolved(OTHER), &scenario.resolved.names.replacement_name("x"), ProfileStatus::Active);
    scenario.observed.profiles.push(older);
    assert_eq!(scenario.step_names(), ["UpdateStatus", "DeleteFargateProfile"]);
    let mut scenario = converged().with_spec("eks-fargate: {tags: []}");
    assert!(scenario.step_names().contains(&"UntagFargateProfile"));
    scenario.observed.tag_retry_pending = true;
    let plan = scenario.plan();
    let (_, message) = blocked(&plan);
    assert!(plan.steps.is_empty() && message.contains("lacks eks:UntagResource;"), "{message}");
}

/// EKS has one place for deletions in the whole cluster: a group that fails must leave it to others, longer each time.
#[test]
fn deletion_that_fails_again_waits_longer_each_time() {
    let mut scenario = converged();
    let profile = |status| vec![FargateProfile { status, ..scenario.observed.profiles[0].clone() }];
    let (failed, deleting) = (profile(ProfileStatus::DeleteFailed), profile(ProfileStatus::Deleting));
    let mut waits = Vec::new();
    for _ in 0..3 {
        let plan = deletion_plan(&scenario, &failed, None);
        assert!(matches!(plan.outcome, Outcome::Blocked { is_deleting: true, .. }), "{:?}", plan.outcome);
        scenario.apply(&plan);
        let until = plan.recheck_at.expect("the time of the next attempt");
        waits.push(until.duration_since(scenario.now).as_secs());
        scenario.now = until;
        let plan = deletion_plan(&scenario, &failed, None);
        assert_eq!(step_names(&plan).last().copied(), Some("DeleteFargateProfile"));
        scenario.apply(&plan);
        scenario.apply(&deletion_plan(&scenario, &deleting, None));
    }
    assert_eq!(waits, [60, 120, 240]);
}

/// Otherwise the deletion of an adopted group would retry forever without a report.
#[test]
fn deletion_reports_denied_tagging() {
    let mut scenario = created_by_keiko();
    scenario.observed.profiles[0].tags.clear();
    let remaining = scenario.observed.profiles.clone();
    let first = deletion_plan(&scenario, &remaining, None);
    assert!(first.steps.iter().any(|p| p.step.name() == "TagFargateProfile"), "{first:?}");
    scenario.observed.tag_retry_pending = true;
    let plan = deletion_plan(&scenario, &remaining, None);
    assert_eq!(plan.steps, []);
    assert!(blocked(&plan).1.contains("eks:TagResource"));
    assert!(matches!(
        plan.outcome,
        Outcome::Blocked { reason: StalledReason::MissingPermission, is_deleting: true, .. }
    ));
}

/// An access entry admits only the role that existed when it was created. Pods of a recreated role of the same name could
/// not start. After a crash at any point, the controller observes both again.
#[test]
fn recreated_role_gets_new_access_entry() {
    let entry = |of: &str| {
        AccessEntryState::Present(RoleAccessEntry {
            kind: "FARGATE_LINUX".into(),
            is_owned: true,
            created_at: None,
            role_id: Some(of.into()),
        })
    };
    let mut scenario = converged().with(|s| {
        s.resolved.join_method = JoinMethod::AccessEntries { remove_other: false };
        (s.observed.join_state.access_entry, s.observed.join_state.role_id) = (entry("AROA-1"), Some("AROA-1".into()));
    });
    let plan = scenario.plan();
    scenario.apply_records(&plan);
    let arn = scenario.resolved.role_arn.clone();
    assert_eq!(
        recorded_role_id(&scenario.status, &arn).map(String::as_str),
        Some("AROA-1"),
        "the recorded id saves a call"
    );
    assert_eq!(recorded_role_id(&scenario.status, "arn:aws:iam::1:role/given"), None);
    (scenario.observed.is_role_ready, scenario.observed.role, scenario.observed.join_state.role_id) =
        (false, None, None);
    let plan = scenario.plan();
    let clears_id = plan.steps.iter().position(|p| match &p.step {
        Step::Object(ObjectStep::UpdateStatus { status }) => status["join"].get("roleId").is_some_and(Value::is_null),
        _ => false,
    });
    let creates_role = plan.steps.iter().position(|p| matches!(p.step, Step::Iam(IamStep::CreateRole(_))));
    assert!(clears_id.is_some() && clears_id < creates_role, "{plan:?}");
    scenario.apply_records(&plan);
    (scenario.observed.is_role_ready, scenario.observed.join_state.role_id) = (true, Some("AROA-2".into()));
    let plan = scenario.plan();
    let names: Vec<_> = plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "UpdateStatus").collect();
    assert_eq!(names, ["RemoveAccessEntry", "PutAccessEntry"]);
    scenario.apply_records(&plan);
    assert_eq!(recorded_role_id(&scenario.status, &arn), None, "the id is recorded once its entry is observed");
    scenario.observed.join_state.access_entry = entry("AROA-2");
    let plan = scenario.plan();
    scenario.apply_records(&plan);
    assert_eq!(recorded_role_id(&scenario.status, &arn).map(String::as_str), Some("AROA-2"));
}

/// A tenant who may assume a role of another account, with an entry in aws-auth, becomes any node of the cluster.
#[test]
fn role_of_another_account_is_rejected() {
    let errors =
        try_resolve("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::2:role/given'}").expect_err("a foreign role");
    assert_eq!(errors[0].path, "spec.eks-fargate.podExecutionRoleArn");
    assert!(errors[0].to_string().contains("is not a role of the cluster's account"), "{errors:?}");
}

/// The Keiko controller made the profile of its name again, and both match the spec. The pods run on the one that the status
/// names, and EKS would delete them past every budget.
#[test]
fn profile_that_runs_the_pods_stays_beside_another_that_matches() {
    let mut scenario = converged();
    let first = scenario.observed.profiles[0].clone();
    let serving = FargateProfile { name: format!("{}-abcd1234", first.name), ..first.clone() };
    scenario.observed.profiles = vec![first.clone(), serving.clone()];
    for (active, deleted) in [(&serving, &first), (&first, &serving)] {
        scenario.status.active_scaling_group_name = Some(active.name.clone());
        scenario.status.fargate.as_mut().expect("a record").profiles = vec![first.name.clone(), serving.name.clone()];
        let deletes: Vec<_> = (scenario.plan().steps.into_iter())
            .filter_map(|planned| match planned.step {
                Step::Fargate(FargateStep::DeleteFargateProfile { profile, .. }) => Some(profile),
                _ => None,
            })
            .collect();
        assert_eq!(deletes, std::slice::from_ref(&deleted.name));
    }
}

#[test]
fn existing_role_replaces_own_role() {
    let mut scenario = converged().with_spec("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = scenario.plan();
        scenario.apply(&plan);
        scenario.finish_eks_operations();
    }
    let r = resolved("{}");
    scenario.observed.previous_role = Some(PreviousRole {
        role: Role {
            id: "AROA-1".into(),
            name: r.names.role.clone(),
            arn: r.role_arn.clone(),
            tags: r.ownership_tags,
            ..Role::default()
        },
        attached_policies: vec![r.managed_policy],
        inline_policies: vec![],
        other_region: None,
        instance_profile: None,
    });
    scenario.observed.unused_auth_entries = vec![r.aws_auth_entry];
    assert_eq!(scenario.step_names(), ["RemoveAwsAuthEntry", "DetachPolicy", "DeleteRole"]);
}

/// The role that the controller created, as the observation reads it.
fn own_role(attached_policies: &[&str]) -> PreviousRole {
    let r = resolved("{}");
    let role = Role {
        id: "AROA-1".into(),
        name: r.names.role.clone(),
        arn: r.role_arn.clone(),
        tags: iam_tags(&r.ownership_tags, &r.region),
        ..Role::default()
    };
    PreviousRole {
        role,
        attached_policies: attached_policies.iter().map(|policy| (*policy).to_owned()).collect(),
        inline_policies: vec![],
        other_region: None,
        instance_profile: None,
    }
}

/// Lets a group reach the state that its spec asks for.
fn settle(scenario: Scenario) -> Scenario {
    pass(scenario, 8)
}

fn pass(mut scenario: Scenario, passes: usize) -> Scenario {
    for _ in 0..passes {
        let plan = scenario.plan();
        scenario.apply(&plan);
        scenario.finish_eks_operations();
    }
    scenario
}

const GIVEN: &str = "eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}";

/// A role is given, dropped before the own role is deleted, given again, and taken back after the own role is deleted.
#[test]
fn own_role_survives_changes_between_roles() {
    let policy = resolved("{}").managed_policy;
    let recorded = |s: &Scenario| s.status.managed.clone().expect("a record").policies;
    let given = pass(converged().with_spec(GIVEN), 1);
    assert_eq!(given.observed.profiles.len(), 2, "the old profile still runs pods with the own role");
    assert_eq!(recorded(&given), std::slice::from_ref(&policy), "the role exists");
    let back = settle(given.clone().with_spec("{}"));
    assert_eq!((back.plan().outcome, recorded(&back)), (Outcome::Converged, vec![policy.clone()]));
    let again = settle(back.with_spec(GIVEN)).with(|s| s.observed.previous_role = Some(own_role(&[&policy])));
    assert_eq!(again.step_names(), ["DetachPolicy", "DeleteRole"]);
    let without_role = settle(again.with(|s| (s.observed.previous_role, s.observed.is_role_ready) = (None, false)));
    assert_eq!(recorded(&without_role), Vec::<String>::new());
    let mut own_role_again = without_role.with_spec("{}").with(|s| s.observed.role = None);
    assert_eq!(own_role_again.step_names().iter().filter(|name| name.contains("Role")).count(), 1);
    own_role_again = settle(own_role_again);
    assert_eq!((own_role_again.plan().outcome, recorded(&own_role_again)), (Outcome::Converged, vec![policy.clone()]));
    // The deletion removes the role whatever the record says.
    for mut deleted in [own_role_again, given] {
        let role = own_role(&[&policy]);
        for _ in 0..2 {
            let evidence = OwnershipEvidence::default();
            let plan = deletion_plan_from(&deleted, &[], &evidence, &[], (Some(&role), None));
            assert!(
                step_names(&plan).ends_with(&["DetachPolicy", "DeleteRole", "RemoveFinalizer"]),
                "{:?}",
                plan.steps
            );
            deleted.status.managed.as_mut().expect("a record").policies.clear();
        }
    }
}

/// A user removed the status while the old profile ran pods with the own role, or took the tags off that role. Nothing
/// would look for the role once the profile is gone.
#[test]
fn own_role_stays_recorded_until_it_is_gone() {
    let policies = |s: &Scenario| s.status.managed.clone().expect("a record").policies;
    let lost = pass(converged().with_spec(GIVEN), 1).with(|s| s.status = InstanceGroupStatus::default());
    let rebuilt = pass(lost, 1);
    let policy = rebuilt.resolved.managed_policy.clone();
    assert_eq!(policies(&rebuilt), std::slice::from_ref(&policy));
    let untagged = settle(rebuilt.clone().with(|s| s.observed.is_own_role_unknown = true));
    assert_eq!((untagged.step_names(), untagged.observed.profiles.len()), (vec![], 1));
    assert_eq!(policies(&untagged), [policy], "the tags may come back");
    assert_eq!(policies(&settle(rebuilt)), Vec::<String>::new());
}

/// The pods run with another role, so what others did with the unused one blocks nothing. IAM deletes no role that an instance
/// profile holds: without its policies, the instances would lose their permissions.
#[test]
fn unused_role_that_others_use_is_kept() {
    let policy = resolved("{}").managed_policy;
    let with_policy = own_role(&[&policy, "arn:aws:iam::1:policy/audit"]);
    let held = PreviousRole { instance_profile: Some("of-a-person".into()), ..own_role(&[&policy]) };
    for (role, word) in [(with_policy, "policy/audit"), (held, "of-a-person")] {
        let mut kept = settle(converged().with_spec(GIVEN)).with(|s| s.observed.previous_role = Some(role));
        let plan = kept.plan();
        assert_eq!((step_names(&plan), plan.outcome.clone()), (vec![], Outcome::Converged));
        let [event] = &plan.events[..] else { panic!("{:?}", plan.events) };
        assert!(event.reason == "RoleRetained" && event.message.contains(word), "{event:?}");
        kept.apply(&plan);
        kept.observed.previous_role = None;
        assert_eq!(kept.plan().events, vec![], "the event is sent once");
    }
}

/// Another tool's profile runs pods with the role, so the entry stays and is no longer this group's.
#[test]
fn entry_of_a_role_that_other_groups_use_is_kept() {
    let old = "arn:aws:iam::1:role/old".to_owned();
    let mut scenario = settle(converged().with_spec(GIVEN));
    scenario.status.managed.as_mut().expect("a record").auth_entries.push(old.clone());
    let user = "the Fargate profile of-terraform".to_owned();
    scenario.observed.entries_of_others = vec![KeptEntry { role_arn: old.clone(), user }];
    let plan = scenario.plan();
    assert_eq!(step_names(&plan), Vec::<&str>::new());
    assert_eq!(plan.events.iter().map(|e| e.reason.as_str()).collect::<Vec<_>>(), ["JoinEntryRetained"]);
    scenario.apply(&plan);
    assert!(!scenario.status.managed.expect("a record").auth_entries.contains(&old));
}

/// When all groups change their role at once, queued groups still run pods with the old role. Without the record, its
/// entry would never be removed.
#[test]
fn shared_previous_entries_stay_recorded() {
    let old = "arn:aws:iam::1:role/old".to_owned();
    let recorded = |scenario: &Scenario| {
        let managed = scenario.status.managed.clone().expect("a record");
        (managed.auth_entries.contains(&old), managed.access_entries.contains(&old))
    };
    let mut scenario = converged().with_spec("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = scenario.plan();
        scenario.apply(&plan);
        scenario.finish_eks_operations();
    }
    let managed = scenario.status.managed.as_mut().expect("a record");
    managed.auth_entries.push(old.clone());
    managed.access_entries.push(old.clone());
    (scenario.observed.kept_auth_entries, scenario.observed.kept_access_entries) =
        (vec![old.clone()], vec![old.clone()]);
    assert_eq!(scenario.step_names(), Vec::<&str>::new());
    (scenario.observed.kept_auth_entries, scenario.observed.kept_access_entries) = (vec![old.clone()], vec![]);
    let plan = scenario.plan();
    scenario.apply(&plan);
    assert_eq!(recorded(&scenario), (true, false));
    scenario.observed.kept_auth_entries = vec![];
    let plan = scenario.plan();
    scenario.apply(&plan);
    assert_eq!(recorded(&scenario), (false, false), "no group needs the entry");
}

/// A lock keeps the profile with the role before, and a user deletes the entry of that role. The pods of the profile would
/// lose the cluster.
#[test]
fn entry_of_a_role_that_a_kept_profile_still_has_is_restored() {
    let (old, scenario) = (resolved("{}"), pass(converged().with_spec(GIVEN), 1));
    let locked = scenario.with(|s| s.lock = Some("the InstanceGroup"));
    let puts = |plan: &Plan| step_names(plan).into_iter().filter(|name| name.starts_with("Put")).collect::<Vec<_>>();
    assert_eq!(puts(&locked.plan()), Vec::<&str>::new());
    let deleted = locked.clone().with(|s| s.observed.missing_auth_entries = vec![old.aws_auth_entry.clone()]);
    assert_eq!(puts(&deleted.plan()), ["PutAwsAuthEntry"]);
    let deleted = locked.with(|s| s.observed.missing_access_entries = vec![old.access_entry.clone()]);
    let plan = deleted.plan();
    assert!(matches!(plan.outcome, Outcome::Locked { .. }), "{:?}", plan.outcome);
    assert_eq!(puts(&plan), ["PutAccessEntry"]);
    assert_eq!(plan.status_update.fields["managed"]["accessEntries"], serde_json::json!([old.role_arn]));
}

/// Otherwise the other group's pods could not start.
#[test]
fn shared_role_is_kept() {
    let derived = resolved("{}").role_arn;
    let with_previous_role = |scenario: &Scenario| {
        let r = resolved("{}");
        let role = Role {
            id: "AROA-1".into(),
            name: r.names.role,
            arn: r.role_arn,
            tags: r.ownership_tags,
            ..Role::default()
        };
        scenario.clone().with(|s| {
            s.observed.previous_role = Some(PreviousRole {
                role,
                attached_policies: vec![r.managed_policy],
                inline_policies: vec![],
                other_region: None,
                instance_profile: None,
            });
        })
    };
    let named = converged().with_spec(&format!("eks-fargate: {{podExecutionRoleArn: '{derived}'}}"));
    assert_eq!(with_previous_role(&named).step_names(), Vec::<&str>::new(), "the spec names the group's own role");
    assert_eq!(named.plan().outcome, Outcome::Converged);
    let mut other = converged().with_spec("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = other.plan();
        other.apply(&plan);
        other.finish_eks_operations();
    }
    assert_eq!(with_previous_role(&other).step_names(), ["DetachPolicy", "DeleteRole"]);
    other.status.managed.as_mut().expect("a record").policies = vec![other.resolved.managed_policy.clone()];
    other.observed.is_derived_role_shared = true;
    assert_eq!(with_previous_role(&other).step_names(), Vec::<&str>::new(), "another group uses it");
    assert_eq!(other.step_names(), Vec::<&str>::new(), "the record stays until no group uses it");
}

#[test]
fn auth_conflict_keeps_old_profile() {
    let conflict = AuthEntryState::Conflict { detail: "another entry".into() };
    let scenario = converged().with_spec(OTHER).with(|s| {
        let name = s.resolved.names.replacement_name(&s.resolved.hash);
        let new = profile(&s.resolved, &name, ProfileStatus::Active);
        s.observed.profiles.push(new);
        s.observed.join_state.auth_entry = conflict;
    });
    assert_eq!(blocked(&scenario.plan()).0, StalledReason::AuthConflict);
    assert_eq!(scenario.step_names(), Vec::<&str>::new());
}

#[test]
fn public_subnets_are_rejected_before_creation() {
    let r = resolved("eks-fargate: {subnets: [subnet-1, name-of-subnet-2]}");
    let table = |is_main, subnets: &[&str], has_internet_gateway| RouteTable {
        is_main,
        subnets: subnets.iter().map(|s| (*s).to_owned()).collect(),
        has_internet_gateway,
    };
    let paths = |tables: &[RouteTable]| -> Vec<_> {
        public_subnet_errors(&r, tables).into_iter().map(|p| p.value.into_string()).collect()
    };
    assert_eq!(paths(&[]), Vec::<String>::new(), "route tables that could not be read cause no error");
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
    let r = resolve::resolve(resolved("{}").desired, &china, NameForm::Plain).expect("a resolved group");
    assert_eq!(r.managed_policy, "arn:aws-cn:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy");
    assert_eq!(r.join_method, JoinMethod::AccessEntries { remove_other: false });
    assert_eq!(r.access_entry.kind.as_str(), "FARGATE_LINUX");
}

fn deletion_plan(scenario: &Scenario, remaining: &[FargateProfile], role: Option<&PreviousRole>) -> Plan {
    deletion_plan_with_role(scenario, remaining, role, None)
}

fn deletion_plan_with_role(
    scenario: &Scenario,
    remaining: &[FargateProfile],
    role: Option<&PreviousRole>,
    role_in_use: Option<&str>,
) -> Plan {
    let evidence =
        OwnershipEvidence::from_status(scenario.resolved.desired.existing_role.as_deref(), false, &scenario.status);
    deletion_plan_from(scenario, remaining, &evidence, &[], (role, role_in_use))
}

/// The deletion of a group whose spec violates the admin's policy.
fn deletion_plan_with_rejected_spec(scenario: &Scenario, remaining: &[FargateProfile]) -> Plan {
    let rule = "is not among the namespaces that policy.fargateNamespaces allows";
    let problem = SpecError::invalid("spec.eks-fargate.selectors[0].namespace", "team", rule, "name another");
    let evidence =
        OwnershipEvidence::from_status(scenario.resolved.desired.existing_role.as_deref(), true, &scenario.status);
    deletion_plan_from(
        scenario,
        remaining,
        &evidence,
        &[problem.with_reason(StalledReason::PolicyViolation)],
        (None, None),
    )
}

fn deletion_plan_from(
    scenario: &Scenario,
    remaining: &[FargateProfile],
    evidence: &OwnershipEvidence,
    forbidden: &[SpecError],
    (previous_role, role_in_use): (Option<&PreviousRole>, Option<&str>),
) -> Plan {
    let r = &scenario.resolved;
    let auth = [r.aws_auth_entry.clone()];
    delete::plan(&delete::DeleteInput {
        id: &r.desired.id,
        cluster: "demo",
        ownership_tags: &r.ownership_tags,
        forbidden,
        profiles: &RemainingProfiles::classify(remaining.to_vec(), &r.names, &r.ownership_tags, evidence),
        unseen: scenario.unseen,
        untagged_role: None,
        tag_retry_pending: scenario.observed.tag_retry_pending,
        previous_role,
        unproven_role: None,
        role_in_use: role_in_use.map(|role| (role, "another group")),
        aws_auth_entries: &auth,
        access_entries: &[],
        kept_entries: &[],
        modified_auth_entries: &[],
        wait_for: scenario.after,
        unreadable_aws_auth: scenario.unreadable_aws_auth,
        queue_position: QueuePosition::default(),
        status: &scenario.status,
        timing: &Timing::default(),
        now: scenario.now,
    })
}

/// Both groups derive the name and the role, and the profile has no tags: only a person knows whose it is.
#[test]
fn profile_that_another_group_may_own_is_a_conflict_with_a_remedy() {
    let mut group = new_group("{}");
    let mut found = profile(&group.resolved, &group.resolved.names.first_profile, ProfileStatus::Active);
    found.tags.clear();
    group.observed.profiles = vec![found];
    group.observed.rivals = ["a-b/c".to_owned()].into();
    let plan = group.plan();
    let Outcome::Blocked { reason, message, .. } = &plan.outcome else { panic!("{:?}", plan.outcome) };
    let tags = group.resolved.ownership_tags.iter().all(|tag| message.contains(&tag.value));
    assert!(*reason == StalledReason::OwnershipConflict && tags && message.contains("a-b/c"), "{message}");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    group.observed.rivals.clear();
    assert!(step_names(&group.plan()).contains(&"TagFargateProfile"));
}

/// EKS may show a profile late that was created right before the deletion. Nothing would delete it without the finalizer.
#[test]
fn profile_that_eks_does_not_show_yet_keeps_the_finalizer() {
    let unseen = converged().with(|s| (s.unseen, s.resolved.desired.id.has_finalizer) = (Some("fargate-web"), true));
    let plan = deletion_plan(&unseen, &[], None);
    assert_eq!(plan.steps, []);
    assert!(matches!(&plan.outcome, Outcome::Progressing { message, .. } if message.contains("fargate-web")));
    assert_ne!(deletion_plan(&unseen.with(|s| s.unseen = None), &[], None).steps, []);
}

/// A group that Keiko controller created and whose spec this controller rejected.
fn created_by_keiko_with_rejected_spec(extra: &str) -> Scenario {
    created_by_keiko().with_spec(extra).with(|s| {
        s.resolved.desired.id.has_finalizer = true;
        s.status = serde_json::from_value(serde_json::json!({ "currentState": "Error" })).expect("a status");
        s.observed.profiles[0].role_arn = s.resolved.role_arn.clone();
    })
}

/// The rejection overwrites the state in which the Keiko controller recorded its profile. The controller must still
/// delete the profile.
#[test]
fn keiko_profile_is_deleted_with_rejected_spec() {
    let mut scenario = created_by_keiko_with_rejected_spec("{}");
    let mut remaining = scenario.observed.profiles.clone();
    let plan = deletion_plan_with_rejected_spec(&scenario, &remaining);
    assert_eq!(step_names(&plan), ["UpdateStatus", "TagFargateProfile"], "{plan:?}");
    let Step::Object(ObjectStep::UpdateStatus { status }) = &plan.steps[0].step else { panic!("{plan:?}") };
    scenario.status = serde_json::from_value(status.clone()).expect("a status");
    remaining[0].tags = scenario.resolved.ownership_tags.clone();
    let plan = deletion_plan_with_rejected_spec(&scenario, &remaining);
    assert_eq!(step_names(&plan), ["DeleteFargateProfile"], "{plan:?}");
    assert_eq!(
        step_names(&deletion_plan_with_rejected_spec(&scenario, &[])),
        ["RemoveAwsAuthEntry", "RemoveFinalizer"]
    );
}

#[test]
fn rejected_spec_role_is_not_evidence() {
    let named = "{eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/pods'}}";
    for state in ["Error", "Ready"] {
        let scenario = created_by_keiko_with_rejected_spec(named).with(|s| s.status.current_state = Some(state.into()));
        let remaining = scenario.observed.profiles.clone();
        let plan = deletion_plan_with_rejected_spec(&scenario, &remaining);
        let (reason, message) = blocked(&plan);
        assert!(reason == StalledReason::PolicyViolation && plan.steps.is_empty(), "{plan:?}");
        assert!(message.contains(&remaining[0].name) && message.contains("policy.fargateNamespaces"), "{message}");
        assert_eq!(
            step_names(&deletion_plan(&scenario, &remaining, None)),
            ["UpdateStatus", "TagFargateProfile"],
            "a valid spec proves ownership"
        );
    }
    let scenario = created_by_keiko_with_rejected_spec(named);
    let foreign =
        FargateProfile { role_arn: "arn:aws:iam::1:role/admin".into(), ..scenario.observed.profiles[0].clone() };
    let tagged =
        FargateProfile { tags: scenario.resolved.ownership_tags.clone(), ..scenario.observed.profiles[0].clone() };
    for remaining in [vec![], vec![foreign], vec![tagged]] {
        let plan = deletion_plan_with_rejected_spec(&scenario, &remaining);
        assert_eq!(step_names(&plan), ["RemoveFinalizer"], "{plan:?}");
        assert!(plan.events.iter().any(|event| event.message.contains("nothing was created for this group")));
    }
}

/// AWS denied the tags, and the spec was rejected later. The record still proves ownership.
#[test]
fn adopted_profile_is_tagged_before_deletion() {
    let role = "arn:aws:iam::1:role/pods";
    let named = format!("{{eks-fargate: {{podExecutionRoleArn: '{role}'}}}}");
    let recorded = serde_json::json!({ "nodesInstanceRoleArn": role, "fargate": { "cluster": "demo" } });
    let adopted = serde_json::json!({ "nodesInstanceRoleArn": "arn:aws:iam::1:role/next", "fargate": { "cluster": "demo", "adoptedHash": "1" } });
    for status in [recorded, adopted] {
        let mut scenario = created_by_keiko_with_rejected_spec(&named);
        scenario.status = serde_json::from_value(status).expect("a status");
        let remaining = scenario.observed.profiles.clone();
        assert_eq!(step_names(&deletion_plan_with_rejected_spec(&scenario, &remaining)), ["TagFargateProfile"]);
        scenario.observed.tag_retry_pending = true;
        let plan = deletion_plan_with_rejected_spec(&scenario, &remaining);
        assert!(blocked(&plan).0 == StalledReason::MissingPermission && plan.steps.is_empty(), "{plan:?}");
    }
}

#[test]
fn deletion_removes_profiles_then_the_rest() {
    let scenario = converged();
    let first = scenario.observed.profiles[0].clone();
    let second = profile(&scenario.resolved, &scenario.resolved.names.replacement_name("x"), ProfileStatus::Active);
    assert_golden("fargate/delete", &deletion_plan(&scenario, &[first.clone(), second.clone()], None));
    let deleting = FargateProfile { status: ProfileStatus::Deleting, ..first };
    let plan = deletion_plan(&scenario, &[deleting, second], None);
    assert!(plan.steps.is_empty() && matches!(plan.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }));
    let role = PreviousRole {
        role: scenario.observed.role.clone().expect("a role"),
        attached_policies: vec![scenario.resolved.managed_policy.clone()],
        inline_policies: vec![],
        other_region: None,
        instance_profile: None,
    };
    assert_golden("fargate/delete-supporting-resources", &deletion_plan(&scenario, &[], Some(&role)));
    let kept = deletion_plan_with_role(&scenario, &[], None, Some("fargate-role"));
    let names: Vec<_> = kept.steps.iter().map(|p| p.step.name()).collect();
    assert_eq!(names, ["RemoveAwsAuthEntry", "RemoveFinalizer"]);
    assert!(
        kept.events
            .iter()
            .any(|event| event.kind == EventKind::Warning && event.message.contains("keeping the role fargate-role")),
        "{kept:?}"
    );
    let plan = deletion_plan(&scenario.clone().with(|s| s.after = Some("team/db")), &[], Some(&role));
    assert!(plan.steps.is_empty() && matches!(plan.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }));
    let plan = deletion_plan(
        &scenario.clone().with(|s| s.unreadable_aws_auth = Some("mapRoles cannot be parsed")),
        &[],
        Some(&role),
    );
    assert!(
        plan.steps.is_empty() && blocked(&plan).0 == StalledReason::AuthConflict,
        "its entry would admit any later role"
    );
    let with_foreign_policy = PreviousRole { inline_policies: vec!["foreign".into()], ..role };
    let plan = deletion_plan(&scenario, &[], Some(&with_foreign_policy));
    assert_eq!(blocked(&plan).0, StalledReason::OwnershipConflict);
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
        let mut scenario = converged();
        for (spec, passes, fails) in specs {
            scenario = scenario.with_spec(spec);
            scenario.observed.is_role_ready = scenario.resolved.is_own_role;
            for pass in 0..passes {
                let plan = scenario.plan();
                scenario.apply(&plan);
                if fails && pass == 0 {
                    for p in scenario.observed.profiles.iter_mut().filter(|p| p.status == ProfileStatus::Creating) {
                        p.status = ProfileStatus::CreateFailed;
                    }
                }
                prop_assert!(scenario.serves("team"));
                scenario.finish_eks_operations();
            }
        }
        for _ in 0..60 {
            let plan = scenario.plan();
            scenario.apply(&plan);
            scenario.finish_eks_operations();
            prop_assert!(scenario.serves("team"));
        }
        let plan = scenario.plan();
        prop_assert_eq!(&plan.outcome, &Outcome::Converged);
        prop_assert_eq!(scenario.observed.profiles.len(), 1);
        prop_assert!(plan.steps.is_empty());
        let record = scenario.status.fargate.clone().unwrap_or_default();
        prop_assert_eq!(record.profiles, vec![scenario.observed.profiles[0].name.clone()]);
        let queue_fields = (record.waiting_since, record.retry_at, record.failures);
        prop_assert_eq!(queue_fields, (None, None, None));
    }
}

/// The queue record survives a round trip through the status.
#[test]
fn queue_record_round_trips() {
    let record = FargateStatus { cluster: Some("demo".into()), failures: Some(2), ..FargateStatus::default() };
    let status: InstanceGroupStatus =
        serde_json::from_value(serde_json::json!({ "fargate": record })).expect("a status");
    assert_eq!(status.fargate, Some(record));
}

/// What the command `plan` and the forecast of a rollout say of a change.
fn projection(
    scenario: &Scenario,
    lock: Option<&'static str>,
    rollout_block: Option<&'static str>,
) -> instance_manager::provisioner::Projection {
    use instance_manager::provisioner::fargate::input::Snapshot;
    use instance_manager::provisioner::{PlanContext, PlanSnapshot as _};
    let settings = instance_manager::settings::Settings::default();
    let snapshot = Snapshot { resolved: scenario.resolved.clone(), observed: scenario.observed.clone() };
    let context = PlanContext {
        status: &scenario.status,
        lock,
        rollout_block,
        allowance: None,
        settings: &settings,
        ineffective_writes: &Default::default(),
        persistent_failure: &Default::default(),
        is_requested: false,
        now: scenario.now,
    };
    snapshot.simulate(&scenario.plan(), &context)
}

#[test]
fn plan_command_reports_old_profile_deletion_and_lock() {
    let scenario = converged().with_spec(OTHER);
    let simulated = |lock, rollout_block| {
        let projection = projection(&scenario, lock, rollout_block);
        let names: Vec<_> = projection.steps.iter().map(|p| p.step.name()).filter(|n| *n != "UpdateStatus").collect();
        (names, projection.outcome)
    };
    assert_eq!(simulated(None, None).0, ["DeleteFargateProfile"]);
    for (lock, rollout_block) in
        [(Some("the InstanceGroup"), None), (None, Some("the rollout of r2: its window is closed"))]
    {
        let (names, outcome) = simulated(lock, rollout_block);
        assert!(names.is_empty() && matches!(outcome, Outcome::Locked { .. }), "{outcome:?}");
    }
}

/// EKS deletes the pods of a profile with it, so that a rollout must not count its replacement as a change in place.
#[test]
fn replacement_of_a_profile_counts_as_an_eviction() {
    let evictions = |scenario: &Scenario| projection(scenario, None, None).evictions;
    assert_eq!(evictions(&converged()), None);
    assert_eq!(evictions(&converged().with_spec(OTHER)), Some(0));
}

#[test]
fn release_reports_profile_unknown_to_keiko() {
    use instance_manager::provisioner::PlanSnapshot as _;
    use instance_manager::provisioner::Release;
    use instance_manager::provisioner::fargate::input::Snapshot;
    let release = |scenario: &Scenario| {
        let snapshot = Snapshot { resolved: scenario.resolved.clone(), observed: scenario.observed.clone() };
        match snapshot.release(&scenario.status) {
            Release::NotNeeded(text) => text.to_owned(),
            Release::RotationInProgress(what) => format!("{what} is being replaced"),
            other => panic!("{other:?}"),
        }
    };
    let mut scenario = converged();
    assert!(release(&scenario).contains("the Keiko controller knows"));
    scenario = scenario.with_spec(OTHER);
    let plan = scenario.plan();
    scenario.apply(&plan);
    assert_eq!(
        release(&scenario),
        format!("the Fargate profile {} is being replaced", scenario.resolved.names.first_profile)
    );
    for _ in 0..4 {
        scenario.finish_eks_operations();
        let plan = scenario.plan();
        scenario.apply(&plan);
    }
    assert!(release(&scenario).contains("does not know"));
}

#[test]
fn ambiguous_group_names_never_share_profiles() {
    let foreign = |name: String| {
        let mut profile = profile(&resolved("{}"), &name, ProfileStatus::Active);
        profile.tags.iter_mut().filter(|t| t.key.ends_with("/Namespace")).for_each(|t| t.value = "other".into());
        profile
    };
    let has_conflict =
        |s: &Scenario| name_conflict(&s.observed.profiles, &s.resolved.names, &s.resolved.ownership_tags);
    let names = resolved("{}").names;
    let first = new_group("{}").with(|s| s.observed.profiles.push(foreign(names.first_profile.clone())));
    assert!(has_conflict(&first), "the group uses names with a hash");
    // A foreign profile whose name looks like a replacement of this group's profile is not a conflict.
    let similar = foreign(names.replacement_name("foreign"));
    let scenario = converged().with(|s| s.observed.profiles.push(similar));
    assert!(!has_conflict(&scenario));
    assert_eq!((scenario.step_names(), scenario.plan().outcome), (vec![], Outcome::Converged));
    // A group with a replacement profile keeps its names when another group gets the first name.
    let with_replacement = converged().with(|s| {
        s.observed.profiles[0].name = names.replacement_name("ours");
        s.status.fargate.as_mut().expect("a record").profiles = vec![names.replacement_name("ours")];
        s.observed.profiles.push(foreign(names.first_profile.clone()));
    });
    assert!(!has_conflict(&with_replacement));
    assert_eq!(with_replacement.plan().outcome, Outcome::Converged);
    assert_eq!(with_replacement.with_spec(OTHER).step_names(), ["UpdateStatus", "CreateFargateProfile"]);
}

/// A role with the group's three tags and its trust policy, as a release without the tag of the region created it for a
/// cluster of this name in a region.
fn untagged_role(r: &ResolvedGroup, region: &str) -> Role {
    Role {
        id: "AROA-1".into(),
        name: r.names.role.clone(),
        arn: r.role_arn.clone(),
        tags: r.ownership_tags.clone(),
        trust_policy: Some(r.trust_policy.replace("us-west-2", region)),
        ..Role::default()
    }
}

/// Otherwise the profile would have a role whose trust policy admits only pods of the other region.
#[test]
fn role_of_another_region_is_not_used_by_a_new_profile() {
    let found = |region: &str| {
        new_group("{}").with(|s| {
            s.observed.role = Some(untagged_role(&s.resolved, region));
            s.observed.is_role_ready = true;
        })
    };
    let other = |s: &Scenario| role_of_other_region(&s.resolved, &s.observed, &s.status).map(|other| other.to_string());
    assert_eq!(other(&found("us-west-2")), None);
    assert!(other(&found("eu-west-1")).is_some_and(|why| why.contains("eu-west-1")));
    let tagged = |region: &str| {
        found(region).with(|s| {
            let tags = iam_tags(&s.resolved.ownership_tags, region);
            s.observed.role.as_mut().expect("a role").tags = tags;
        })
    };
    assert!(other(&tagged("us-west-2")).is_none() && other(&tagged("eu-west-1")).is_some());
    let running = converged().with(|s| s.observed.role = Some(untagged_role(&s.resolved, "eu-west-1")));
    assert_eq!(other(&running), None, "its pods keep their role");
}

#[test]
fn trust_policy_of_the_own_role_is_repaired() {
    let with_trust = |trust: &str, tags: fn(&ResolvedGroup) -> Vec<Tag>| {
        converged().with(|s| {
            let trust_policy = Some(s.resolved.trust_policy.replace("fargateprofile/demo/", trust));
            let tags = tags(&s.resolved);
            s.observed.role = Some(Role { trust_policy, tags, ..untagged_role(&s.resolved, "us-west-2") });
        })
    };
    let tagged: fn(&ResolvedGroup) -> Vec<Tag> = |r| iam_tags(&r.ownership_tags, "us-west-2");
    let intact = with_trust("fargateprofile/demo/", tagged);
    assert_eq!(intact.step_names(), Vec::<&str>::new());
    let plan = with_trust("fargateprofile/renamed/", tagged).plan();
    let repair = plan.steps.iter().find_map(|planned| match &planned.step {
        Step::Iam(IamStep::UpdateTrustPolicy { role, policy }) => Some((role.clone(), policy.clone())),
        _ => None,
    });
    assert_eq!(repair, Some((intact.resolved.names.role.clone(), intact.resolved.trust_policy.clone())));
    let untagged = with_trust("fargateprofile/demo/", |r| r.ownership_tags.clone())
        .with(|s| s.status.managed.as_mut().expect("a record").role_region = None);
    assert_eq!(untagged.step_names(), ["UpdateStatus", "TagRole"], "its profile proves the region");
    let foreign = with_trust("fargateprofile/renamed/", |_| Vec::new());
    assert_eq!(foreign.step_names(), Vec::<&str>::new());
    let elsewhere = converged().with(|s| s.observed.role = Some(untagged_role(&s.resolved, "eu-west-1")));
    assert_eq!(elsewhere.step_names(), Vec::<&str>::new());
    let plan = elsewhere.plan();
    let (reason, message) = blocked(&plan);
    assert!(reason == StalledReason::OwnershipConflict && message.contains("podExecutionRoleArn"), "{message}");
}

/// EKS refuses a profile whose role does not trust it. The group would be stalled until a user repairs the role.
#[test]
fn trust_policy_is_repaired_before_the_next_profile() {
    let changed = |tags: fn(&ResolvedGroup) -> Vec<Tag>| {
        converged().with_spec(OTHER).with(|s| {
            let trust_policy = Some(s.resolved.trust_policy.replace("fargateprofile/demo/", "fargateprofile/renamed/"));
            let tags = tags(&s.resolved);
            s.observed.role = Some(Role { trust_policy, tags, ..untagged_role(&s.resolved, "us-west-2") });
        })
    };
    let own = changed(|r| iam_tags(&r.ownership_tags, "us-west-2"));
    assert_eq!(own.step_names(), ["UpdateStatus", "UpdateTrustPolicy", "CreateFargateProfile"]);
    let without_profile = |scenario: Scenario| scenario.with(|s| s.observed.profiles.clear());
    let untagged = without_profile(changed(|_| Vec::new()));
    assert_eq!(untagged.step_names(), ["UpdateStatus", "CreateFargateProfile"], "its status shows the role as its own");
    let of_another_group = without_profile(changed(|r| {
        r.ownership_tags.iter().map(|tag| Tag { key: tag.key.clone(), value: "other".into() }).collect()
    }));
    assert_eq!(blocked(&of_another_group.plan()).0, StalledReason::OwnershipConflict);
    assert!(!of_another_group.step_names().contains(&"CreateFargateProfile"));
}

#[test]
fn deletion_keeps_the_role_of_another_region() {
    let scenario = converged();
    let kept = PreviousRole {
        role: untagged_role(&scenario.resolved, "eu-west-1"),
        attached_policies: vec![scenario.resolved.managed_policy.clone()],
        inline_policies: vec![],
        other_region: Some(OtherRegion::Trusted("eu-west-1".into())),
        instance_profile: None,
    };
    let plan = deletion_plan(&scenario, &[], Some(&kept));
    assert_eq!(step_names(&plan), ["RemoveAwsAuthEntry"]);
    assert!(plan.condition_updates.iter().any(|c| c.condition_type == "ResourcesRetained"), "{plan:?}");
    let reported = scenario.with(|s| {
        s.status.conditions.push(Condition::new("ResourcesRetained", true, "UsedInOtherRegion", ""));
    });
    assert_eq!(step_names(&deletion_plan(&reported, &[], Some(&kept))), ["RemoveAwsAuthEntry", "RemoveFinalizer"]);
}

/// EKS deletes the pods with a profile, so its owner asks who deleted it.
#[test]
fn externally_deleted_profile_and_role_are_reported() {
    let ready = |s: &mut Scenario| {
        s.status.conditions =
            serde_json::from_value(serde_json::json!([{ "type": "Ready", "status": "True" }])).expect("conditions");
    };
    let deletion_events = |plan: &Plan| -> Vec<String> {
        let events = plan.events.iter().filter(|event| event.reason == "ResourceRecreated");
        events.map(|event| event.message.clone()).collect()
    };
    let gone = |s: &mut Scenario| s.observed.profiles.clear();
    let deleting = |s: &mut Scenario| s.observed.profiles[0].status = ProfileStatus::Deleting;
    let without_role = |s: &mut Scenario| (s.observed.is_role_ready, s.observed.role) = (false, None);
    assert_eq!(deletion_events(&converged().with(ready).plan()), [""; 0]);
    let none = deletion_events(&converged().with(gone).plan());
    assert_eq!(none, [""; 0], "a profile that EKS failed to create is deleted by the controller");
    for (change, words) in [
        (gone as fn(&mut Scenario), "was deleted by another client; the controller creates it again"),
        (deleting, "is being deleted by another client"),
    ] {
        let events = deletion_events(&converged().with(ready).with(change).plan());
        assert!(events.len() == 1 && events[0].starts_with("the Fargate profile "), "{events:?}");
        assert!(events[0].contains(words) && events[0].contains("DeleteFargateProfile"), "{events:?}");
    }
    let events = deletion_events(&converged().with(ready).with(without_role).plan());
    assert!(events.len() == 1 && events[0].starts_with("the role ") && events[0].contains("DeleteRole"), "{events:?}");
}

/// A group that is created without subnets gets those that EKS chooses. Pods would stay in the subnets that left the spec.
#[test]
fn subnets_that_leave_the_spec_are_chosen_by_eks_again() {
    let chosen = || vec!["subnet-1".to_owned(), "subnet-2".to_owned()];
    let mut scenario = converged().with_spec("eks-fargate: {subnets: []}");
    let without_record = scenario.clone().with(|s| s.status.fargate.as_mut().expect("a record").subnets.clear());
    assert_eq!(without_record.step_names(), [""; 0], "EKS may have chosen them");
    for _ in 0..8 {
        let plan = scenario.plan();
        scenario.apply(&plan);
        scenario.observed.profiles.iter_mut().filter(|p| p.subnets.is_empty()).for_each(|p| p.subnets = chosen());
        scenario.finish_eks_operations();
    }
    assert_eq!(scenario.plan().outcome, Outcome::Converged);
    let subnets: Vec<_> = scenario.observed.profiles.iter().map(|p| &p.subnets).collect();
    assert_eq!(subnets, [&chosen()]);
    assert!(scenario.status.fargate.as_ref().expect("a record").subnets.is_empty(), "{:?}", scenario.status.fargate);
    // The spec lists them for a while. The profile was created without a list, and another one would have the same name.
    let mut listed = scenario.with_spec("eks-fargate: {subnets: [subnet-1, subnet-2]}");
    let plan = listed.plan();
    listed.apply_records(&plan);
    assert_eq!(listed.status.fargate.as_ref().expect("a record").subnets.len(), 1);
    let again = settle(listed.with_spec("eks-fargate: {subnets: []}"));
    assert_eq!(again.plan().outcome, Outcome::Converged);
}

/// A user removed the status, or the Keiko controller created the profile. Its pods would stay in the subnets that leave
/// the spec later.
#[test]
fn subnets_that_the_spec_lists_are_recorded_without_a_creation() {
    let lost = converged().with(|s| s.status.fargate.as_mut().expect("a record").subnets.clear());
    for mut scenario in [lost, created_by_keiko()] {
        let plan = scenario.plan();
        scenario.apply_records(&plan);
        let profile = &mut scenario.observed.profiles[0];
        profile.tags.clone_from(&scenario.resolved.tags);
        let dropped = scenario.with_spec("eks-fargate: {subnets: []}");
        assert_eq!(dropped.step_names(), ["UpdateStatus", "CreateFargateProfile"]);
    }
    let chosen = converged().with_spec("eks-fargate: {subnets: [subnet-2]}").with(|s| {
        s.status.fargate.as_mut().expect("a record").subnets.clear();
        s.status.fargate.as_mut().expect("a record").adopted_hash = Some(s.resolved.hash.clone());
    });
    let record = recorded_subnets(&chosen);
    assert!(record.is_empty(), "the spec lists others than the profile has: {record:?}");
}

fn recorded_subnets(scenario: &Scenario) -> std::collections::BTreeMap<String, Vec<String>> {
    let mut after = scenario.clone();
    after.apply_records(&scenario.plan());
    after.status.fargate.expect("a record").subnets
}

/// The spec adds a tag and drops it again, and the answer of EKS is older than the tag: it would stay on the profile.
#[test]
fn dropped_tag_stays_recorded_until_eks_shows_it_or_time_has_passed() {
    let mut scenario = converged().with_spec("eks-fargate: {tags: [{owner: web, cost: a}]}");
    let plan = scenario.plan();
    scenario.apply_records(&plan);
    let mut scenario = scenario.with_spec("{}").with(|s| s.observed.unseen_tags = ["cost".to_owned()].into());
    let plan = scenario.plan();
    assert!(matches!(plan.outcome, Outcome::Progressing { .. }), "a quiet group would read an old answer: {plan:?}");
    scenario.apply_records(&plan);
    let profile = &mut scenario.observed.profiles[0];
    profile.tags.push(Tag { key: "cost".into(), value: "a".into() });
    scenario.observed.unseen_tags.clear();
    assert!(scenario.step_names().contains(&"UntagFargateProfile"), "{:?}", scenario.step_names());
    let gone = scenario.with(|s| s.observed.profiles[0].tags.retain(|tag| tag.key != "cost"));
    assert_eq!(gone.plan().outcome, Outcome::Converged);
}
