//! Templates: the fields they can use, and the limits on their cost.

mod decisions;
mod resources;

use gtmpl_ng::Value as Go;
use jiff::Timestamp;
use serde_json::json;

use super::template;
use super::template_context::{TemplateSource, template_context};
use crate::api::spec_error::SpecError;
use crate::api::{GroupId, InstanceGroupStatus};
use crate::plan::StalledReason;

fn group() -> GroupId {
    GroupId {
        namespace: "team".into(),
        name: "web".into(),
        uid: "u1".into(),
        generation: 1,
        created_at: Timestamp::UNIX_EPOCH,
        deletion_requested_at: None,
        has_finalizer: true,
        labels: Default::default(),
    }
}

fn status() -> InstanceGroupStatus {
    InstanceGroupStatus {
        active_scaling_group_name: Some("demo-team-web".into()),
        latest_template_version: Some("3".into()),
        nodes_instance_role_arn: Some("arn:aws:iam::1:role/web".into()),
        ..InstanceGroupStatus::default()
    }
}

fn test_context() -> (Go, usize) {
    let spec = json!({"provisioner": "eks", "strategy": {"type": "crd", "crd": {"crdName": "rollingupgrades", "spec": "secret"}},
        "eks": {"minSize": 1, "maxSize": 3, "configuration": {
            "clusterName": "demo", "image": "latest", "securityGroups": ["sg-1", "sg-2"], "labels": {"team": "search"},
            "tags": [{"key": "cost", "value": "42"}], "roleName": "nodes", "bootstrapArguments": "secret",
            "userData": [{"name": "a", "data": "secret"}],
            "volumes": [{"name": "/dev/xvda", "snapshotId": "snap-1"}]}}});
    let metadata = json!({"labels": {"env": "test"}, "annotations": {"a.b/c": "d"}});
    let (id, status) = (group(), status());
    let source = TemplateSource { id: &id, metadata: &metadata, spec: &spec, image: "ami-7", status: &status };
    template_context(&source)
}

fn render(text: &str) -> Result<String, SpecError> {
    let (root, weight) = test_context();
    template::render(text, root, weight)
}

#[test]
fn templates_use_go_field_names() {
    for (text, expected) in [
        ("{{ .InstanceGroup.GetName }}/{{ .InstanceGroup.Name }}/{{ .InstanceGroup.ObjectMeta.Name }}", "web/web/web"),
        ("{{ .InstanceGroup.GetNamespace }} {{ .InstanceGroup.NamespacedName }}", "team team/web"),
        ("{{ .InstanceGroup.Status.ActiveScalingGroupName }}", "demo-team-web"),
        ("{{ .InstanceGroup.GetStatus.GetActiveScalingGroupName }}", "demo-team-web"),
        ("{{ .InstanceGroup.Status.NodesArn }}{{ .InstanceGroup.Status.ConfigHash }}", "arn:aws:iam::1:role/web"),
        ("{{ .InstanceGroup.Spec.EKSSpec.MaxSize }}", "3"),
        ("{{ .InstanceGroup.Spec.EKSSpec.EKSConfiguration.EksClusterName }}", "demo"),
        ("{{ .InstanceGroup.GetEKSConfiguration.GetClusterName }}", "demo"),
        ("{{ .InstanceGroup.GetEKSSpec.GetMinSize }}", "1"),
        ("{{ .InstanceGroup.Spec.EKSSpec.EKSConfiguration.Image }}", "ami-7"),
        ("{{ range .InstanceGroup.Spec.EKSSpec.EKSConfiguration.NodeSecurityGroups }}{{ . }},{{ end }}", "sg-1,sg-2,"),
        ("{{ .InstanceGroup.Spec.EKSSpec.EKSConfiguration.ExistingRoleName }}", "nodes"),
        (
            "{{ range .InstanceGroup.Spec.EKSSpec.EKSConfiguration.Tags }}{{ .key }}={{ index . \"value\" }}{{ end }}",
            "cost=42",
        ),
        ("{{ (index .InstanceGroup.Spec.EKSSpec.EKSConfiguration.Volumes 0).SnapshotID }}", "snap-1"),
        ("{{ .InstanceGroup.Spec.AwsUpgradeStrategy.CRDType.CRDName }}", "rollingupgrades"),
        ("{{ .InstanceGroup.Spec.AwsUpgradeStrategy.RollingUpdateType.MaxUnavailable }}", ""),
        ("{{ .InstanceGroup.Spec.EKSManagedSpec.MaxSize }}{{ .InstanceGroup.Spec.EKSFargateSpec.ClusterName }}", "0"),
        ("{{ index .InstanceGroup.Labels \"env\" }}{{ index .InstanceGroup.GetAnnotations \"a.b/c\" }}", "testd"),
        ("{{ if .InstanceGroup.Labels.none }}yes{{ else }}no{{ end }}", "no"),
        ("{{/* a comment with ( and {{ */}}{{- \"  trimmed\" -}}  ", "  trimmed"),
    ] {
        assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn template_cannot_print_user_data() {
    let all = render("{{ .InstanceGroup }}").unwrap_or_default();
    assert!(all.contains("ami-7") && !all.contains("secret"), "{all}");
    let configuration = ".InstanceGroup.Spec.EKSSpec.EKSConfiguration";
    let data = format!(
        "{{{{ range {configuration}.UserData }}}}{{{{ .Name }}}}:{{{{ .Data }}}}{{{{ .GetData }}}};{{{{ end }}}}"
    );
    assert_eq!(render(&data).as_deref(), Ok("a:;"));
    assert_eq!(render(&format!("{{{{ {configuration}.BootstrapArguments }}}}")).as_deref(), Ok(""));
}

#[test]
fn render_errors_name_the_position_and_hide_values() {
    for (text, expected) in [
        ("a:\n  b: {{ .InstanceGroup.Nam }}", "line 2, column 9: unknown field `Nam`"),
        ("{{ .Values.x }}", "unknown field `Values`"),
        ("{{ .InstanceGroup.Spec.EKSSpec.Foo }}", "unknown field `Foo`"),
        ("{{ env \"HOME\" }}", "unknown function `env`"),
        ("{{ readFile \"/etc/passwd\" }}", "unknown function `readFile`"),
        ("{{ getHostByName \"example.com\" }}", "unknown function `getHostByName`"),
        ("{{ include \"x\" . }}", "unknown function `include`"),
        ("{{ if }}", "is not a valid Go template"),
        ("a: {{ .InstanceGroup.Name", "line 1: has an action that is not closed"),
        ("{{ .InstanceGroup.Labels.none }}", "prints a label, an annotation or a map entry that does not exist"),
    ] {
        let problem = render(text).expect_err(text);
        assert_eq!(
            (problem.path.as_str(), problem.reason),
            ("spec.strategy.crd.spec", StalledReason::InvalidSpec),
            "{text}"
        );
        assert!(problem.rule.contains(expected) && !problem.remedy.is_empty(), "{text}: {problem}");
        assert!(!problem.to_string().contains("ami-7"), "{problem}");
    }
}

/// A tenant's template must not stop the controller for other groups. Without limits, each of these would crash the
/// process, or run or grow without end. The stack size is that of a worker thread.
#[test]
fn hostile_templates_are_rejected_within_limits() {
    let repeat = |count: usize, open: &str, close: &str| format!("{}{close}", open.repeat(count));
    let hostile = [
        ("{{ range 1000000000 }}{{ end }}".to_owned(), "iterations"),
        ("{{ range 900 }}{{ range 900 }}x{{ end }}{{ end }}".into(), "iterations"),
        ("{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}".into(), "{{ define }}"),
        ("{{-\n\tdefine \"r\" }}{{ end }}".into(), "{{ define }}"),
        ("{{ block \"r\" . }}{{ end }}".into(), "{{ block }}"),
        ("{{ $s := \"xxxxxxxx\" }}{{ range 60 }}{{ $s = print $s $s }}{{ end }}".into(), "larger"),
        ("{{ $s := .InstanceGroup.Labels }}{{ range 60 }}{{ $s = printf \"%v%v\" $s $s }}{{ end }}".into(), "larger"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(1_000_000), ")".repeat(1_000_000)), "longer than"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(2000), ")".repeat(2000)), "parentheses"),
        (format!("{{{{ {} }}}}", "(print \")\" ".repeat(300)), "parentheses"),
        (format!("{{{{ {} }}}}", "(print `}}`".repeat(300)), "parentheses"),
        (repeat(1_000_000, "{{ if 1 }}", ""), "longer than"),
        (repeat(900, "{{ if 1 }}", ""), "is not a valid Go template"),
        (repeat(900, "{{ else if 0 }}", "{{ end }}"), "{{ else }}"),
        (repeat(2000, "{{ 1 }}", ""), "1000 actions"),
        (format!("{{{{ print {} }}}}", "$ ".repeat(3000)), "more than 4096 bytes"),
        (repeat(999, "{{ $a := $ }}{{/* $ */}}", ""), ""),
        (repeat(40, &format!("{{{{ print {} }}}}", "$ ".repeat(700)), ""), "mentions values"),
        ("{{ range 1000 }}{{ printf \"%16000d\" 1 }}{{ end }}".into(), ""),
        ("{{ printf \"%1000000000d\" 1 }}".into(), ""),
        ("{{ printf \"%*d\" 1000000000 1 }}".into(), ""),
        ("{{ printf \"%.1000000000f\" 1.5 }}".into(), ""),
        ("{{ '\\'' }}".into(), "character constant"),
        ("{{".into(), "not closed"),
        ("{{ \"".into(), "not closed"),
        ("{{ `".into(), "not closed"),
        ("{{/*".into(), "not closed"),
        ("\u{e9}{{ \"\\\u{e9}\" }}".into(), "is not a valid Go template"),
    ];
    let small_stack_thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for (text, expected) in hostile {
            let shown: String = text.chars().take(60).collect();
            match render(&text) {
                Err(problem) => assert!(problem.rule.contains(expected), "{shown}: {problem}"),
                // Some templates are within the limits; their output is small.
                Ok(out) => {
                    assert!(expected.is_empty() && out.len() <= template::MAX_OUTPUT_BYTES, "{shown}: {}", out.len())
                }
            }
        }
    });
    small_stack_thread.expect("a thread").join().expect("nothing panics");
}
