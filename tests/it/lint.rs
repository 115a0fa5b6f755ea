//! The command `lint`: what it finds, where, and its exit status.

use std::path::PathBuf;

use instance_manager::cli::lint::{LintArgs, run_with};

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn lint(text: &str, files: &[PathBuf]) -> (u8, Vec<String>) {
    let (mut out, mut err) = (vec![], vec![]);
    let args = LintArgs { files: files.to_vec(), ..LintArgs::default() };
    let status = run_with(&args, &mut text.as_bytes(), &mut out, &mut err).expect("the output can be written");
    let text = String::from_utf8([out, err].concat()).expect("UTF-8");
    (status, text.lines().map(str::to_owned).collect())
}

#[test]
fn samples_are_clean() {
    for name in ["basic", "architectures", "strict", "waves"] {
        let found = lint("", &[root(&format!("boundaries/{name}.yaml"))]);
        assert_eq!(found, (0, vec!["0 errors, 0 warnings".to_owned()]), "{name}");
    }
}

/// Such a rollout waits forever, and its admin would find out with the next security fix.
#[test]
fn windows_that_never_meet_are_a_warning() {
    let text = "kind: ConfigMap\nmetadata: {name: instance-manager}\ndata:\n  rollout: |\n    windows:\n    - {from: '22:00', to: '04:00', zone: UTC}\n    waves:\n    - name: day\n      percent: 5\n      windows: [{from: '09:00', to: '17:00', zone: UTC}]\n    - name: rest\n";
    let (status, found) = lint(text, &["-".into()]);
    assert_eq!(status, 1);
    let line = found.iter().find(|line| line.contains("leave no opening")).expect("a warning");
    let expected = "<stdin>:10: warning: rollout: waves[0].windows: ";
    assert!(line.starts_with(expected) && line.contains("for the waves day;"), "{line}");
}

/// The second of two equal waves would be empty, and CI is where its admin looks first.
#[test]
fn equal_waves_are_a_warning() {
    let text = "kind: ConfigMap\nmetadata: {name: instance-manager}\ndata:\n  rollout: |\n    waves:\n    - {name: a, namespaces: 'tier = test'}\n    - {name: b, namespaces: 'tier = test'}\n    - {name: rest}\n";
    let (_, found) = lint(text, &["-".into()]);
    let line = found.iter().find(|line| line.contains("the same selectors")).unwrap_or_else(|| panic!("{found:?}"));
    assert!(line.starts_with("<stdin>:7: warning: rollout: waves[1]: "), "{line}");
}

/// A wrong year would make each later change urgent as well.
#[test]
fn urgent_until_beyond_its_limit_is_a_warning() {
    let text = "kind: ConfigMap\nmetadata: {name: instance-manager}\ndata:\n  rollout: |\n    urgentUntil: '2126-08-22T06:00:00Z'\n    waves: [{name: all}]\n";
    let (_, found) = lint(text, &["-".into()]);
    let line = found.iter().find(|line| line.contains("urgentUntil")).unwrap_or_else(|| panic!("{found:?}"));
    assert!(line.starts_with("<stdin>:5: warning: rollout: urgentUntil") && line.contains("7 days"), "{line}");
}

#[test]
fn findings_name_file_line_and_field() {
    let text = r#"apiVersion: v1
kind: ServiceAccount
---
kind: ConfigMap
metadata: {name: instance-manager}
data:
  boundaries: |
    restricted:
    - spec.eks.configuration
    - spec.strategy
    - spec.eks-fargate
    - spec.eks.strategy
    shared:
      replace:
      - spec.provisioner
      - spec.strategy
      - spec.eks.minSize
      - spec.eks.maxSize
      - metadata.annotations
  policy: |
    managedPolicies: []
    roles: ['*']
    excludableNamespaces: ['team-[ab]']
  defaults: |
    spec:
      strategy: {rollingUpdate: {drainTimeout: 5 parsecs}}
      eks:
        minSize: 5
        maxSize: 3
        configuration:
          image: newest
          taints: [{key: a, effect: NoSchedul}]
  conditionals: |
    - annotationSelector: 'example.com/disk = fast'
      defaults:
        spec:
          eks:
            configuration:
              volumes:
              - {name: /dev/xvda, type: gp9}
"#;
    let (status, found) = lint(text, &["-".into()]);
    for expected in [
        "<stdin>:12: warning: boundaries: restricted[3]: \"spec.eks.strategy\" matches no field",
        "<stdin>:10: warning: boundaries: restricted[1]: spec.strategy is also listed under shared.replace",
        "<stdin>:23: warning: policy: excludableNamespaces[0]: \"team-[ab]\" matches no namespace",
        "<stdin>:26: warning: defaults: spec.strategy.rollingUpdate.drainTimeout: \"5 parsecs\" is not a duration",
        "<stdin>:28: defaults: spec.eks.minSize `5` is larger than spec.eks.maxSize (3)",
        "<stdin>:31: defaults: spec.eks.configuration.image `newest` is not a valid image",
        "<stdin>:32: warning: defaults: spec.eks.configuration.taints[0].effect: \"NoSchedul\" is not one of",
        "<stdin>:40: conditionals: spec.eks.configuration.volumes[0].type `gp9` is not a volume type",
    ] {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}: {found:#?}");
    }
    assert_eq!((status, found.last().map(String::as_str)), (1, Some("3 errors, 5 warnings")), "{found:#?}");
}

/// Who corrects a wrong type must not learn of the other mistakes in a second round.
#[test]
fn wrong_types_do_not_hide_unusable_values() {
    let text = r#"kind: ConfigMap
metadata: {name: instance-manager}
data:
  boundaries: |
    {restricted: [spec.eks], shared: {replace: [spec.provisioner]}}
  defaults: |
    spec:
      eks:
        minSize: five
        configuration:
          image: ami-xyz!
          subnets: [subnet-1, 7]
          labels: {tier: [gold]}
  conditionals: |
    - no conditional
    - annotationSelector: 'example.com/disk = fast'
      defaults: {spec: {eks: {maxSize: many, configuration: {volumes: [{name: /dev/xvda, type: gp9}]}}}}
"#;
    let (status, found) = lint(text, &["-".into()]);
    for expected in [
        "<stdin>:9: defaults: spec.eks.minSize: \"five\" is not a whole number",
        "<stdin>:13: defaults: spec.eks.configuration.labels.tier: ",
        "<stdin>:11: defaults: spec.eks.configuration.image `ami-xyz!` is not a valid image",
        "<stdin>:15: conditionals: [0]: is not a map",
        "<stdin>:17: conditionals: [1].defaults.spec.eks.maxSize: \"many\" is not a whole number",
        "<stdin>:17: conditionals: spec.eks.configuration.volumes[0].type `gp9` is not a volume type",
    ] {
        assert_eq!(found.iter().filter(|line| line.starts_with(expected)).count(), 1, "{expected}: {found:#?}");
    }
    let errors = found.iter().filter(|line| line.starts_with("<stdin>") && !line.contains(": warning: ")).count();
    assert_eq!((status, errors), (1, 6), "each once: {found:#?}");
}

#[test]
fn exit_status_distinguishes_findings_from_unusable_input() {
    let clean = "kind: ConfigMap\ndata:\n  policy: |\n    {roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}\n";
    assert_eq!(lint(clean, &["-".into()]).0, 0);
    assert_eq!(lint("kind: ConfigMap\ndata: {}\n", &["-".into()]).0, 1, "choices are open");
    assert_eq!(lint("kind: ConfigMap\ndata: {defaults: 'spec: ['}\n", &["-".into()]).0, 1);
    assert_eq!(lint("kind: Namespace\n", &["-".into()]).0, 1, "no ConfigMap");
    let (status, lines) = lint(clean, &["/no/such/file".into(), "-".into()]);
    assert!(status == 2 && lines.iter().any(|line| line.contains("/no/such/file")), "{lines:?}");
}
