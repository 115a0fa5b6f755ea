//! The provisioner `eks-fargate`: profiles, their role, and the line before EKS.

use instance_manager::api::FargateStatus;
use instance_manager::api::spec_error::Problem;
use instance_manager::api::{InstanceGroupStatus, decode_spec};
use instance_manager::auth::access_entries::{Access, Found, Way};
use instance_manager::auth::aws_auth::EntryState;
use instance_manager::aws::fargate::{FargateProfile, NewFargateProfile, ProfileStatus, RouteTable};
use instance_manager::aws::{NetworkObject, Role, Tag};
use instance_manager::index::groups::Queue;
use instance_manager::plan::FargateStep;
use instance_manager::plan::{IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, Planned, Reason, Step};
use instance_manager::provisioner::fargate::input::Input;
use instance_manager::provisioner::fargate::observed::{FormerRole, State, remembered_role, taken};
use instance_manager::provisioner::fargate::ownership::{Evidence, Left};
use instance_manager::provisioner::fargate::plan::plan;
use instance_manager::provisioner::fargate::resolve::{self, Environment, Resolved, public, resolve};
use instance_manager::provisioner::fargate::{delete, desired};
use instance_manager::settings::Timing;
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::Value;

use super::{NOW, at, common, hold, overlay};

const OTHER: &str = "eks-fargate: {selectors: [{namespace: team}, {namespace: prod-*}]}";

/// The shortest spec that stands for a complete group; `extra` is laid over `spec`.
fn resolved(extra: &str) -> Resolved {
    let base = "{provisioner: eks-fargate, strategy: {type: managed}, eks-fargate: {clusterName: demo, subnets: [subnet-1], selectors: [{namespace: team}], tags: [{owner: web}]}}";
    let mut spec: Value = serde_yaml::from_str(base).expect("YAML");
    overlay(&mut spec, &serde_yaml::from_str(extra).expect("YAML"));
    let spec = decode_spec(&spec).expect("a spec");
    let id = common::group_id(3, at(super::LONG_AGO));
    resolve(desired::parse(&id, &spec).expect("a group"), &environment(), false).expect("it resolves")
}

fn environment() -> Environment {
    let subnet = |id: &str| NetworkObject {
        id: id.into(),
        name: Some(format!("name-of-{id}")),
        vpc: "vpc-1".into(),
        zone: None,
    };
    Environment {
        cluster: Some(common::cluster()),
        subnets: vec![subnet("subnet-1"), subnet("subnet-2")],
        elsewhere: vec![],
    }
}

fn profile(r: &Resolved, name: &str, status: ProfileStatus) -> FargateProfile {
    FargateProfile {
        name: name.into(),
        arn: format!("arn:aws:eks:us-west-2:1:fargateprofile/demo/{name}/1"),
        role_arn: r.role_arn.clone(),
        subnets: r.subnets.clone(),
        selectors: r.wanted.selectors.clone(),
        status,
        issues: vec![],
        tags: r.tags.clone(),
    }
}

/// A group, and how it is planned.
#[derive(Clone, Debug)]
struct World {
    resolved: Resolved,
    state: State,
    status: InstanceGroupStatus,
    lock: Option<&'static str>,
    after: Option<&'static str>,
    now: jiff::Timestamp,
}

impl World {
    fn plan(&self) -> Plan {
        let World { resolved, state, status, lock, now, .. } = self;
        plan(&Input { resolved, state, status, lock: *lock, retention: 2, timing: &Timing::default(), now: *now })
    }

    fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    /// The same group with another spec.
    fn wants(self, extra: &str) -> Self {
        self.with(|w| w.resolved = resolved(extra))
    }

    fn names(&self) -> Vec<&'static str> {
        self.plan().steps.iter().map(|p| p.step.name()).collect()
    }

    /// What the status is once a plan has been applied.
    fn remember(&mut self, plan: &Plan) {
        let mut status = serde_json::json!(self.status);
        for (key, value) in &plan.facts.status {
            status[key] = value.clone();
        }
        self.status = serde_json::from_value(status).expect("a status");
    }

    /// Does what a plan says, as EKS would do it at once.
    fn apply(&mut self, plan: &Plan) {
        self.remember(plan);
        for Planned { step, .. } in &plan.steps {
            match step {
                Step::Object(ObjectStep::AddFinalizer) => self.resolved.wanted.id.finalizer = true,
                Step::Iam(IamStep::CreateRole(new)) => {
                    self.state.role = Some(Role {
                        id: "AROA-1".into(),
                        name: new.name.clone(),
                        arn: self.resolved.role_arn.clone(),
                        tags: new.tags.clone(),
                    });
                }
                Step::Iam(IamStep::AttachPolicy { .. }) => self.state.role_ready = true,
                Step::Join(JoinStep::PutAuthEntry(_)) => {
                    (self.state.join.auth, self.state.join.auth_is_ours) = (EntryState::Present, true)
                }
                Step::Fargate(FargateStep::CreateFargateProfile(new)) => self.create(new),
                Step::Fargate(FargateStep::DeleteFargateProfile { profile, .. }) => {
                    self.set(profile, ProfileStatus::Deleting)
                }
                Step::Fargate(FargateStep::TagFargateProfile { profile, tags, .. }) => {
                    let found = self.state.profiles.iter_mut().find(|p| p.name == *profile).expect("a profile");
                    found.tags.retain(|t| tags.iter().all(|new| new.key != t.key));
                    found.tags.extend(tags.iter().cloned());
                }
                Step::Fargate(FargateStep::UntagFargateProfile { profile, keys, .. }) => {
                    let found = self.state.profiles.iter_mut().find(|p| p.name == *profile).expect("a profile");
                    found.tags.retain(|t| !keys.contains(&t.key));
                }
                Step::Object(ObjectStep::Record { .. }) => {}
                other => panic!("{} is not expected", other.name()),
            }
        }
    }

    fn create(&mut self, new: &NewFargateProfile) {
        let changing = [ProfileStatus::Creating, ProfileStatus::Deleting];
        assert!(self.state.profiles.iter().all(|p| !changing.contains(&p.status)), "EKS makes one at a time");
        assert!(self.state.profiles.iter().all(|p| p.name != new.name), "{} is there", new.name);
        assert!(new.name.len() <= 100);
        self.state.profiles.push(FargateProfile {
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
        self.state.profiles.iter_mut().find(|p| p.name == name).expect("a profile").status = status;
    }

    /// EKS goes on: what is being made is there, what is being deleted is gone.
    fn time_passes(&mut self) {
        self.now += SignedDuration::from_secs(30);
        self.state.profiles.retain(|p| p.status != ProfileStatus::Deleting);
        for profile in self.state.profiles.iter_mut().filter(|p| p.status == ProfileStatus::Creating) {
            profile.status = ProfileStatus::Active;
        }
    }

    fn serves(&self, namespace: &str) -> bool {
        let active = self.state.profiles.iter().filter(|p| p.status == ProfileStatus::Active);
        active.flat_map(|p| &p.selectors).any(|s| s.namespace == namespace)
    }
}

/// Nothing has been made.
fn fresh(extra: &str) -> World {
    let state = State {
        profiles: vec![],
        role_ready: false,
        role: None,
        join: Found {
            auth: EntryState::Absent,
            auth_is_ours: false,
            windows: false,
            access: Access::Unasked,
            shared: false,
            others_have_it: true,
            role_id: None,
        },
        former_auth: vec![],
        kept_auth: vec![],
        kept_access: vec![],
        former_access: vec![],
        former_role: None,
        derived_role_shared: false,
        tagging_rests: false,
        queue: Queue::default(),
    };
    let status = InstanceGroupStatus::default();
    World { resolved: resolved(extra), state, status, lock: None, after: None, now: at(NOW) }
}

/// A converged group.
fn plain() -> World {
    let mut world = fresh("{}");
    for _ in 0..8 {
        let plan = world.plan();
        world.apply(&plan);
        world.time_passes();
    }
    assert_eq!(world.plan().outcome, Outcome::Converged);
    world
}

/// What the original made: no tags of ours, no status of ours.
fn originals() -> World {
    plain().with(|w| {
        w.status = InstanceGroupStatus::default();
        let made = &mut w.state.profiles[0];
        made.tags = vec![Tag { key: "owner".into(), value: "web".into() }];
        w.state.role.as_mut().expect("a role").tags.clear();
    })
}

fn blocked(plan: &Plan) -> (Reason, &str) {
    match &plan.outcome {
        Outcome::Blocked { reason, message, .. } => (*reason, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn plans_are_what_the_golden_files_hold() {
    let ready = |w: &mut World| {
        w.state.role_ready = true;
        w.state.join.auth = EntryState::Present;
    };
    let second = |w: &mut World| {
        let name = w.resolved.names.generation(&w.resolved.hash);
        let new = profile(&w.resolved, &name, ProfileStatus::Active);
        w.state.profiles.push(new);
    };
    for (name, world) in [
        ("fargate-role-first", fresh("{}").with(|w| w.resolved.wanted.id.finalizer = false)),
        ("fargate-create", fresh("{}").with(ready)),
        ("fargate-given-role", fresh("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/path/given'}")),
        ("fargate-its-turn-comes-later", fresh("{}").with(ready).with(|w| w.state.queue.ahead = 2)),
        ("fargate-converged", plain()),
        ("fargate-tags-in-place", plain().wants("eks-fargate: {tags: [{team: a}]}")),
        ("fargate-other-selectors", plain().wants(OTHER)),
        ("fargate-the-older-one-goes", plain().wants(OTHER).with(second)),
        ("fargate-taken-over", originals()),
        ("fargate-taken-over-with-differences", originals().wants(OTHER)),
    ] {
        hold(name, &world.plan());
    }
}

#[test]
fn a_change_of_selectors_leaves_no_pod_without_a_profile() {
    let mut world = plain().wants(OTHER);
    let mut told = Vec::new();
    for _ in 0..8 {
        let plan = world.plan();
        told.extend(plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "Record"));
        world.apply(&plan);
        assert!(world.serves("team"), "{told:?}");
        world.time_passes();
        assert!(world.serves("team"), "{told:?}");
    }
    assert_eq!(told, ["CreateFargateProfile", "DeleteFargateProfile"]);
    assert_eq!(world.plan().outcome, Outcome::Converged);
    assert_eq!((world.state.profiles.len(), world.serves("prod-*")), (1, true));
    assert_eq!(world.status.fargate.clone().unwrap_or_default().waiting_since, None);
    assert_eq!(world.status.active_scaling_group_name.as_ref(), Some(&world.state.profiles[0].name));
}

#[test]
fn a_lock_holds_the_deletion_of_the_older_profile_and_not_the_new_one() {
    let mut world = plain().wants(OTHER).with(|w| w.lock = Some("the InstanceGroup"));
    assert_eq!(world.names(), ["Record", "CreateFargateProfile"]);
    let plan = world.plan();
    world.apply(&plan);
    world.time_passes();
    let plan = world.plan();
    assert!(matches!(plan.outcome, Outcome::Locked { .. }) && plan.steps.is_empty(), "{plan:?}");
    world.remember(&plan);
    assert_eq!(world.status.fargate.clone().unwrap_or_default().waiting_since, None, "it lets others pass");
    world.lock = None;
    assert_eq!(world.names(), ["Record", "DeleteFargateProfile"]);
    assert!(world.plan().steps.iter().any(|p| p.step.disrupts()));
}

#[test]
fn who_waits_for_its_turn_asks_eks_for_nothing_and_keeps_its_place() {
    let mut world = plain().wants(OTHER).with(|w| w.state.queue.ahead = 1);
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{plan:?}");
    let Outcome::Progressing { message, .. } = &plan.outcome else { panic!("{plan:?}") };
    assert!(message.contains("1 before it"), "{message}");
    world.remember(&plan);
    let since = world.status.fargate.clone().unwrap_or_default().waiting_since;
    assert_eq!(since, Some(world.now.to_string()));
    world.now += SignedDuration::from_mins(9);
    world.state.queue.ahead = 0;
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(world.status.fargate.clone().unwrap_or_default().waiting_since, since, "while EKS is at work");
}

#[test]
fn a_profile_that_failed_is_made_again_after_a_pause_and_with_another_token() {
    let token = |plan: &Plan| {
        plan.steps.iter().find_map(|p| match &p.step {
            Step::Fargate(FargateStep::CreateFargateProfile(new)) => Some(new.token.clone()),
            _ => None,
        })
    };
    let mut world = fresh("{}").with(|w| w.state.role_ready = true);
    let plan = world.plan();
    let first = token(&plan).expect("it is made");
    world.apply(&plan);
    world.state.profiles[0].status = ProfileStatus::CreateFailed;
    world.state.profiles[0].issues = vec!["AccessDenied: no".into()];
    let plan = world.plan();
    let (reason, message) = blocked(&plan);
    assert_eq!(reason, Reason::ProfileFailed);
    assert!(message.contains("AccessDenied: no") && plan.steps.is_empty(), "{message}");
    let wake = plan.wake.expect("it is tried again");
    world.remember(&plan);
    assert_eq!(world.plan().wake, Some(wake), "looking at it does not push the moment away");
    world.now = wake;
    let plan = world.plan();
    assert!(
        plan.steps
            .iter()
            .any(|p| matches!(p.step, Step::Fargate(FargateStep::DeleteFargateProfile { serves: false, .. })))
    );
    world.apply(&plan);
    world.time_passes();
    let plan = world.plan();
    assert_ne!(token(&plan), Some(first));
    world.apply(&plan);
    world.time_passes();
    let plan = world.plan();
    world.remember(&plan);
    assert_eq!(plan.outcome, Outcome::Converged);
    assert_eq!(world.status.fargate.clone().unwrap_or_default().failures, None);
}

#[test]
fn a_failed_profile_that_nobody_wants_any_more_waits_for_nothing() {
    let mut world = plain();
    let unwanted = profile(&resolved(OTHER), &world.resolved.names.generation("x"), ProfileStatus::CreateFailed);
    world.state.profiles.push(unwanted);
    assert_eq!(world.names(), ["Record", "DeleteFargateProfile"]);
    assert!(!world.plan().steps.iter().any(|p| p.step.disrupts()), "no pod runs by it");
}

#[test]
fn what_cannot_be_deleted_is_told_and_tried_again() {
    let world = plain().with(|w| {
        let old = profile(&resolved(OTHER), &w.resolved.names.generation("x"), ProfileStatus::DeleteFailed);
        w.state.profiles.push(old);
    });
    let plan = world.plan();
    assert_eq!(blocked(&plan).0, Reason::ProfileFailed);
    assert!(plan.wake.is_some() && plan.steps.is_empty());
}

#[test]
fn a_profile_of_the_name_that_nothing_proves_ours_is_left_alone() {
    let stranger = originals().with(|w| w.state.profiles[0].role_arn = "arn:aws:iam::1:role/theirs".into());
    let plan = stranger.plan();
    assert_eq!(blocked(&plan).0, Reason::NotOurs);
    assert!(plan.steps.is_empty());
    let role = fresh("{}").with(|w| {
        let arn = w.resolved.role_arn.clone();
        w.state.role = Some(Role { id: "AROA-2".into(), name: w.resolved.names.role.clone(), arn, tags: vec![] });
    });
    assert_eq!(blocked(&role.plan()).0, Reason::NotOurs);
    assert_eq!(role.names(), ["Record", "PutAuthEntry"]);
}

#[test]
fn what_was_taken_over_stays_until_something_else_is_wanted() {
    let mut world = originals().wants(OTHER);
    for _ in 0..4 {
        let plan = world.plan();
        // The role's own tags are beside the point here.
        world.remember(&plan);
        for Planned { step, .. } in &plan.steps {
            assert!(!matches!(
                step,
                Step::Fargate(FargateStep::CreateFargateProfile(_))
                    | Step::Fargate(FargateStep::DeleteFargateProfile { .. })
            ));
            if let Step::Fargate(FargateStep::TagFargateProfile { tags, .. }) = step {
                world.state.profiles[0].tags.extend(tags.iter().cloned());
                world.state.role.as_mut().expect("a role").tags.clone_from(tags);
            }
        }
    }
    assert_eq!(world.plan().outcome, Outcome::Converged);
    let changed = world.wants("eks-fargate: {selectors: [{namespace: elsewhere}]}");
    assert_eq!(changed.names(), ["Record", "CreateFargateProfile"]);
}

#[test]
fn without_the_right_to_tag_the_takeover_is_tried_again_and_nothing_is_deleted() {
    let mut world = originals();
    let plan = world.plan();
    world.remember(&plan);
    assert_eq!(world.names(), ["TagFargateProfile", "TagRole"]);
    world.state.tagging_rests = true;
    assert_eq!((world.names(), world.plan().outcome), (vec![], Outcome::Converged));
    let mut world = world.wants(OTHER);
    let plan = world.plan();
    world.apply(&plan);
    world.time_passes();
    assert_eq!(blocked(&world.plan()).0, Reason::NotOurs, "the older one is not provably ours");
}

/// Else every pass would ask AWS for what it refuses, many times a second.
#[test]
fn tags_that_aws_refuses_are_told_and_rest_while_everything_else_goes_on() {
    let mut world = plain().wants("eks-fargate: {tags: [{owner: other}]}");
    assert!(world.names().contains(&"TagFargateProfile"));
    world.state.tagging_rests = true;
    let plan = world.plan();
    assert_eq!(plan.steps, [], "nothing is written without a difference that can be made");
    let (reason, message) = blocked(&plan);
    assert!(reason == Reason::MissingPermission && message.contains("not eks:TagResource;"), "{message}");
    let older = profile(&resolved(OTHER), &world.resolved.names.generation("x"), ProfileStatus::Active);
    world.state.profiles.push(older);
    assert_eq!(world.names(), ["Record", "DeleteFargateProfile"]);
    let mut world = plain().wants("eks-fargate: {tags: []}");
    assert!(world.names().contains(&"UntagFargateProfile"));
    world.state.tagging_rests = true;
    let plan = world.plan();
    let (_, message) = blocked(&plan);
    assert!(plan.steps.is_empty() && message.contains("not eks:UntagResource;"), "{message}");
}

/// Else the deletion of a group that was taken over would ask for ever, and never say what it waits for.
#[test]
fn a_deletion_that_may_not_tag_what_was_taken_over_says_so_and_rests() {
    let mut world = originals();
    world.state.profiles[0].tags.clear();
    let left = world.state.profiles.clone();
    let tries = farewell(&world, &left, None);
    assert!(tries.steps.iter().any(|p| p.step.name() == "TagFargateProfile"), "{tries:?}");
    world.state.tagging_rests = true;
    let plan = farewell(&world, &left, None);
    assert_eq!(plan.steps, []);
    assert!(blocked(&plan).1.contains("eks:TagResource"));
    assert!(matches!(plan.outcome, Outcome::Blocked { reason: Reason::MissingPermission, deleting: true, .. }));
}

/// EKS lets in the very role that an entry was made for: pods of a later one of the same name could not start. Wherever
/// the controller is killed in between, it looks at both again.
#[test]
fn a_role_that_was_made_again_gets_an_access_entry_of_its_own() {
    let entry = |of: &str| Access::Present {
        kind: "FARGATE_LINUX".into(),
        ours: true,
        created: None,
        role_id: Some(of.into()),
    };
    let mut world = plain().with(|w| {
        w.resolved.way = Way::AccessEntries { retire: false };
        (w.state.join.access, w.state.join.role_id) = (entry("AROA-1"), Some("AROA-1".into()));
    });
    let plan = world.plan();
    world.remember(&plan);
    let arn = world.resolved.role_arn.clone();
    assert_eq!(remembered_role(&world.status, &arn).map(String::as_str), Some("AROA-1"), "it costs no call in quiet");
    assert_eq!(remembered_role(&world.status, "arn:aws:iam::1:role/given"), None);
    (world.state.role_ready, world.state.role, world.state.join.role_id) = (false, None, None);
    let plan = world.plan();
    let forgets = plan.steps.iter().position(|p| match &p.step {
        Step::Object(ObjectStep::Record { status }) => status["join"].get("roleId").is_some_and(Value::is_null),
        _ => false,
    });
    let makes = plan.steps.iter().position(|p| matches!(p.step, Step::Iam(IamStep::CreateRole(_))));
    assert!(forgets.is_some() && forgets < makes, "{plan:?}");
    world.remember(&plan);
    (world.state.role_ready, world.state.join.role_id) = (true, Some("AROA-2".into()));
    let plan = world.plan();
    let names: Vec<_> = plan.steps.iter().map(|p| p.step.name()).filter(|name| *name != "Record").collect();
    assert_eq!(names, ["RemoveAccessEntry", "PutAccessEntry"]);
    world.remember(&plan);
    assert_eq!(remembered_role(&world.status, &arn), None, "until its own entry was seen");
    world.state.join.access = entry("AROA-2");
    let plan = world.plan();
    world.remember(&plan);
    assert_eq!(remembered_role(&world.status, &arn).map(String::as_str), Some("AROA-2"));
}

#[test]
fn a_role_that_is_named_takes_the_place_of_ours_which_then_goes() {
    let mut world = plain().wants("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = world.plan();
        world.apply(&plan);
        world.time_passes();
    }
    let r = resolved("{}");
    world.state.former_role = Some(FormerRole {
        role: Role { id: "AROA-1".into(), name: r.names.role.clone(), arn: r.role_arn.clone(), tags: r.ownership },
        attached: vec![r.policy],
        inline: vec![],
    });
    world.state.former_auth = vec![r.auth];
    assert_eq!(world.names(), ["RemoveAuthEntry", "DetachPolicy", "DeleteRole"]);
}

/// When all groups leave a role at once, the profiles of those that wait for their turn serve pods by it still: a record
/// that was dropped now would leave the entry for good.
#[test]
fn entries_of_a_former_role_that_other_groups_may_need_stay_on_record() {
    let old = "arn:aws:iam::1:role/old".to_owned();
    let recorded = |world: &World| {
        let managed = world.status.managed.clone().expect("a record");
        (managed.auth_entries.contains(&old), managed.access_entries.contains(&old))
    };
    let mut world = plain().wants("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = world.plan();
        world.apply(&plan);
        world.time_passes();
    }
    let managed = world.status.managed.as_mut().expect("a record");
    managed.auth_entries.push(old.clone());
    managed.access_entries.push(old.clone());
    (world.state.kept_auth, world.state.kept_access) = (vec![old.clone()], vec![old.clone()]);
    assert_eq!(world.names(), Vec::<&str>::new());
    (world.state.kept_auth, world.state.kept_access) = (vec![old.clone()], vec![]);
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(recorded(&world), (true, false));
    world.state.kept_auth = vec![];
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(recorded(&world), (false, false), "nobody needs it any more");
}

/// Its pods could start no longer.
#[test]
fn a_role_that_is_in_use_all_the_same_stays() {
    let derived = resolved("{}").role_arn;
    let former = |world: &World| {
        let r = resolved("{}");
        let role = Role { id: "AROA-1".into(), name: r.names.role, arn: r.role_arn, tags: r.ownership };
        world.clone().with(|w| {
            w.state.former_role = Some(FormerRole { role, attached: vec![r.policy], inline: vec![] });
        })
    };
    let named = plain().wants(&format!("eks-fargate: {{podExecutionRoleArn: '{derived}'}}"));
    assert_eq!(former(&named).names(), Vec::<&str>::new(), "the spec names the group's own role");
    assert_eq!(named.plan().outcome, Outcome::Converged);
    let mut other = plain().wants("eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/given'}");
    for _ in 0..4 {
        let plan = other.plan();
        other.apply(&plan);
        other.time_passes();
    }
    assert_eq!(former(&other).names(), ["DetachPolicy", "DeleteRole"]);
    other.status.managed.as_mut().expect("a record").policies = vec![other.resolved.policy.clone()];
    other.state.derived_role_shared = true;
    assert_eq!(former(&other).names(), Vec::<&str>::new(), "another group uses it");
    assert_eq!(other.names(), Vec::<&str>::new(), "it is remembered for when nobody does");
}

#[test]
fn pods_that_could_not_start_again_keep_their_profile() {
    let conflict = EntryState::Conflict { detail: "another entry".into() };
    let world = plain().wants(OTHER).with(|w| {
        let name = w.resolved.names.generation(&w.resolved.hash);
        let new = profile(&w.resolved, &name, ProfileStatus::Active);
        w.state.profiles.push(new);
        w.state.join.auth = conflict;
    });
    assert_eq!(blocked(&world.plan()).0, Reason::AuthConflict);
    assert_eq!(world.names(), Vec::<&str>::new());
}

#[test]
fn public_subnets_are_named_before_eks_is_asked() {
    let r = resolved("eks-fargate: {subnets: [subnet-1, name-of-subnet-2]}");
    let table = |main, subnets: &[&str], internet| RouteTable {
        main,
        subnets: subnets.iter().map(|s| (*s).to_owned()).collect(),
        internet,
    };
    let paths = |tables: &[RouteTable]| -> Vec<_> { public(&r, tables).into_iter().map(|p| p.value).collect() };
    assert_eq!(paths(&[]), Vec::<String>::new(), "nobody may look");
    assert_eq!(paths(&[table(true, &[], true), table(false, &["subnet-1"], false)]), ["subnet-2"]);
    assert_eq!(paths(&[table(true, &[], false), table(false, &["subnet-1"], true)]), ["subnet-1"]);
}

#[test]
fn a_role_is_for_the_profiles_of_its_cluster_alone() {
    let trust: Value = serde_json::from_str(&resolved("{}").trust).expect("JSON");
    let source = &trust["Statement"][0]["Condition"]["ArnLike"]["aws:SourceArn"];
    assert_eq!(source, "arn:aws:eks:us-west-2:1:fargateprofile/demo/*");
    let mut china = environment();
    let cluster = china.cluster.as_mut().expect("a cluster");
    cluster.arn = "arn:aws-cn:eks:cn-north-1:1:cluster/demo".into();
    cluster.authentication_mode = "API".into();
    let r = resolve::resolve(resolved("{}").wanted, &china, false).expect("it resolves");
    assert_eq!(r.policy, "arn:aws-cn:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy");
    assert_eq!(r.way, Way::AccessEntries { retire: false });
    assert_eq!(r.access.kind.as_str(), "FARGATE_LINUX");
}

fn farewell(world: &World, left: &[FargateProfile], role: Option<&FormerRole>) -> Plan {
    delete_with(world, left, role, None)
}

fn delete_with(world: &World, left: &[FargateProfile], role: Option<&FormerRole>, role_in_use: Option<&str>) -> Plan {
    let evidence = Evidence::of(world.resolved.wanted.given_role.as_deref(), false, &world.status);
    delete_by(world, left, &evidence, &[], (role, role_in_use))
}

/// The deletion of a group whose spec the admin's policy refuses.
fn delete_refused(world: &World, left: &[FargateProfile]) -> Plan {
    let rule = "is not among the namespaces that policy.fargateNamespaces allows";
    let problem = Problem::invalid("spec.eks-fargate.selectors[0].namespace", "team", rule, "name another");
    let evidence = Evidence::of(world.resolved.wanted.given_role.as_deref(), true, &world.status);
    delete_by(world, left, &evidence, &[problem.because(Reason::PolicyViolation)], (None, None))
}

fn delete_by(
    world: &World,
    left: &[FargateProfile],
    evidence: &Evidence,
    forbidden: &[Problem],
    (role, role_in_use): (Option<&FormerRole>, Option<&str>),
) -> Plan {
    let r = &world.resolved;
    let auth = [r.auth.clone()];
    delete::plan(&delete::Input {
        id: &r.wanted.id,
        cluster: "demo",
        ownership: &r.ownership,
        forbidden,
        profiles: &Left::of(left.to_vec(), &r.names, &r.ownership, evidence),
        untagged_role: None,
        tagging_rests: world.state.tagging_rests,
        role,
        role_in_use,
        auth: &auth,
        access: &[],
        after: world.after,
        queue: Queue::default(),
        status: &world.status,
        timing: &Timing::default(),
        now: world.now,
    })
}

/// A group as the original left it, which is to go after its spec was refused.
fn originals_refused(extra: &str) -> World {
    originals().wants(extra).with(|w| {
        w.resolved.wanted.id.finalizer = true;
        w.status = serde_json::from_value(serde_json::json!({ "currentState": "Error" })).expect("a status");
        w.state.profiles[0].role_arn = w.resolved.role_arn.clone();
    })
}

fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|p| p.step.name()).collect()
}

/// The refusal overwrites the only word of the original's that it made something: the pods' profile would serve for ever.
#[test]
fn what_the_original_made_goes_though_the_spec_was_refused_since() {
    let mut world = originals_refused("{}");
    let mut left = world.state.profiles.clone();
    let plan = delete_refused(&world, &left);
    assert_eq!(step_names(&plan), ["Record", "TagFargateProfile"], "{plan:?}");
    let Step::Object(ObjectStep::Record { status }) = &plan.steps[0].step else { panic!("{plan:?}") };
    world.status = serde_json::from_value(status.clone()).expect("a status");
    left[0].tags = world.resolved.ownership.clone();
    let plan = delete_refused(&world, &left);
    assert_eq!(step_names(&plan), ["DeleteFargateProfile"], "killed after the tags, it goes on: {plan:?}");
    assert_eq!(step_names(&delete_refused(&world, &[])), ["RemoveAuthEntry", "RemoveFinalizer"]);
}

#[test]
fn a_spec_that_is_refused_proves_nothing_by_the_role_that_it_names() {
    let named = "{eks-fargate: {podExecutionRoleArn: 'arn:aws:iam::1:role/pods'}}";
    for state in ["Error", "Ready"] {
        let world = originals_refused(named).with(|w| w.status.current_state = Some(state.into()));
        let left = world.state.profiles.clone();
        let plan = delete_refused(&world, &left);
        let (reason, message) = blocked(&plan);
        assert!(reason == Reason::PolicyViolation && plan.steps.is_empty(), "{plan:?}");
        assert!(message.contains(&left[0].name) && message.contains("policy.fargateNamespaces"), "{message}");
        assert_eq!(
            step_names(&farewell(&world, &left, None)),
            ["Record", "TagFargateProfile"],
            "allowed, it is believed"
        );
    }
    let world = originals_refused(named);
    let strangers = FargateProfile { role_arn: "arn:aws:iam::1:role/admin".into(), ..world.state.profiles[0].clone() };
    let tagged = FargateProfile { tags: world.resolved.ownership.clone(), ..world.state.profiles[0].clone() };
    for left in [vec![], vec![strangers], vec![tagged]] {
        let plan = delete_refused(&world, &left);
        assert_eq!(step_names(&plan), ["RemoveFinalizer"], "{plan:?}");
        assert!(plan.events.iter().any(|told| told.message.contains("nothing was made for this group")));
    }
}

/// Its tags were refused, then its spec: what we have on record is true all the same.
#[test]
fn what_was_taken_over_waits_for_its_tags_though_the_spec_was_refused_since() {
    let role = "arn:aws:iam::1:role/pods";
    let named = format!("{{eks-fargate: {{podExecutionRoleArn: '{role}'}}}}");
    let recorded = serde_json::json!({ "nodesInstanceRoleArn": role, "fargate": { "cluster": "demo" } });
    let adopted = serde_json::json!({ "nodesInstanceRoleArn": "arn:aws:iam::1:role/next", "fargate": { "cluster": "demo", "adoptedHash": "1" } });
    for status in [recorded, adopted] {
        let mut world = originals_refused(&named);
        world.status = serde_json::from_value(status).expect("a status");
        let left = world.state.profiles.clone();
        assert_eq!(step_names(&delete_refused(&world, &left)), ["TagFargateProfile"]);
        world.state.tagging_rests = true;
        let plan = delete_refused(&world, &left);
        assert!(blocked(&plan).0 == Reason::MissingPermission && plan.steps.is_empty(), "{plan:?}");
    }
}

#[test]
fn a_deletion_takes_one_profile_after_the_other_and_then_the_rest() {
    let world = plain();
    let first = world.state.profiles[0].clone();
    let second = profile(&world.resolved, &world.resolved.names.generation("x"), ProfileStatus::Active);
    hold("fargate-delete", &farewell(&world, &[first.clone(), second.clone()], None));
    let going = FargateProfile { status: ProfileStatus::Deleting, ..first };
    let plan = farewell(&world, &[going, second], None);
    assert!(plan.steps.is_empty() && matches!(plan.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }));
    let role = FormerRole {
        role: world.state.role.clone().expect("a role"),
        attached: vec![world.resolved.policy.clone()],
        inline: vec![],
    };
    hold("fargate-delete-the-rest", &farewell(&world, &[], Some(&role)));
    let kept = delete_with(&world, &[], None, Some("fargate-role"));
    let names: Vec<_> = kept.steps.iter().map(|p| p.step.name()).collect();
    assert_eq!(names, ["RemoveAuthEntry", "RemoveFinalizer"]);
    assert!(kept.events.iter().any(|told| told.warning && told.message.contains("fargate-role stays")), "{kept:?}");
    let plan = farewell(&world.clone().with(|w| w.after = Some("team/db")), &[], Some(&role));
    assert!(plan.steps.is_empty() && matches!(plan.outcome, Outcome::Progressing { phase: Phase::Deleting, .. }));
    let theirs = FormerRole { inline: vec!["theirs".into()], ..role };
    let plan = farewell(&world, &[], Some(&theirs));
    assert_eq!(blocked(&plan).0, Reason::NotOurs);
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
    fn whatever_is_wanted_when_the_end_is_one_profile_and_there_was_never_none(
        specs in prop::collection::vec((any_spec(), 1..6usize, any::<bool>()), 1..6),
    ) {
        let mut world = plain();
        for (spec, passes, fails) in specs {
            world = world.wants(spec);
            world.state.role_ready = world.resolved.own_role;
            for pass in 0..passes {
                let plan = world.plan();
                world.apply(&plan);
                if fails && pass == 0 {
                    for p in world.state.profiles.iter_mut().filter(|p| p.status == ProfileStatus::Creating) {
                        p.status = ProfileStatus::CreateFailed;
                    }
                }
                prop_assert!(world.serves("team"));
                world.time_passes();
            }
        }
        for _ in 0..60 {
            let plan = world.plan();
            world.apply(&plan);
            world.time_passes();
            prop_assert!(world.serves("team"));
        }
        let plan = world.plan();
        prop_assert_eq!(&plan.outcome, &Outcome::Converged);
        prop_assert_eq!(world.state.profiles.len(), 1);
        prop_assert!(plan.steps.is_empty());
        let left = world.status.fargate.clone().unwrap_or_default();
        prop_assert_eq!(left.profiles, vec![world.state.profiles[0].name.clone()]);
        let quiet = (left.waiting_since, left.retry_at, left.failures);
        prop_assert_eq!(quiet, (None, None, None));
    }
}

/// The status of a group that waits decodes from what a plan tells.
#[test]
fn a_status_keeps_what_guards_an_act() {
    let told = FargateStatus { cluster: Some("demo".into()), failures: Some(2), ..FargateStatus::default() };
    let status: InstanceGroupStatus = serde_json::from_value(serde_json::json!({ "fargate": told })).expect("a status");
    assert_eq!(status.fargate, Some(told));
}

#[test]
fn the_command_plan_tells_that_the_older_profile_goes_and_whether_a_lock_holds_it() {
    use instance_manager::api::ScalingConfigurationKind;
    use instance_manager::auth::JoinAuth;
    use instance_manager::provisioner::fargate::input::World as Seen;
    use instance_manager::provisioner::{Given, Seen as _, Settings};
    let world = plain().wants(OTHER);
    let settings = Settings {
        timing: Timing::default(),
        resync: std::time::Duration::from_secs(300),
        retention: 2,
        cluster_name: None,
        default_kind: ScalingConfigurationKind::LaunchTemplate,
        windows_asks_for_endpoint: false,
        join_auth: JoinAuth::Auto,
        config_namespace: "instance-manager".into(),
    };
    let foreseen = |lock| {
        let seen = Seen { resolved: world.resolved.clone(), state: world.state.clone() };
        let given = Given { status: &world.status, lock, settings: &settings, now: world.now };
        let told = seen.foresee(&world.plan(), &given);
        let names: Vec<_> = told.steps.iter().map(|p| p.step.name()).filter(|n| *n != "Record").collect();
        (names, told.outcome)
    };
    assert_eq!(foreseen(None).0, ["DeleteFargateProfile"]);
    let (names, outcome) = foreseen(Some("the InstanceGroup"));
    assert!(names.is_empty() && matches!(outcome, Outcome::Locked { .. }), "{outcome:?}");
}

#[test]
fn handback_tells_of_a_profile_that_the_original_does_not_look_for() {
    use instance_manager::provisioner::Handback;
    use instance_manager::provisioner::Seen as _;
    use instance_manager::provisioner::fargate::input::World as Seen;
    let told = |world: &World| {
        let seen = Seen { resolved: world.resolved.clone(), state: world.state.clone() };
        match seen.handback(&world.status) {
            Handback::Nothing(text) => text.to_owned(),
            Handback::Rotating(what) => format!("{what} is being replaced"),
            other => panic!("{other:?}"),
        }
    };
    let mut world = plain();
    assert!(told(&world).contains("its former controller knows"));
    world = world.wants(OTHER);
    let plan = world.plan();
    world.apply(&plan);
    assert_eq!(told(&world), format!("the Fargate profile {} is being replaced", world.resolved.names.first));
    for _ in 0..4 {
        world.time_passes();
        let plan = world.plan();
        world.apply(&plan);
    }
    assert!(told(&world).contains("does not know"));
}

#[test]
fn groups_whose_names_read_the_same_never_touch_each_others_profiles() {
    let theirs = |name: String| {
        let mut profile = profile(&resolved("{}"), &name, ProfileStatus::Active);
        profile.tags.iter_mut().filter(|t| t.key.ends_with("/Namespace")).for_each(|t| t.value = "other".into());
        profile
    };
    let taken = |w: &World| taken(&w.state.profiles, &w.resolved.names, &w.resolved.ownership);
    let names = resolved("{}").names;
    let first = fresh("{}").with(|w| w.state.profiles.push(theirs(names.first.clone())));
    assert!(taken(&first), "it goes by names with a hash");
    // What goes by such a name reads like a later profile of the group that came first.
    let beside = theirs(names.generation("theirs"));
    let world = plain().with(|w| w.state.profiles.push(beside));
    assert!(!taken(&world));
    assert_eq!((world.names(), world.plan().outcome), (vec![], Outcome::Converged));
    // And who has a later name keeps it when another group takes the first one.
    let swapped = plain().with(|w| {
        w.state.profiles[0].name = names.generation("ours");
        w.state.profiles.push(theirs(names.first.clone()));
    });
    assert!(!taken(&swapped));
    assert_eq!(swapped.plan().outcome, Outcome::Converged);
    assert_eq!(swapped.wants(OTHER).names(), ["Record", "CreateFargateProfile"]);
}
