//! One entry at a time: what the controller adds, and the only form that it widens.

use super::*;

const ARN: &str = "arn:aws:iam::123456789012:role/bench-tenant-a-plain";
const OWN_ENTRY: &str = "- rolearn: arn:aws:iam::123456789012:role/bench-tenant-a-plain
  username: system:node:{{EC2PrivateDNSName}}
  groups:
  - system:bootstrappers
  - system:nodes
";

fn own_entry() -> AuthEntry {
    AuthEntry::for_nodes(ARN, false)
}

fn entry_state(text: &str, entry: &AuthEntry) -> AuthEntryState {
    entry_state_in(&parse(Some(text)).unwrap(), entry)
}

fn widened(text: Option<&str>, desired: &AuthEntry) -> Result<Option<String>, AwsAuthError> {
    Ok(parse(text)?.with_widened_entry(desired)?.map(|document| document.text))
}

#[test]
fn shared_role_gets_windows_entry() {
    let windows = AuthEntry::for_nodes(ARN, true);
    let text = add_entries(None, std::slice::from_ref(&windows)).unwrap().unwrap();
    assert_eq!(entry_state(&text, &windows), AuthEntryState::Present);
    assert_eq!(entry_state(&text, &own_entry()), AuthEntryState::Present);
    let linux = add_entries(None, &[own_entry()]).unwrap().unwrap();
    let AuthEntryState::Narrow { detail } = entry_state(&linux, &windows) else {
        panic!("a Linux entry does not admit Windows nodes")
    };
    assert!(detail.contains("eks:kube-proxy-windows"), "{detail}");
    let added = parse(Some(&linux)).unwrap().with_entry(&windows);
    assert!(matches!(added, Err(AwsAuthError::Conflict { .. })), "it is not the same entry");
}

#[test]
fn only_the_controllers_form_of_entry_is_widened() {
    let windows = AuthEntry::for_nodes(ARN, true);
    let other =
        "# admins\n- rolearn: arn:aws:iam::1:role/admin # ours\n  username: admin\n  groups: [system:masters]\n";
    let wide = OWN_ENTRY.replace("system:nodes\n", "system:nodes\n  - \"eks:kube-proxy-windows\"\n");
    let wide = add_entries(None, std::slice::from_ref(&windows)).unwrap().filter(|text| text.len() >= wide.len() - 2);
    let wide = wide.expect("an entry with one more group");
    for (before, after) in [
        (OWN_ENTRY.to_owned(), wide.clone()),
        (format!("{other}{OWN_ENTRY}# end\n"), format!("{other}# end\n{wide}")),
        (format!("{OWN_ENTRY}{other}"), format!("{other}{wide}")),
    ] {
        assert_eq!(widened(Some(&before), &windows), Ok(Some(after.clone())), "{before}");
        assert_eq!(widened(Some(&after), &windows), Ok(None), "it is as desired");
    }
    assert_eq!(widened(None, &windows), Ok(Some(wide.clone())), "someone removed it meanwhile");
    for foreign in [
        format!("{OWN_ENTRY}  note: x\n"),
        OWN_ENTRY.replace("system:nodes", "system:masters"),
        OWN_ENTRY.replace("EC2PrivateDNSName", "SessionName"),
        format!("{OWN_ENTRY}{OWN_ENTRY}"),
    ] {
        assert!(matches!(entry_state(&foreign, &windows), AuthEntryState::Conflict { .. }), "{foreign}");
        assert!(matches!(widened(Some(&foreign), &windows), Err(AwsAuthError::Conflict { .. })), "{foreign}");
    }
    // The entry of a pod execution role has another user name, so nodes and pods cannot share one.
    let pods = AuthEntry::for_pods(ARN);
    assert!(matches!(entry_state(OWN_ENTRY, &pods), AuthEntryState::Conflict { .. }));
}
