//! Edits of aws-auth leave what others wrote byte for byte as it was.

use instance_manager::auth::aws_auth::{
    AuthEntry, AuthProblem, CONFIG_MAP_LIMIT, EntryState, changed, is_among, near_limit, put, remove, state,
    without_path,
};
use proptest::prelude::*;

const ARN: &str = "arn:aws:iam::123456789012:role/bench-tenant-a-plain";
const OURS: &str = "- rolearn: arn:aws:iam::123456789012:role/bench-tenant-a-plain
  username: system:node:{{EC2PrivateDNSName}}
  groups:
  - system:bootstrappers
  - system:nodes
";

fn ours() -> AuthEntry {
    AuthEntry::for_nodes(ARN, false)
}

fn put_one(text: &str) -> Result<Option<String>, AuthProblem> {
    put(Some(text), &[ours()])
}

fn added(text: &str) -> String {
    put_one(text).unwrap_or_else(|error| panic!("{text:?}: {error}")).unwrap()
}

fn indented(text: &str, indent: &str) -> String {
    text.lines().map(|line| format!("{indent}{line}\n")).collect()
}

#[test]
fn only_roles_whose_entry_differs_are_changed() {
    let one = put(None, &[ours()]).unwrap().unwrap();
    let other = AuthEntry::for_nodes("arn:aws:iam::1:role/other", false);
    let both = put(Some(&one), std::slice::from_ref(&other)).unwrap().unwrap();
    let added = changed(Some(&one), Some(&both)).unwrap();
    assert!(is_among(&added, "arn:aws:iam::1:role/Path/OTHER") && !is_among(&added, ARN));
    let edited = changed(Some(&one), Some(&one.replace("system:nodes", "nobody"))).unwrap();
    assert!(is_among(&edited, ARN));
    assert!(changed(Some("- rolearn: {"), Some(&one)).is_none());
}

#[test]
fn an_entry_is_written_as_every_reader_expects() {
    assert_eq!(put(None, &[ours()]).unwrap().unwrap(), OURS);
    let windows = AuthEntry::for_nodes("arn:aws:iam::1:role/a/b/win", true);
    assert_eq!(
        put(None, &[windows]).unwrap().unwrap(),
        "- rolearn: arn:aws:iam::1:role/win\n  username: system:node:{{EC2PrivateDNSName}}\n  \
         groups:\n  - system:bootstrappers\n  - system:nodes\n  - eks:kube-proxy-windows\n"
    );
    let odd = AuthEntry {
        role_arn: "arn:aws:iam::1:role/x # \"y\"".into(),
        username: "true".into(),
        groups: vec!["12:30:00".into(), "- a: b".into(), String::new()],
    };
    let text = put(None, std::slice::from_ref(&odd)).unwrap().unwrap();
    assert_eq!(state(Some(&text), &odd), EntryState::Present);
}

#[test]
fn every_way_to_write_nothing_takes_an_entry() {
    for (before, after) in [
        ("", OURS.to_owned()),
        ("\n", format!("\n{OURS}")),
        ("[]", OURS.to_owned()),
        ("[]\n", OURS.to_owned()),
        ("[ ] # none\n", format!(" # none\n{OURS}")),
        ("null\n", OURS.to_owned()),
        ("~", OURS.to_owned()),
        ("# a comment\n", format!("# a comment\n{OURS}")),
        ("# a comment", format!("# a comment\n{OURS}")),
        ("# a\n[]\n# b\n", format!("# a\n# b\n{OURS}")),
        ("---\n", format!("---\n{OURS}")),
        ("--- []\n", format!("--- \n{OURS}")),
        ("--- []\n...\n", format!("--- \n{OURS}...\n")),
    ] {
        assert_eq!(added(before), after, "{before:?}");
    }
}

#[test]
fn entries_are_added_in_the_style_that_is_there() {
    let other = "- rolearn: arn:aws:iam::1:role/admin\n  username: admin\n  groups: [system:masters]\n";
    assert_eq!(added(other), format!("{other}{OURS}"));
    assert_eq!(added(other.trim_end()), format!("{other}{OURS}"));
    let deep = indented(other, "    ");
    assert_eq!(added(&deep), format!("{deep}{}", indented(OURS, "    ")));
    let commented = format!("# top\n{other}# tail\n\n");
    assert_eq!(added(&commented), format!("{commented}{OURS}"));
    let windows = other.replace('\n', "\r\n");
    assert_eq!(added(&windows), format!("{windows}{}", OURS.replace('\n', "\r\n")));
    let ended = format!("---\n{other}...\n");
    assert_eq!(added(&ended), format!("---\n{other}{OURS}...\n"));

    let flow = "[{rolearn: \"arn:aws:iam::1:role/a\", username: é}, # note\n]\n";
    let entry = format!(
        "{{\"rolearn\": \"{ARN}\", \"username\": \"system:node:{{{{EC2PrivateDNSName}}}}\", \
         \"groups\": [\"system:bootstrappers\", \"system:nodes\"]}}"
    );
    let after = added(flow);
    assert_eq!(after, flow.replace("}, #", &format!("}}, {entry}, #")));
    assert_eq!(remove(Some(&after), &[ARN]).unwrap().unwrap(), flow);
    assert_eq!(added("[ # none\n]"), format!("[{entry} # none\n]"));
}

#[test]
fn what_is_present_in_any_style_makes_no_difference() {
    let crlf = OURS.replace('\n', "\r\n");
    let spread = format!(
        "-\n    # whose\n    groups: [\"system:nodes\", 'system:bootstrappers']\n    note: x\n    \
         username: \"system:node:{{{{EC2PrivateDNSName}}}}\"\n    roleARN: {}\n",
        ARN.to_uppercase()
    );
    let twice = format!("{OURS}{OURS}");
    for text in [OURS, &crlf, &indented(OURS, "  "), &spread, &twice] {
        assert_eq!(state(Some(text), &ours()), EntryState::Present, "{text}");
        assert_eq!(put_one(text), Ok(None));
    }
    let with_path = AuthEntry { role_arn: ARN.replace("role/", "role/eks/nodes/"), ..ours() };
    assert_eq!(state(Some(OURS), &with_path), EntryState::Present);
    assert_eq!(without_path(&with_path.role_arn), ARN);
    assert_eq!(without_path("nonsense"), "nonsense");
}

#[test]
fn the_same_role_with_other_content_is_a_conflict_and_stays() {
    let masters = OURS.replace("system:nodes", "system:masters");
    let other_user = OURS.replace("EC2PrivateDNSName", "SessionName");
    let no_groups = format!("- rolearn: {ARN}\n  username: x\n");
    let both = format!("{OURS}{masters}");
    for text in [&masters, &other_user, &no_groups, &both] {
        let EntryState::Conflict { detail } = state(Some(text), &ours()) else {
            panic!("{text}");
        };
        assert!(detail.contains(ARN) && detail.contains("system:nodes"), "{detail}");
        assert_eq!(put_one(text), Ok(None));
    }
    let second = AuthEntry::for_nodes("arn:aws:iam::1:role/second", false);
    let after = put(Some(&masters), &[ours(), second.clone(), second.clone()]).unwrap().unwrap();
    assert_eq!(after, format!("{masters}{}", OURS.replace(ARN, &second.role_arn)));
}

#[test]
fn a_role_that_linux_and_windows_groups_share_has_the_entry_of_the_windows_ones() {
    let windows = AuthEntry::for_nodes(ARN, true);
    let text = put(None, std::slice::from_ref(&windows)).unwrap().unwrap();
    assert_eq!(state(Some(&text), &windows), EntryState::Present);
    assert_eq!(state(Some(&text), &ours()), EntryState::Present);
    let linux = put(None, &[ours()]).unwrap().unwrap();
    let EntryState::Conflict { detail } = state(Some(&linux), &windows) else { panic!("Windows nodes could not join") };
    assert!(detail.contains("eks:kube-proxy-windows"), "{detail}");
}

#[test]
fn what_is_not_understood_is_never_overwritten() {
    for text in [
        "- rolearn: [",
        "rolearn: x",
        "just text",
        "- a\n---\n- b\n",
        "- rolearn: a\n- 5\n",
        "- [rolearn, a]\n",
        "- groups: &g [a]\n- groups: *g\n",
        "- rolearn: a\n  rolearn: b\n",
        "\t- a\n",
        "- 'open\n",
        "- \u{0}\n",
    ] {
        let EntryState::Unparsable { detail } = state(Some(text), &ours()) else {
            panic!("{text:?}");
        };
        assert!(detail.contains("kube-system/aws-auth"), "{detail}");
        assert_eq!(put_one(text), Err(AuthProblem::Unparsable { detail: detail.clone() }));
        assert_eq!(remove(Some(text), &[ARN]), Err(AuthProblem::Unparsable { detail }));
    }
}

#[test]
fn only_exactly_our_entries_are_removed() {
    let removed = |text: &str| remove(Some(text), &[ARN]).unwrap();
    assert_eq!(remove(None, &[ARN]), Ok(None));
    assert_eq!(removed(OURS).unwrap(), "[]\n");
    assert_eq!(removed(&format!("# mine\n{OURS}# end\n")).unwrap(), "# mine\n# end\n[]\n");
    let admin = "- rolearn: arn:aws:iam::1:role/admin\n  username: admin # keep\n  groups: []\n";
    assert_eq!(removed(&format!("{OURS}{admin}{OURS}")).unwrap(), admin);
    let noted = OURS.replace("  username", "  # a note\n  username");
    assert_eq!(removed(&format!("{admin}{noted}# end")).unwrap(), format!("{admin}  # a note\n# end"));
    assert_eq!(removed(&format!("{admin}{}", OURS.trim_end())).unwrap(), admin);
    let windows = put(Some(admin), &[AuthEntry::for_nodes(ARN, true)]).unwrap().unwrap();
    assert_eq!(removed(&windows).unwrap(), admin);
    for stays in [
        admin.to_owned(),
        OURS.replace("system:nodes", "system:masters"),
        OURS.replace("plain", "other"),
        format!("{OURS}  note: mine\n"),
        format!("{OURS}  - more\n"),
    ] {
        assert_eq!(removed(&stays), None, "{stays}");
    }
}

#[test]
fn the_entry_of_a_pod_execution_role_is_put_found_and_removed_like_a_nodes_one() {
    let pods = AuthEntry::for_pods("arn:aws:iam::1:role/path/pods");
    let text = put(Some("# kept\n"), std::slice::from_ref(&pods)).unwrap().unwrap();
    assert!(text.contains("rolearn: arn:aws:iam::1:role/pods\n") && text.contains("system:node-proxier"), "{text}");
    assert_eq!(state(Some(&text), &pods), EntryState::Present);
    assert!(matches!(state(Some(&text), &AuthEntry::for_nodes(&pods.role_arn, false)), EntryState::Conflict { .. }));
    assert_eq!(remove(Some(&text), &[&pods.role_arn]).unwrap().as_deref(), Some("# kept\n[]\n"));
}

#[test]
fn entries_of_flow_lists_are_removed_with_their_comma() {
    let a = "{rolearn: a}";
    let b = "{rolearn: b}";
    let mine = format!(
        "{{rolearn: '{ARN}', groups: ['system:nodes', 'system:bootstrappers'], username: \
         'system:node:{{{{EC2PrivateDNSName}}}}'}}"
    );
    for (before, after) in [
        (format!("[{mine}]"), "[]".to_owned()),
        (format!("[{mine}, {a}]"), format!("[{a}]")),
        (format!("[{a}, {mine}]"), format!("[{a}]")),
        (format!("[{a}, {mine}, {b}]"), format!("[{a}, {b}]")),
        (format!("[{mine}, {mine}, {b}]"), format!("[{b}]")),
        (format!("[{a}, {mine}, {mine}]"), format!("[{a}]")),
        (format!("[{mine}, {mine}]"), "[]".to_owned()),
        (format!("[{a}, # one, two\n{mine}]\n"), format!("[{a} # one, two\n]\n")),
    ] {
        assert_eq!(remove(Some(&before), &[ARN]).unwrap().unwrap(), after, "{before}");
    }
}

#[test]
fn the_limit_is_near_at_eighty_per_cent() {
    assert!(!near_limit([CONFIG_MAP_LIMIT / 2, CONFIG_MAP_LIMIT / 4]));
    assert!(near_limit([CONFIG_MAP_LIMIT / 2, CONFIG_MAP_LIMIT / 3]));
}

/// Lines that people put between entries.
fn filler() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "( {0,3}#[ -~é]{0,12}\n){1,2}", 1 => Just("\n".to_owned())]
}

/// Somebody else's entry, with its dash at column 0.
fn foreign() -> impl Strategy<Value = String> {
    let arn = "arn:aws:iam::[0-9]{2}:role/[A-Za-z/-]{1,8}[a-z]";
    prop_oneof![
        (arn, "[a-z:]{0,6}[a-z]", "[ -~é]{0,10}").prop_map(|(arn, user, note)| format!(
            "- rolearn: {arn} # {note}\n  username: {user}\n  groups:\n    - system:masters\n"
        )),
        (arn, "[a-z]{1,6}").prop_map(|(arn, user)| format!(
            "- groups: [a, 'b c']\n  unknown:\n    deep: [1, {{x: y}}]\n  username: \"{user}\"\n  rolearn: '{arn}'\n"
        )),
        arn.prop_map(|arn| format!("- {{rolearn: \"{arn}\", username: é}}\n")),
        arn.prop_map(|arn| format!("-\n  rolearn: {arn}\n\n  # why\n  username: x\n")),
        Just("- text: |\n    several\n\n    lines # no comment\n".to_owned()),
        Just("- null\n- {}\n".to_owned()),
    ]
}

prop_compose! {
    /// A list in block style with anything around its entries.
    fn foreign_list(indent: usize)(
        head in prop_oneof![3 => Just(""), 1 => Just("---\n"), 1 => Just("# managed by us\n")],
        parts in prop::collection::vec((filler(), foreign()), 1..5),
        tail in filler(),
        crlf in any::<bool>(),
    ) -> String {
        let body: String = parts.into_iter().map(|(filler, entry)| filler + &entry).collect();
        let margin = " ".repeat(indent);
        let lines = body.split_inclusive('\n').map(|line| format!("{margin}{line}"));
        let text = format!("{head}{}{tail}", lines.collect::<String>());
        if crlf { text.replace('\n', "\r\n") } else { text }
    }
}

/// Whether all of `text`, but for an empty list or `null`, is found in `after` in its order.
fn is_within(text: &str, after: &str) -> bool {
    let mut rest = after.chars();
    let text = text.to_lowercase().replace("null", "");
    text.chars()
        .filter(|c| !"[]~ \t\r\n".contains(*c))
        .all(|c| rest.by_ref().any(|found| found.to_lowercase().eq(c.to_lowercase())))
}

proptest! {
    #[test]
    fn foreign_content_stays_byte_for_byte(text in (0..3usize).prop_flat_map(foreign_list)) {
        prop_assert_eq!(state(Some(&text), &ours()), EntryState::Absent);
        prop_assert_eq!(remove(Some(&text), &[ARN]), Ok(None));
        let windows = AuthEntry::for_nodes("arn:aws:iam::1:role/Win", true);
        let after = put(Some(&text), &[ours(), windows.clone()]).unwrap().unwrap();
        prop_assert!(after.starts_with(&text), "{:?} -> {:?}", text, after);
        prop_assert_eq!(state(Some(&after), &ours()), EntryState::Present);
        prop_assert_eq!(state(Some(&after), &windows), EntryState::Present);
        prop_assert_eq!(put(Some(&after), &[ours(), windows.clone()]), Ok(None));
        let one = remove(Some(&after), &[ARN]).unwrap().unwrap();
        prop_assert_eq!(state(Some(&one), &ours()), EntryState::Absent);
        prop_assert_eq!(state(Some(&one), &windows), EntryState::Present);
        let back = remove(Some(&one), &[windows.role_arn.as_str()]).unwrap().unwrap();
        prop_assert_eq!(back, text);
    }

    #[test]
    fn an_entry_between_others_is_taken_out_alone(
        (indent, before, after) in (0..3usize)
            .prop_flat_map(|indent| (Just(indent), foreign_list(indent), foreign_list(indent))),
    ) {
        let plain = |text: &str| text.replace('\r', "").replace("---\n", "");
        let (before, after) = (plain(&before), plain(&after));
        let margin = " ".repeat(indent);
        let text = format!("{before}{}{after}", indented(OURS, &margin));
        prop_assert_eq!(remove(Some(&text), &[ARN]).unwrap().unwrap(), format!("{before}{after}"));
    }

    #[test]
    fn no_text_panics_and_no_edit_loses_a_byte(text in prop_oneof![
        any::<String>(),
        "[-\\[\\]{}:,#&*!|>'\"%~ \n\ra]{0,24}",
        "(- |  |a: b|\n|# c\n|\\[|\\]|, |---\n|\\.\\.\\.\n|null|\t|é){0,12}",
    ]) {
        let _ = state(Some(&text), &ours());
        if let Ok(Some(after)) = put_one(&text) {
            prop_assert!(is_within(&text, &after), "{:?} -> {:?}", text, after);
            prop_assert_eq!(state(Some(&after), &ours()), EntryState::Present);
        }
        let _ = remove(Some(&text), &[ARN]);
    }
}
