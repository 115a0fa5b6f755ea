use super::*;
use crate::aws::AccessKind;

const ROLE: &str = "arn:aws:iam::1:role/team/nodes";

#[test]
fn the_way_follows_the_flag_and_what_the_cluster_reads() {
    use JoinAuth::{AccessEntries as Access, Auto, AwsAuth, Both};
    let (config_map, either, api) = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API");
    let access = |retire| Some(Way::AccessEntries { retire });
    let aws_auth = |retire| Some(Way::AwsAuth { retire });
    let cases = [
        (config_map, [aws_auth(false), aws_auth(false), None, None]),
        (either, [Some(Way::Either), aws_auth(true), access(true), Some(Way::Both)]),
        (api, [access(false), None, access(true), access(false)]),
    ];
    for (mode, wanted) in cases {
        assert_eq!([Auto, AwsAuth, Access, Both].map(|asked| way(asked, mode).ok()), wanted, "{mode}");
    }
    let unread = way(Both, config_map).unwrap_err();
    assert!(unread.rule.contains("--join-auth is both") && unread.remedy.contains("API_AND_CONFIG_MAP"));
}

fn present(kind: &str, ours: bool) -> Access {
    Access::Present { kind: kind.into(), ours, created: None, role_id: None }
}

fn conflict() -> EntryState {
    EntryState::Conflict { detail: "another entry".into() }
}

/// A given role that another group does not use, its entry in aws-auth recorded as ours where it is there.
fn found(auth: EntryState, access: Access) -> Found {
    let auth_is_ours = auth == EntryState::Present;
    let (shared, others_have_it, role_id) = (false, true, Some("AROA2".into()));
    Found { auth_is_ours, auth, windows: false, access, shared, others_have_it, role_id }
}

fn linux() -> NewAccessEntry {
    NewAccessEntry {
        cluster: "demo".into(),
        principal: ROLE.into(),
        kind: AccessKind::Ec2Linux,
        own_role: true,
        tags: vec![],
    }
}

fn decided(way: Way, found: &Found, change: impl FnOnce(&mut Joining)) -> (Vec<&'static str>, Option<String>) {
    let entry = AuthEntry::for_nodes(ROLE, false);
    let wanted = linux();
    let mut joining = Joining {
        way,
        entry: &entry,
        wanted: &wanted,
        found,
        own_role: false,
        settled: true,
        handover: SignedDuration::from_secs(60),
        now: Timestamp::UNIX_EPOCH,
    };
    change(&mut joining);
    let joined = joining.decide();
    (joined.steps.iter().map(|p| p.step.name()).collect(), joined.conflict)
}

fn steps(way: Way, auth: EntryState, access: Access) -> Vec<&'static str> {
    decided(way, &found(auth, access), |_| ()).0
}

#[test]
fn the_new_entry_is_there_before_the_old_one_goes() {
    use EntryState::{Absent, Present};
    let moving = Way::AccessEntries { retire: true };
    assert_eq!(steps(Way::Both, Present, Access::Absent), ["PutAccessEntry"]);
    assert_eq!(steps(Way::Both, Present, present("EC2_LINUX", true)), Vec::<&str>::new());
    assert_eq!(steps(moving, Present, Access::Absent), ["PutAccessEntry"]);
    assert_eq!(steps(moving, Present, present("EC2_LINUX", true)), ["RemoveAuthEntry"]);
    assert_eq!(steps(moving, Absent, present("EC2_LINUX", true)), Vec::<&str>::new());
    // And back again.
    let back = Way::AwsAuth { retire: true };
    assert_eq!(steps(Way::Both, Absent, present("EC2_LINUX", true)), ["PutAuthEntry"]);
    assert_eq!(steps(back, Absent, present("EC2_LINUX", true)), ["PutAuthEntry"]);
    assert_eq!(steps(back, Present, present("EC2_LINUX", true)), ["RemoveAccessEntry"]);
}

#[test]
fn an_entry_that_was_there_before_us_is_used_and_never_removed() {
    use EntryState::Present;
    assert_eq!(steps(Way::AwsAuth { retire: true }, Present, present("EC2_LINUX", false)), Vec::<&str>::new());
    let foreign = Found { auth_is_ours: false, ..found(Present, present("EC2_LINUX", true)) };
    let moving = Way::AccessEntries { retire: true };
    assert_eq!(decided(moving, &foreign, |_| ()).0, Vec::<&str>::new());
    // The entry of a group's own role is the group's, whoever wrote it.
    assert_eq!(decided(moving, &foreign, |j| j.own_role = true).0, ["RemoveAuthEntry"]);
}

#[test]
fn the_old_entry_stays_while_another_group_has_no_other_one_or_the_new_one_is_young() {
    let moving = Way::AccessEntries { retire: true };
    let alone = found(EntryState::Present, present("EC2_LINUX", true));
    let others = Found { others_have_it: false, ..alone.clone() };
    assert_eq!(decided(moving, &others, |_| ()).0, Vec::<&str>::new());
    let made =
        Access::Present { kind: "EC2_LINUX".into(), ours: true, created: Some(Timestamp::UNIX_EPOCH), role_id: None };
    let young = Found { access: made, ..alone };
    assert_eq!(decided(moving, &young, |_| ()).0, Vec::<&str>::new());
    let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60);
    assert_eq!(decided(moving, &young, |j| j.now = later).0, ["RemoveAuthEntry"]);
}

#[test]
fn auto_leaves_a_role_the_entry_that_it_has_and_gives_a_new_one_an_access_entry() {
    use EntryState::{Absent, Present};
    let auto = Way::Either;
    assert_eq!(steps(auto, Absent, Access::Absent), ["PutAccessEntry"]);
    assert_eq!(steps(auto, Absent, present("EC2_LINUX", false)), Vec::<&str>::new());
    assert_eq!(steps(auto, Present, Access::Unasked), Vec::<&str>::new());
    assert!(!auto.looks(&Present, false, false) && auto.looks(&Absent, false, false));
    // What we put into aws-auth and somebody took out comes back there, whatever else the controller may do.
    let lost = Found { auth_is_ours: true, ..found(Absent, Access::Unasked) };
    assert!(!auto.looks(&Absent, true, false));
    assert_eq!(decided(auto, &lost, |_| ()).0, ["PutAuthEntry"]);
    // An access entry counts, whatever aws-auth says.
    assert_eq!(decided(auto, &found(conflict(), present("EC2_LINUX", false)), |_| ()), (vec![], None));
    assert!(decided(auto, &found(conflict(), Access::Absent), |_| ()).1.is_some());
}

#[test]
fn an_entry_of_a_wrong_type_is_a_conflict_unless_it_is_ours_alone() {
    let access = Way::AccessEntries { retire: false };
    let of = |kind: &str, ours| found(EntryState::Absent, present(kind, ours));
    let (steps, told) = decided(access, &of("STANDARD", false), |_| ());
    assert!(steps.is_empty());
    let told = told.expect("a conflict");
    assert!(["STANDARD", "EC2_LINUX", ROLE, "demo", "delete it"].iter().all(|w| told.contains(w)), "{told}");
    assert_eq!(decided(access, &of("FARGATE_LINUX", true), |_| ()).0, ["RemoveAccessEntry", "PutAccessEntry"]);
    let shared = Found { shared: true, ..of("FARGATE_LINUX", true) };
    assert!(decided(access, &shared, |_| ()).1.is_some());
    assert_eq!(decided(access, &of("EC2_WINDOWS", false), |_| ()), (vec![], None), "it admits Linux nodes too");
    assert!(!AccessKind::Ec2Windows.admits("EC2_LINUX"));
}

/// What a group of nodes of a kind does for its role, the type that it puts, and which entry it tells that it has.
fn of_kind(kind: AccessKind, found: &Found) -> (Joined, Option<AccessKind>, Option<String>) {
    let entry = AuthEntry::for_nodes(ROLE, kind == AccessKind::Ec2Windows);
    let (cluster, principal) = ("demo".into(), ROLE.into());
    let wanted = NewAccessEntry { cluster, principal, kind, own_role: false, tags: vec![] };
    let joining = Joining {
        way: Way::Both,
        entry: &entry,
        wanted: &wanted,
        found,
        own_role: false,
        settled: true,
        handover: SignedDuration::ZERO,
        now: Timestamp::UNIX_EPOCH,
    };
    let joined = joining.decide();
    let put = joined.steps.iter().find_map(|p| match &p.step {
        Step::Join(JoinStep::PutAccessEntry(entry)) => Some(entry.kind),
        _ => None,
    });
    let told = joining.told(None).and_then(|join| join.access_entry);
    (joined, put, told)
}

/// An access entry overrides the entry in aws-auth at once: Windows nodes would be turned away.
#[test]
fn windows_nodes_that_share_their_role_with_linux_nodes_keep_their_way_in() {
    use AccessKind::{Ec2Linux, Ec2Windows};
    let role =
        |windows, access| Found { windows, shared: true, others_have_it: false, ..found(EntryState::Present, access) };
    let put = |kind, windows, access| of_kind(kind, &role(windows, access)).1;
    assert_eq!(put(Ec2Linux, true, Access::Absent), Some(Ec2Windows), "aws-auth says that Windows nodes join by it");
    assert_eq!(put(Ec2Linux, false, Access::Absent), Some(Ec2Linux));
    let linux = |ours| present("EC2_LINUX", ours);
    assert_eq!(put(Ec2Windows, false, linux(true)), Some(Ec2Windows), "it lets in Linux nodes too");
    assert_eq!(put(Ec2Linux, true, linux(true)), Some(Ec2Windows));
    assert_eq!(put(Ec2Linux, false, present("EC2_WINDOWS", true)), None);
    let foreign = role(true, linux(false));
    let (joined, put, told) = of_kind(Ec2Linux, &foreign);
    assert_eq!((joined.steps.len(), joined.conflict, put, told), (0, None, None, Some("EC2_LINUX".into())));
    let (joined, put, told) = of_kind(Ec2Windows, &foreign);
    assert!(joined.steps.is_empty() && joined.conflict.is_some(), "nobody may take what others made");
    assert_eq!((put, told), (None, None));
}

/// Else the entry in aws-auth, by which alone the nodes join, would be taken for one that nobody needs.
#[test]
fn an_entry_by_which_no_node_of_the_group_joins_does_not_count() {
    let told = |kind, found: &str| {
        of_kind(kind, &crate::auth::access_entries::tests::found(EntryState::Present, present(found, false))).2
    };
    assert_eq!(told(AccessKind::Ec2Linux, "STANDARD"), None);
    assert_eq!(told(AccessKind::Ec2Windows, "EC2_LINUX"), None);
    assert_eq!(told(AccessKind::Ec2Linux, "EC2_WINDOWS"), Some("EC2_WINDOWS".into()));
}

#[test]
fn an_entry_for_a_role_that_was_made_again_is_made_again() {
    let of =
        |id: &str, ours| Access::Present { kind: "EC2_LINUX".into(), ours, created: None, role_id: Some(id.into()) };
    let way = Way::AccessEntries { retire: false };
    assert_eq!(steps(way, EntryState::Absent, of("AROA2", true)), Vec::<&str>::new());
    assert_eq!(steps(way, EntryState::Absent, of("AROA1", true)), ["RemoveAccessEntry", "PutAccessEntry"]);
    assert_eq!(steps(way, EntryState::Absent, of("AROA1", false)), Vec::<&str>::new());
    let unknown = Found { role_id: None, ..found(EntryState::Absent, of("AROA1", true)) };
    assert_eq!(decided(way, &unknown, |_| ()).0, Vec::<&str>::new());
}

#[test]
fn a_role_that_iam_does_not_know_yet_waits() {
    let nothing = found(EntryState::Absent, Access::Absent);
    let waits = decided(Way::AccessEntries { retire: false }, &nothing, |j| j.settled = false);
    assert_eq!(waits, (vec![], None));
}

/// Else a removal that fails on the way would leave the role outside for good.
#[test]
fn the_role_is_remembered_once_its_own_entry_was_seen() {
    let entry = AuthEntry::for_nodes(ROLE, false);
    let wanted = linux();
    let told = |of: Option<&str>| {
        let access =
            Access::Present { kind: "EC2_LINUX".into(), ours: true, created: None, role_id: of.map(str::to_owned) };
        let joining = Joining {
            way: Way::AccessEntries { retire: false },
            entry: &entry,
            wanted: &wanted,
            found: &found(EntryState::Absent, access),
            own_role: true,
            settled: true,
            handover: SignedDuration::ZERO,
            now: Timestamp::UNIX_EPOCH,
        };
        joining.told(None).and_then(|join| join.role_id)
    };
    assert_eq!(told(Some("AROA1")), None);
    assert_eq!((told(Some("AROA2")), told(None)), (Some("AROA2".into()), Some("AROA2".into())));
}

#[test]
fn only_tags_of_this_cluster_prove_that_an_entry_is_ours() {
    let tags = |cluster: &str| -> Vec<Tag> {
        let pairs = [(tag::CLUSTER_NAME, cluster), (tag::INSTANCE_GROUP, "web"), (tag::NAMESPACE, "team")];
        pairs.map(|(key, value)| Tag { key: key.into(), value: value.into() }).into()
    };
    assert!(ours(&tags("demo"), "demo") && !ours(&tags("other"), "demo") && !ours(&tags("demo")[..2], "demo"));
}
