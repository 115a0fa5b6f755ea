use super::*;
use crate::aws::AccessEntryType;

const ROLE: &str = "arn:aws:iam::1:role/team/nodes";

#[test]
fn join_method_follows_flag_and_authentication_mode() {
    use JoinAuth::{AccessEntries as Access, Auto, AwsAuth, Both};
    let (config_map, api_and_config_map, api) = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API");
    let access = |remove_other| Some(JoinMethod::AccessEntries { remove_other });
    let aws_auth = |remove_other| Some(JoinMethod::AwsAuth { remove_other });
    let cases = [
        (config_map, [aws_auth(false), aws_auth(false), None, None]),
        (api_and_config_map, [Some(JoinMethod::Either), aws_auth(true), access(true), Some(JoinMethod::Both)]),
        (api, [access(false), None, access(true), access(false)]),
    ];
    for (mode, expected) in cases {
        assert_eq!(
            [Auto, AwsAuth, Access, Both].map(|requested| join_method(requested, mode).ok()),
            expected,
            "{mode}"
        );
    }
    let error = join_method(Both, config_map).unwrap_err();
    assert!(error.rule.contains("--join-auth is both") && error.remedy.contains("API_AND_CONFIG_MAP"));
}

fn present(kind: &str, is_owned: bool) -> AccessEntryState {
    AccessEntryState::Present(RoleAccessEntry { kind: kind.into(), is_owned, created_at: None, role_id: None })
}

fn conflict() -> AuthEntryState {
    AuthEntryState::Conflict { detail: "another entry".into() }
}

/// An existing role that no other group uses; an entry in aws-auth is recorded as the controller's.
fn observed_entries(auth_entry: AuthEntryState, access_entry: AccessEntryState) -> ObservedEntries {
    let owns_auth_entry = auth_entry == AuthEntryState::Present;
    let (is_shared, peers_have_access_entry, role_id) = (false, true, Some("AROA2".into()));
    ObservedEntries {
        owns_auth_entry,
        is_auth_entry_modified: false,
        auth_entry,
        allows_windows: false,
        access_entry,
        is_shared,
        peers_have_access_entry,
        role_id,
        role_created_at: None,
    }
}

fn linux_entry() -> NewAccessEntry {
    NewAccessEntry {
        cluster: "demo".into(),
        principal: ROLE.into(),
        kind: AccessEntryType::Ec2Linux,
        own_role: true,
        tags: vec![],
    }
}

fn planned_steps(
    method: JoinMethod,
    observed: &ObservedEntries,
    change: impl FnOnce(&mut JoinPlanner),
) -> (Vec<&'static str>, Option<String>) {
    let entry = AuthEntry::for_nodes(ROLE, false);
    let access_entry = linux_entry();
    let mut planner = JoinPlanner {
        method,
        auth_entry: &entry,
        access_entry: &access_entry,
        observed,
        owns_role: false,
        role_propagated: true,
        handover_delay: SignedDuration::from_secs(60),
        now: Timestamp::UNIX_EPOCH,
    };
    change(&mut planner);
    let plan = planner.plan();
    (plan.steps.iter().map(|p| p.step.name()).collect(), plan.conflict)
}

fn steps(method: JoinMethod, auth: AuthEntryState, access: AccessEntryState) -> Vec<&'static str> {
    planned_steps(method, &observed_entries(auth, access), |_| ()).0
}

#[test]
fn new_entry_exists_before_old_entry_is_removed() {
    use AuthEntryState::{Absent, Present};
    let migrating = JoinMethod::AccessEntries { remove_other: true };
    assert_eq!(steps(JoinMethod::Both, Present, AccessEntryState::Absent), ["PutAccessEntry"]);
    assert_eq!(steps(JoinMethod::Both, Present, present("EC2_LINUX", true)), Vec::<&str>::new());
    assert_eq!(steps(migrating, Present, AccessEntryState::Absent), ["PutAccessEntry"]);
    assert_eq!(steps(migrating, Present, present("EC2_LINUX", true)), ["RemoveAwsAuthEntry"]);
    assert_eq!(steps(migrating, Absent, present("EC2_LINUX", true)), Vec::<&str>::new());
    // Migration back to aws-auth.
    let back = JoinMethod::AwsAuth { remove_other: true };
    assert_eq!(steps(JoinMethod::Both, Absent, present("EC2_LINUX", true)), ["PutAwsAuthEntry"]);
    assert_eq!(steps(back, Absent, present("EC2_LINUX", true)), ["PutAwsAuthEntry"]);
    assert_eq!(steps(back, Present, present("EC2_LINUX", true)), ["RemoveAccessEntry"]);
}

#[test]
fn preexisting_entry_is_used_and_never_removed() {
    use AuthEntryState::Present;
    assert_eq!(
        steps(JoinMethod::AwsAuth { remove_other: true }, Present, present("EC2_LINUX", false)),
        Vec::<&str>::new()
    );
    let foreign = ObservedEntries { owns_auth_entry: false, ..observed_entries(Present, present("EC2_LINUX", true)) };
    let migrating = JoinMethod::AccessEntries { remove_other: true };
    assert_eq!(planned_steps(migrating, &foreign, |_| ()).0, Vec::<&str>::new());
    // The entry of a group's own role belongs to the group, even if another writer added it.
    assert_eq!(planned_steps(migrating, &foreign, |j| j.owns_role = true).0, ["RemoveAwsAuthEntry"]);
}

#[test]
fn old_entry_stays_until_peers_migrated_and_handover_delay_passed() {
    let migrating = JoinMethod::AccessEntries { remove_other: true };
    let alone = observed_entries(AuthEntryState::Present, present("EC2_LINUX", true));
    let peers_missing = ObservedEntries { peers_have_access_entry: false, ..alone.clone() };
    assert_eq!(planned_steps(migrating, &peers_missing, |_| ()).0, Vec::<&str>::new());
    let new_entry = AccessEntryState::Present(RoleAccessEntry {
        kind: "EC2_LINUX".into(),
        is_owned: true,
        created_at: Some(Timestamp::UNIX_EPOCH),
        role_id: None,
    });
    let observed = ObservedEntries { access_entry: new_entry, ..alone };
    assert_eq!(planned_steps(migrating, &observed, |_| ()).0, Vec::<&str>::new());
    let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60);
    assert_eq!(planned_steps(migrating, &observed, |j| j.now = later).0, ["RemoveAwsAuthEntry"]);
}

#[test]
fn auto_keeps_existing_entry_and_creates_access_entries_for_new_roles() {
    use AuthEntryState::{Absent, Present};
    let auto = JoinMethod::Either;
    assert_eq!(steps(auto, Absent, AccessEntryState::Absent), ["PutAccessEntry"]);
    assert_eq!(steps(auto, Absent, present("EC2_LINUX", false)), Vec::<&str>::new());
    assert_eq!(steps(auto, Present, AccessEntryState::NotQueried), Vec::<&str>::new());
    assert!(!auto.queries_access_entry(&Present, false, false) && auto.queries_access_entry(&Absent, false, false));
    // An entry that the controller added to aws-auth and another writer removed is added to aws-auth again.
    let lost = ObservedEntries { owns_auth_entry: true, ..observed_entries(Absent, AccessEntryState::NotQueried) };
    assert!(!auto.queries_access_entry(&Absent, true, false));
    assert_eq!(planned_steps(auto, &lost, |_| ()).0, ["PutAwsAuthEntry"]);
    // An access entry takes precedence over aws-auth.
    assert_eq!(planned_steps(auto, &observed_entries(conflict(), present("EC2_LINUX", false)), |_| ()), (vec![], None));
    assert!(planned_steps(auto, &observed_entries(conflict(), AccessEntryState::Absent), |_| ()).1.is_some());
}

/// EKS reads both lists, and the access entry takes precedence.
#[test]
fn access_entry_that_overrides_aws_auth_is_a_conflict() {
    use AuthEntryState::Present;
    let found = |method, kind| planned_steps(method, &observed_entries(Present, present(kind, false)), |_| ());
    let (steps, conflict) = found(JoinMethod::Either, "STANDARD");
    assert!(steps.is_empty());
    let message = conflict.expect("a conflict");
    let words = ["STANDARD", "EC2_LINUX", ROLE, "demo", "overrides", "delete it"];
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    for (method, kind) in [(JoinMethod::Either, "EC2_LINUX"), (JoinMethod::AwsAuth { remove_other: false }, "STANDARD")]
    {
        assert_eq!(found(method, kind), (vec![], None), "{method:?} {kind}");
    }
    let not_queried = observed_entries(Present, AccessEntryState::NotQueried);
    assert_eq!(planned_steps(JoinMethod::Either, &not_queried, |_| ()), (vec![], None));
}

#[test]
fn entry_of_wrong_type_is_a_conflict_unless_owned_and_not_shared() {
    let access = JoinMethod::AccessEntries { remove_other: false };
    let observed = |kind: &str, is_owned| observed_entries(AuthEntryState::Absent, present(kind, is_owned));
    let (steps, conflict) = planned_steps(access, &observed("STANDARD", false), |_| ());
    assert!(steps.is_empty());
    let message = conflict.expect("a conflict");
    assert!(["STANDARD", "EC2_LINUX", ROLE, "demo", "delete it"].iter().all(|w| message.contains(w)), "{message}");
    assert_eq!(
        planned_steps(access, &observed("FARGATE_LINUX", true), |_| ()).0,
        ["RemoveAccessEntry", "PutAccessEntry"]
    );
    let shared = ObservedEntries { is_shared: true, ..observed("FARGATE_LINUX", true) };
    assert!(planned_steps(access, &shared, |_| ()).1.is_some());
    assert_eq!(
        planned_steps(access, &observed("EC2_WINDOWS", false), |_| ()),
        (vec![], None),
        "it also allows Linux nodes"
    );
    assert!(!AccessEntryType::Ec2Windows.allows("EC2_LINUX"));
}

/// The plan for a role with nodes of a type, the type of the entry that the plan creates, and the type in
/// `status.join`.
fn plan_for_kind(
    kind: AccessEntryType,
    observed: &ObservedEntries,
) -> (JoinPlan, Option<AccessEntryType>, Option<String>) {
    let entry = AuthEntry::for_nodes(ROLE, kind == AccessEntryType::Ec2Windows);
    let (cluster, principal) = ("demo".into(), ROLE.into());
    let access_entry = NewAccessEntry { cluster, principal, kind, own_role: false, tags: vec![] };
    let planner = JoinPlanner {
        method: JoinMethod::Both,
        auth_entry: &entry,
        access_entry: &access_entry,
        observed,
        owns_role: false,
        role_propagated: true,
        handover_delay: SignedDuration::ZERO,
        now: Timestamp::UNIX_EPOCH,
    };
    let plan = planner.plan();
    let created_kind = plan.steps.iter().find_map(|p| match &p.step {
        Step::Join(JoinStep::PutAccessEntry(entry)) => Some(entry.kind),
        _ => None,
    });
    let recorded_kind = planner.join_status(None).and_then(|join| join.access_entry);
    (plan, created_kind, recorded_kind)
}

/// An access entry overrides the entry in aws-auth at once, so one for Linux would lock out Windows nodes.
#[test]
fn windows_nodes_sharing_a_role_with_linux_nodes_can_still_join() {
    use AccessEntryType::{Ec2Linux, Ec2Windows};
    let shared_role = |allows_windows, access| ObservedEntries {
        allows_windows,
        is_shared: true,
        peers_have_access_entry: false,
        ..observed_entries(AuthEntryState::Present, access)
    };
    let created_kind = |kind, allows_windows, access| plan_for_kind(kind, &shared_role(allows_windows, access)).1;
    assert_eq!(
        created_kind(Ec2Linux, true, AccessEntryState::Absent),
        Some(Ec2Windows),
        "the entry in aws-auth allows Windows nodes"
    );
    assert_eq!(created_kind(Ec2Linux, false, AccessEntryState::Absent), Some(Ec2Linux));
    let linux_entry = |is_owned| present("EC2_LINUX", is_owned);
    assert_eq!(created_kind(Ec2Windows, false, linux_entry(true)), Some(Ec2Windows), "it also allows Linux nodes");
    assert_eq!(created_kind(Ec2Linux, true, linux_entry(true)), Some(Ec2Windows));
    assert_eq!(created_kind(Ec2Linux, false, present("EC2_WINDOWS", true)), None);
    let foreign = shared_role(true, linux_entry(false));
    let (plan, created_kind, recorded_kind) = plan_for_kind(Ec2Linux, &foreign);
    assert_eq!(
        (plan.steps.len(), plan.conflict, created_kind, recorded_kind),
        (0, None, None, Some("EC2_LINUX".into()))
    );
    let (plan, created_kind, recorded_kind) = plan_for_kind(Ec2Windows, &foreign);
    assert!(plan.steps.is_empty() && plan.conflict.is_some(), "a foreign access entry is never replaced");
    assert_eq!((created_kind, recorded_kind), (None, None));
}

/// A role that Linux and Windows groups share: the entry of the first Linux group lacks a group that Windows nodes need. So
/// does that of a group of the Keiko controller, which becomes a Windows group.
#[test]
fn own_aws_auth_entry_is_widened_for_windows_nodes() {
    let windows = AuthEntry::for_nodes(ROLE, true);
    let access_entry = NewAccessEntry { kind: AccessEntryType::Ec2Windows, ..linux_entry() };
    for method in [JoinMethod::AwsAuth { remove_other: false }, JoinMethod::Both, JoinMethod::Either] {
        for (owns_auth_entry, owns_role) in [(true, false), (false, true), (false, false)] {
            let narrow = AuthEntryState::Narrow { detail: "it lacks a group".into() };
            let observed = ObservedEntries {
                owns_auth_entry,
                is_shared: !owns_role,
                ..observed_entries(narrow, present("EC2_LINUX", false))
            };
            let planner = JoinPlanner {
                method,
                auth_entry: &windows,
                access_entry: &access_entry,
                observed: &observed,
                owns_role,
                role_propagated: true,
                handover_delay: SignedDuration::from_secs(60),
                now: Timestamp::UNIX_EPOCH,
            };
            let plan = planner.plan();
            let widens = plan.steps.iter().any(|p| p.step.name() == "WidenAwsAuthEntry");
            let is_own = owns_auth_entry || owns_role;
            assert_eq!(widens, is_own, "{method:?}: an entry of someone else stays");
            assert!(widens || plan.conflict.is_some(), "{method:?}");
            let owned: &[&str] = if is_own { &[ROLE] } else { &[] };
            assert_eq!(planner.owned_auth_entries(&plan, ROLE, &[]), owned);
        }
    }
}

/// Such an entry must not count as migrated: the controller would remove the entry in aws-auth that these nodes need.
#[test]
fn entry_that_allows_no_node_of_the_group_is_ignored() {
    let recorded_kind =
        |kind, found: &str| plan_for_kind(kind, &observed_entries(AuthEntryState::Present, present(found, false))).2;
    assert_eq!(recorded_kind(AccessEntryType::Ec2Linux, "STANDARD"), None);
    assert_eq!(recorded_kind(AccessEntryType::Ec2Windows, "EC2_LINUX"), None);
    assert_eq!(recorded_kind(AccessEntryType::Ec2Linux, "EC2_WINDOWS"), Some("EC2_WINDOWS".into()));
}

#[test]
fn entry_of_a_recreated_role_is_recreated() {
    let entry_of_role = |id: &str, is_owned| {
        AccessEntryState::Present(RoleAccessEntry {
            kind: "EC2_LINUX".into(),
            is_owned,
            created_at: None,
            role_id: Some(id.into()),
        })
    };
    let method = JoinMethod::AccessEntries { remove_other: false };
    assert_eq!(steps(method, AuthEntryState::Absent, entry_of_role("AROA2", true)), Vec::<&str>::new());
    assert_eq!(
        steps(method, AuthEntryState::Absent, entry_of_role("AROA1", true)),
        ["RemoveAccessEntry", "PutAccessEntry"]
    );
    assert_eq!(steps(method, AuthEntryState::Absent, entry_of_role("AROA1", false)), Vec::<&str>::new());
    let unknown =
        ObservedEntries { role_id: None, ..observed_entries(AuthEntryState::Absent, entry_of_role("AROA1", true)) };
    assert_eq!(planned_steps(method, &unknown, |_| ()).0, Vec::<&str>::new());
}

/// A user deletes a role whose entry EKS or a user created, and the controller creates the role again. The entry looks right,
/// and lets no node or pod in.
#[test]
fn untagged_entry_older_than_the_groups_own_role_is_recreated() {
    let at = |second| Timestamp::from_second(second).ok();
    let (kind, is_owned) = ("EC2_LINUX".to_owned(), false);
    let entry = RoleAccessEntry { kind, is_owned, created_at: at(50), role_id: None };
    let found = AccessEntryState::Present(entry);
    let method = JoinMethod::AccessEntries { remove_other: false };
    let planned = |role_created_at, owns_role| {
        let observed = ObservedEntries { role_created_at, ..observed_entries(AuthEntryState::Absent, found.clone()) };
        planned_steps(method, &observed, |planner| planner.owns_role = owns_role).0
    };
    assert_eq!(planned(at(60), true), ["RemoveAccessEntry", "PutAccessEntry"]);
    assert_eq!(planned(at(60), false), Vec::<&str>::new(), "the entry of a given role is the user's");
    assert_eq!(planned(at(50), true), Vec::<&str>::new(), "EKS created it right after the role");
    assert_eq!(planned(None, true), Vec::<&str>::new(), "the role was not read");
}

#[test]
fn role_not_yet_propagated_waits() {
    let nothing = observed_entries(AuthEntryState::Absent, AccessEntryState::Absent);
    let method = JoinMethod::AccessEntries { remove_other: false };
    assert_eq!(planned_steps(method, &nothing, |j| j.role_propagated = false), (vec![], None));
}

/// If the ID was recorded earlier, a replacement that fails after the removal would leave the role without an entry.
#[test]
fn role_id_is_recorded_once_its_entry_was_observed() {
    let entry = AuthEntry::for_nodes(ROLE, false);
    let access_entry = linux_entry();
    let recorded_role_id = |entry_role_id: Option<&str>| {
        let access = AccessEntryState::Present(RoleAccessEntry {
            kind: "EC2_LINUX".into(),
            is_owned: true,
            created_at: None,
            role_id: entry_role_id.map(str::to_owned),
        });
        let planner = JoinPlanner {
            method: JoinMethod::AccessEntries { remove_other: false },
            auth_entry: &entry,
            access_entry: &access_entry,
            observed: &observed_entries(AuthEntryState::Absent, access),
            owns_role: true,
            role_propagated: true,
            handover_delay: SignedDuration::ZERO,
            now: Timestamp::UNIX_EPOCH,
        };
        planner.join_status(None).and_then(|join| join.role_id)
    };
    assert_eq!(recorded_role_id(Some("AROA1")), None);
    assert_eq!((recorded_role_id(Some("AROA2")), recorded_role_id(None)), (Some("AROA2".into()), Some("AROA2".into())));
}

/// If aws-auth was broken shortly before, a deletion would wrongly treat the entry as absent and leave it behind.
#[test]
fn entry_stays_recorded_while_aws_auth_cannot_be_parsed() {
    let (entry, access_entry) = (AuthEntry::for_nodes(ROLE, false), linux_entry());
    let recorded = |auth_entry: AuthEntryState, old: bool| {
        let planner = JoinPlanner {
            method: JoinMethod::Either,
            auth_entry: &entry,
            access_entry: &access_entry,
            observed: &observed_entries(auth_entry, AccessEntryState::Absent),
            owns_role: true,
            role_propagated: true,
            handover_delay: SignedDuration::ZERO,
            now: Timestamp::UNIX_EPOCH,
        };
        let old = JoinStatus { aws_auth: old, ..JoinStatus::default() };
        planner.join_status(Some(&old)).map(|join| join.aws_auth)
    };
    let broken = || AuthEntryState::Unparsable { detail: "line 3".into() };
    assert_eq!((recorded(broken(), true), recorded(broken(), false)), (Some(true), Some(false)));
    assert_eq!(recorded(AuthEntryState::Absent, true), Some(false));
}

#[test]
fn only_tags_of_this_cluster_prove_ownership() {
    let tags = |cluster: &str| -> Vec<Tag> {
        let pairs = [(tag::CLUSTER_NAME, cluster), (tag::INSTANCE_GROUP, "web"), (tag::NAMESPACE, "team")];
        pairs.map(|(key, value)| Tag { key: key.into(), value: value.into() }).into()
    };
    assert!(
        is_owned_by_cluster(&tags("demo"), "demo")
            && !is_owned_by_cluster(&tags("other"), "demo")
            && !is_owned_by_cluster(&tags("demo")[..2], "demo")
    );
}

/// An entry with a key of another client stays. Its removal would be planned again at once, forever.
#[test]
fn modified_entry_is_not_removed() {
    let entry = present("EC2_LINUX", true);
    let observed = observed_entries(AuthEntryState::Present, entry);
    let modified = ObservedEntries { is_auth_entry_modified: true, ..observed.clone() };
    let plan_with = |method: JoinMethod, observed: &ObservedEntries| {
        let (auth_entry, access_entry) = (AuthEntry::for_nodes(ROLE, false), linux_entry());
        let planner = JoinPlanner {
            method,
            auth_entry: &auth_entry,
            access_entry: &access_entry,
            observed,
            owns_role: true,
            role_propagated: true,
            handover_delay: SignedDuration::ZERO,
            now: Timestamp::UNIX_EPOCH,
        };
        let plan = planner.plan();
        (plan.steps.len(), planner.owned_auth_entries(&plan, ROLE, &[ROLE.to_owned()]))
    };
    let plan_of = |observed: &ObservedEntries| plan_with(JoinMethod::AccessEntries { remove_other: true }, observed);
    assert_eq!(plan_of(&observed), (1, vec![ROLE.to_owned()]));
    assert_eq!(plan_of(&modified), (0, vec![]), "the record ends, too");
    assert_eq!(plan_with(JoinMethod::Both, &modified), (0, vec![ROLE.to_owned()]), "nodes join through it");
}
