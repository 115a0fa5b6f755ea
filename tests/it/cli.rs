//! The program itself: exit statuses, and what it says when it cannot do what it is asked.

use std::process::{Command, Stdio};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_instance-manager"));
    command.args(arguments).stdin(Stdio::null()).env("KUBECONFIG", "/no/such/kubeconfig").env("RUST_BACKTRACE", "0");
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let done = program(arguments).output().expect("the program starts");
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn closed_pipe_is_not_an_error() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/short.yaml");
    let boundaries = concat!(env!("CARGO_MANIFEST_DIR"), "/boundaries/basic.yaml");
    for arguments in
        [&["crd"][..], &["render", boundaries, example], &["explain", boundaries, example], &["lint", boundaries]]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let done = program(arguments).stdout(writer).stderr(Stdio::piped()).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), &*stderr), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn errors_are_reported_once_and_in_words() {
    let (status, stderr) = run(&["plan"]);
    assert_eq!(status, Some(1));
    assert!(stderr.starts_with("error: which group?") && stderr.contains("-A for all groups"), "{stderr}");
    for arguments in [&["plan", "-A"][..], &["plan", "-A", "--context", "nowhere"], &["preflight"], &["release"]] {
        let (status, stderr) = run(arguments);
        assert_eq!(status, Some(1), "{arguments:?}: {stderr}");
        for debug in ["Os {", "Some(", "Error(", "panicked", "Kubeconfig("] {
            assert!(!stderr.contains(debug), "{arguments:?}: {stderr}");
        }
        assert_eq!(
            (stderr.lines().count(), stderr.matches("No such file").count().min(2)),
            (1, stderr.matches("No such file").count()),
            "{stderr}"
        );
    }
}

/// The SDK's own error names no place where credentials or a region belong.
#[test]
fn missing_credentials_and_region_are_reported_with_a_remedy() {
    for (region, words) in [
        ("us-west-2", ["error: no AWS credentials", "AWS_ACCESS_KEY_ID", "give the ServiceAccount a role"]),
        ("", ["error: no AWS region", "set AWS_REGION", "AWS_PROFILE"]),
    ] {
        let mut command = program(&["run"]);
        command.env_clear().env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", "/no/such/home");
        let command = if region.is_empty() { &mut command } else { command.env("AWS_REGION", region) };
        let done = command.output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    }
}

#[test]
fn missing_kubeconfig_is_reported_with_a_remedy() {
    let named = &["preflight", "--kubeconfig", "/no/such/kubeconfig"];
    for arguments in [&["status", "team-a/web"][..], &["plan", "-A", "--context", "x"], named, &["rollout", "status"]] {
        let (status, stderr) = run(arguments);
        let words = ["no Kubernetes cluster", "/no/such/kubeconfig cannot be read", "--kubeconfig or KUBECONFIG"];
        assert_eq!((status, stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    }
}

#[test]
fn lint_exits_with_2_where_it_cannot_lint() {
    assert_eq!(run(&["lint", "/no/such/file"]).0, Some(2));
    assert_eq!(run(&["lint"]).0, Some(2));
    assert_eq!(run(&["lint", "--nonsense"]).0, Some(2));
    assert_eq!(run(&["lint", "--help"]).0, Some(0));
}
