//! Edits of aws-auth leave all other content unchanged, byte for byte.

use instance_manager::auth::aws_auth::{
    AuthEntry, AuthEntryState, AwsAuthError, CONFIG_MAP_LIMIT, MapRoles, add_entries, contains_role,
    is_near_size_limit, remove_entries, without_path,
};
use proptest::prelude::*;

const ARN: &str = "arn:aws:iam::123456789012:role/bench-tenant-a-plain";
const OWN_ENTRY: &str = "- rolearn: arn:aws:iam::123456789012:role/bench-tenant-a-plain
  username: system:node:{{EC2PrivateDNSName}}
  groups:
  - system:bootstrappers
  - system:nodes
";

fn entry_state(text: Option<&str>, entry: &AuthEntry) -> AuthEntryState {
    MapRoles::parse(text).entry_state(entry)
}

fn own_entry() -> AuthEntry {
    AuthEntry::for_nodes(ARN, false)
}

fn put_one(text: &str) -> Result<Option<String>, AwsAuthError> {
    add_entries(Some(text), &[own_entry()])
}

fn added(text: &str) -> String {
    put_one(text).unwrap_or_else(|error| panic!("{text:?}: {error}")).unwrap()
}

fn indented(text: &str, indent: &str) -> String {
    text.lines().map(|line| format!("{indent}{line}\n")).collect()
}

#[test]
fn only_differing_entries_change() {
    let one = add_entries(None, &[own_entry()]).unwrap().unwrap();
    let other = AuthEntry::for_nodes("arn:aws:iam::1:role/other", false);
    let both = add_entries(Some(&one), std::slice::from_ref(&other)).unwrap().unwrap();
    let changed_roles = |old: &str, new: &str| MapRoles::parse(Some(new)).changed_roles(&MapRoles::parse(Some(old)));
    let added = changed_roles(&one, &both).unwrap();
    assert!(contains_role(&added, "arn:aws:iam::1:role/Path/OTHER") && !contains_role(&added, ARN));
    let edited = changed_roles(&one, &one.replace("system:nodes", "nobody")).unwrap();
    assert!(contains_role(&edited, ARN));
    assert!(changed_roles("- rolearn: {", &one).is_none());
}

#[test]
fn entry_has_canonical_form() {
    assert_eq!(add_entries(None, &[own_entry()]).unwrap().unwrap(), OWN_ENTRY);
    let windows = AuthEntry::for_nodes("arn:aws:iam::1:role/a/b/win", true);
    assert_eq!(
        add_entries(None, &[windows]).unwrap().unwrap(),
        "- rolearn: arn:aws:iam::1:role/win\n  username: system:node:{{EC2PrivateDNSName}}\n  \
         groups:\n  - system:bootstrappers\n  - system:nodes\n  - eks:kube-proxy-windows\n"
    );
    let odd = AuthEntry {
        role_arn: "arn:aws:iam::1:role/x # \"y\"".into(),
        username: "true".into(),
        groups: vec!["12:30:00".into(), "- a: b".into(), String::new()],
    };
    let text = add_entries(None, std::slice::from_ref(&odd)).unwrap().unwrap();
    assert_eq!(entry_state(Some(&text), &odd), AuthEntryState::Present);
}

#[test]
fn empty_documents_accept_an_entry() {
    for (before, after) in [
        ("", OWN_ENTRY.to_owned()),
        ("\n", format!("\n{OWN_ENTRY}")),
        ("[]", OWN_ENTRY.to_owned()),
        ("[]\n", OWN_ENTRY.to_owned()),
        ("[ ] # none\n", format!(" # none\n{OWN_ENTRY}")),
        ("null\n", OWN_ENTRY.to_owned()),
        ("~", OWN_ENTRY.to_owned()),
        ("# a comment\n", format!("# a comment\n{OWN_ENTRY}")),
        ("# a comment", format!("# a comment\n{OWN_ENTRY}")),
        ("# a\n[]\n# b\n", format!("# a\n# b\n{OWN_ENTRY}")),
        ("---\n", format!("---\n{OWN_ENTRY}")),
        ("--- []\n", format!("--- \n{OWN_ENTRY}")),
        ("--- []\n...\n", format!("--- \n{OWN_ENTRY}...\n")),
    ] {
        assert_eq!(added(before), after, "{before:?}");
    }
}

#[test]
fn entries_follow_existing_style() {
    let other = "- rolearn: arn:aws:iam::1:role/admin\n  username: admin\n  groups: [system:masters]\n";
    assert_eq!(added(other), format!("{other}{OWN_ENTRY}"));
    assert_eq!(added(other.trim_end()), format!("{other}{OWN_ENTRY}"));
    let deep = indented(other, "    ");
    assert_eq!(added(&deep), format!("{deep}{}", indented(OWN_ENTRY, "    ")));
    let commented = format!("# top\n{other}# tail\n\n");
    assert_eq!(added(&commented), format!("{commented}{OWN_ENTRY}"));
    let windows = other.replace('\n', "\r\n");
    assert_eq!(added(&windows), format!("{windows}{}", OWN_ENTRY.replace('\n', "\r\n")));
    let ended = format!("---\n{other}...\n");
    assert_eq!(added(&ended), format!("---\n{other}{OWN_ENTRY}...\n"));

    let flow = "[{rolearn: \"arn:aws:iam::1:role/a\", username: é}, # note\n]\n";
    let entry = format!(
        "{{\"rolearn\": \"{ARN}\", \"username\": \"system:node:{{{{EC2PrivateDNSName}}}}\", \
         \"groups\": [\"system:bootstrappers\", \"system:nodes\"]}}"
    );
    let after = added(flow);
    assert_eq!(after, flow.replace("}, #", &format!("}}, {entry}, #")));
    assert_eq!(remove_entries(Some(&after), &[ARN]).unwrap().unwrap(), flow);
    assert_eq!(added("[ # none\n]"), format!("[{entry} # none\n]"));
}

#[test]
fn present_entries_cause_no_edit() {
    let crlf = OWN_ENTRY.replace('\n', "\r\n");
    let spread = format!(
        "-\n    # a comment\n    groups: [\"system:nodes\", 'system:bootstrappers']\n    note: x\n    \
         username: \"system:node:{{{{EC2PrivateDNSName}}}}\"\n    roleARN: {}\n",
        ARN.to_uppercase()
    );
    let twice = format!("{OWN_ENTRY}{OWN_ENTRY}");
    for text in [OWN_ENTRY, &crlf, &indented(OWN_ENTRY, "  "), &spread, &twice] {
        assert_eq!(entry_state(Some(text), &own_entry()), AuthEntryState::Present, "{text}");
        assert_eq!(put_one(text), Ok(None));
    }
    let with_path = AuthEntry { role_arn: ARN.replace("role/", "role/eks/nodes/"), ..own_entry() };
    assert_eq!(entry_state(Some(OWN_ENTRY), &with_path), AuthEntryState::Present);
    assert_eq!(without_path(&with_path.role_arn), ARN);
    assert_eq!(without_path("nonsense"), "nonsense");
}

#[test]
fn differing_entry_is_a_conflict() {
    let masters = OWN_ENTRY.replace("system:nodes", "system:masters");
    let other_user = OWN_ENTRY.replace("EC2PrivateDNSName", "SessionName");
    let no_groups = format!("- rolearn: {ARN}\n  username: x\n");
    let both = format!("{OWN_ENTRY}{masters}");
    for text in [&masters, &other_user, &no_groups, &both] {
        let AuthEntryState::Conflict { detail } = entry_state(Some(text), &own_entry()) else {
            panic!("{text}");
        };
        assert!(detail.contains(ARN) && detail.contains("system:nodes"), "{detail}");
        assert_eq!(put_one(text), Ok(None));
    }
    let second = AuthEntry::for_nodes("arn:aws:iam::1:role/second", false);
    let after = add_entries(Some(&masters), &[own_entry(), second.clone(), second.clone()]).unwrap().unwrap();
    assert_eq!(after, format!("{masters}{}", OWN_ENTRY.replace(ARN, &second.role_arn)));
}

/// aws-iam-authenticator gives a node all groups of its entry: additional groups from people cut no node off.
#[test]
fn entry_with_further_groups_lets_nodes_join_and_is_never_the_controllers_to_remove() {
    let wider = OWN_ENTRY.replace("system:nodes\n", "system:nodes\n  - monitoring\n");
    assert_ne!(wider, OWN_ENTRY);
    assert_eq!(entry_state(Some(&wider), &own_entry()), AuthEntryState::Present);
    assert_eq!(put_one(&wider), Ok(None));
    assert_eq!(remove_entries(Some(&wider), &[ARN]), Ok(None));
}

#[test]
fn unparsable_document_is_never_overwritten() {
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
        let AuthEntryState::Unparsable { detail } = entry_state(Some(text), &own_entry()) else {
            panic!("{text:?}");
        };
        assert!(detail.contains("kube-system/aws-auth"), "{detail}");
        assert_eq!(put_one(text), Err(AwsAuthError::Unparsable { detail: detail.clone() }));
        assert_eq!(remove_entries(Some(text), &[ARN]), Err(AwsAuthError::Unparsable { detail }));
    }
}

#[test]
fn only_exact_own_entries_are_removed() {
    let removed = |text: &str| remove_entries(Some(text), &[ARN]).unwrap();
    assert_eq!(remove_entries(None, &[ARN]), Ok(None));
    assert_eq!(removed(OWN_ENTRY).unwrap(), "[]\n");
    assert_eq!(removed(&format!("# mine\n{OWN_ENTRY}# end\n")).unwrap(), "# mine\n# end\n[]\n");
    let admin = "- rolearn: arn:aws:iam::1:role/admin\n  username: admin # keep\n  groups: []\n";
    assert_eq!(removed(&format!("{OWN_ENTRY}{admin}{OWN_ENTRY}")).unwrap(), admin);
    let noted = OWN_ENTRY.replace("  username", "  # a note\n  username");
    assert_eq!(removed(&format!("{admin}{noted}# end")).unwrap(), format!("{admin}  # a note\n# end"));
    assert_eq!(removed(&format!("{admin}{}", OWN_ENTRY.trim_end())).unwrap(), admin);
    let windows = add_entries(Some(admin), &[AuthEntry::for_nodes(ARN, true)]).unwrap().unwrap();
    assert_eq!(removed(&windows).unwrap(), admin);
    for kept in [
        admin.to_owned(),
        OWN_ENTRY.replace("system:nodes", "system:masters"),
        OWN_ENTRY.replace("plain", "other"),
        format!("{OWN_ENTRY}  note: mine\n"),
        format!("{OWN_ENTRY}  - more\n"),
    ] {
        assert_eq!(removed(&kept), None, "{kept}");
    }
}

#[test]
fn pod_execution_role_entry_round_trips() {
    let pods = AuthEntry::for_pods("arn:aws:iam::1:role/path/pods");
    let text = add_entries(Some("# kept\n"), std::slice::from_ref(&pods)).unwrap().unwrap();
    assert!(text.contains("rolearn: arn:aws:iam::1:role/pods\n") && text.contains("system:node-proxier"), "{text}");
    assert_eq!(entry_state(Some(&text), &pods), AuthEntryState::Present);
    assert!(matches!(
        entry_state(Some(&text), &AuthEntry::for_nodes(&pods.role_arn, false)),
        AuthEntryState::Conflict { .. }
    ));
    assert_eq!(remove_entries(Some(&text), &[&pods.role_arn]).unwrap().as_deref(), Some("# kept\n[]\n"));
}

#[test]
fn flow_list_entries_are_removed_with_comma() {
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
        assert_eq!(remove_entries(Some(&before), &[ARN]).unwrap().unwrap(), after, "{before}");
    }
}

#[test]
fn size_warning_starts_at_80_percent() {
    assert!(!is_near_size_limit([CONFIG_MAP_LIMIT / 2, CONFIG_MAP_LIMIT / 4]));
    assert!(is_near_size_limit([CONFIG_MAP_LIMIT / 2, CONFIG_MAP_LIMIT / 3]));
}

/// Comments and blank lines between entries.
fn filler() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "( {0,3}#[ -~é]{0,12}\n){1,2}", 1 => Just("\n".to_owned())]
}

/// An entry that the controller did not write, with its dash at column 0.
fn foreign_entry() -> impl Strategy<Value = String> {
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
    /// A list in block style with comments and blank lines around its entries.
    fn foreign_list(indent: usize)(
        head in prop_oneof![3 => Just(""), 1 => Just("---\n"), 1 => Just("# managed by us\n")],
        parts in prop::collection::vec((filler(), foreign_entry()), 1..5),
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

/// Whether `after` contains the characters of `text` in order. Brackets, white space and `null` are ignored.
fn is_within(text: &str, after: &str) -> bool {
    let mut rest = after.chars();
    let text = text.to_lowercase().replace("null", "");
    text.chars()
        .filter(|c| !"[]~ \t\r\n".contains(*c))
        .all(|c| rest.by_ref().any(|found| found.to_lowercase().eq(c.to_lowercase())))
}

proptest! {
    #[test]
    fn foreign_content_is_preserved(text in (0..3usize).prop_flat_map(foreign_list)) {
        prop_assert_eq!(entry_state(Some(&text), &own_entry()), AuthEntryState::Absent);
        prop_assert_eq!(remove_entries(Some(&text), &[ARN]), Ok(None));
        let windows = AuthEntry::for_nodes("arn:aws:iam::1:role/Win", true);
        let after = add_entries(Some(&text), &[own_entry(), windows.clone()]).unwrap().unwrap();
        prop_assert!(after.starts_with(&text), "{:?} -> {:?}", text, after);
        prop_assert_eq!(entry_state(Some(&after), &own_entry()), AuthEntryState::Present);
        prop_assert_eq!(entry_state(Some(&after), &windows), AuthEntryState::Present);
        prop_assert_eq!(add_entries(Some(&after), &[own_entry(), windows.clone()]), Ok(None));
        let one = remove_entries(Some(&after), &[ARN]).unwrap().unwrap();
        prop_assert_eq!(entry_state(Some(&one), &own_entry()), AuthEntryState::Absent);
        prop_assert_eq!(entry_state(Some(&one), &windows), AuthEntryState::Present);
        let back = remove_entries(Some(&one), &[windows.role_arn.as_str()]).unwrap().unwrap();
        prop_assert_eq!(back, text);
    }

    #[test]
    fn removal_leaves_neighbors_unchanged(
        (indent, before, after) in (0..3usize)
            .prop_flat_map(|indent| (Just(indent), foreign_list(indent), foreign_list(indent))),
    ) {
        let plain = |text: &str| text.replace('\r', "").replace("---\n", "");
        let (before, after) = (plain(&before), plain(&after));
        let margin = " ".repeat(indent);
        let text = format!("{before}{}{after}", indented(OWN_ENTRY, &margin));
        prop_assert_eq!(remove_entries(Some(&text), &[ARN]).unwrap().unwrap(), format!("{before}{after}"));
    }

    #[test]
    fn arbitrary_text_never_panics_or_loses_bytes(text in prop_oneof![
        any::<String>(),
        "[-\\[\\]{}:,#&*!|>'\"%~ \n\ra]{0,24}",
        "(- |  |a: b|\n|# c\n|\\[|\\]|, |---\n|\\.\\.\\.\n|null|\t|é){0,12}",
    ]) {
        let _ = entry_state(Some(&text), &own_entry());
        if let Ok(Some(after)) = put_one(&text) {
            prop_assert!(is_within(&text, &after), "{:?} -> {:?}", text, after);
            prop_assert_eq!(entry_state(Some(&after), &own_entry()), AuthEntryState::Present);
        }
        let _ = remove_entries(Some(&text), &[ARN]);
    }
}
