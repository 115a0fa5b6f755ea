use gtmpl_ng::Value as Go;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::{Act, Decision, Input, Phase, Resource, Stand, decide, open, state};
use super::resource::{Purpose, Request, Served, fits, request};
use super::root::{Source, root};
use super::{Allowed, StatusPath, template};
use crate::api::{ConcurrencyPolicy, GroupId, InstanceGroupStatus, StrategyProgress};
use crate::boundaries::{Boundaries, Policy};
use crate::plan::Reason;
use crate::provisioner::Problem;

fn group() -> GroupId {
    GroupId {
        namespace: "team".into(),
        name: "web".into(),
        uid: "u1".into(),
        generation: 1,
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        finalizer: true,
        annotations: Default::default(),
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

fn root_for(text: &str) -> (Go, usize) {
    let spec = json!({"provisioner": "eks", "strategy": {"type": "crd", "crd": {"crdName": "rollingupgrades", "spec": "secret"}},
        "eks": {"minSize": 1, "maxSize": 3, "configuration": {
            "clusterName": "demo", "image": "latest", "securityGroups": ["sg-1", "sg-2"], "labels": {"team": "search"},
            "tags": [{"key": "cost", "value": "42"}], "roleName": "nodes", "userData": [{"name": "a", "data": "secret"}],
            "volumes": [{"name": "/dev/xvda", "snapshotId": "snap-1"}]}}});
    let metadata = json!({"labels": {"env": "test"}, "annotations": {"a.b/c": "d"}});
    let (id, status) = (group(), status());
    let source = Source { id: &id, metadata: &metadata, spec: &spec, image: "ami-7", status: &status, template: text };
    root(&source)
}

fn render(text: &str) -> Result<String, Problem> {
    let (root, weight) = root_for(text);
    template::render(text, root, weight)
}

#[test]
fn templates_see_the_group_by_the_names_of_go() {
    for (text, wanted) in [
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
        assert_eq!(render(text).as_deref(), Ok(wanted), "{text}");
    }
}

#[test]
fn what_a_template_does_not_name_of_user_data_is_not_there_for_it_to_print() {
    let all = render("{{ .InstanceGroup }}").unwrap_or_default();
    assert!(all.contains("ami-7") && !all.contains("secret"), "{all}");
    let asked = "{{ range .InstanceGroup.Spec.EKSSpec.EKSConfiguration.UserData }}{{ .Data }}{{ end }}";
    assert_eq!(render(asked).as_deref(), Ok("secret"));
}

#[test]
fn a_template_that_cannot_be_rendered_is_told_with_its_place_and_without_its_values() {
    for (text, wanted) in [
        ("a:\n  b: {{ .InstanceGroup.Nam }}", "line 2, column 9: there is no field `Nam` there"),
        ("{{ .Values.x }}", "there is no field `Values` there"),
        ("{{ .InstanceGroup.Spec.EKSSpec.Foo }}", "there is no field `Foo` there"),
        ("{{ env \"HOME\" }}", "there is no function `env`"),
        ("{{ readFile \"/etc/passwd\" }}", "there is no function `readFile`"),
        ("{{ getHostByName \"example.com\" }}", "there is no function `getHostByName`"),
        ("{{ include \"x\" . }}", "there is no function `include`"),
        ("{{ if }}", "is no Go template"),
        ("a: {{ .InstanceGroup.Name", "line 1: opens an action that nothing closes"),
        ("{{ .InstanceGroup.Labels.none }}", "prints a label, an annotation or an entry of a map that is not there"),
    ] {
        let problem = render(text).expect_err(text);
        assert_eq!((problem.path.as_str(), problem.reason), ("spec.strategy.crd.spec", Reason::InvalidSpec), "{text}");
        assert!(problem.rule.contains(wanted) && !problem.remedy.is_empty(), "{text}: {problem}");
        assert!(!problem.to_string().contains("ami-7"), "{problem}");
    }
}

/// A condition must stay one that people can read, and that fits into a status.
#[test]
fn what_is_told_of_a_template_is_short() {
    let long = "x".repeat(3000);
    let told = [
        render(&format!("{{{{ .InstanceGroup.{long} }}}}")).map(drop),
        render(&format!("{{{{ {long} }}}}")).map(drop),
        judged(&object(&long, "argoproj.io/v1alpha1", "{name: up}"), "").map(drop),
        judged(&object("Workflow", &format!("{long}/v1"), "{name: up}"), "").map(drop),
        judged(&object("Workflow", &format!("argoproj.io/{long}-"), "{name: up, namespace: team}"), "").map(drop),
        judged(&object("Workflow", "argoproj.io/v1alpha1", &format!("{{name: up, namespace: {long}}}")), "").map(drop),
        judged(&object("Workflow", "argoproj.io/v1alpha1", &format!("{{name: up, {long}: a}}")), "").map(drop),
        judged(
            &object("Workflow", "argoproj.io/v1alpha1", &format!("{{name: {long}{PURPOSE_ID}, namespace: team}}")),
            "",
        )
        .map(drop),
    ];
    for problem in told {
        let text = problem.expect_err("refused").to_string();
        assert!(text.len() < 600, "{text}");
    }
}

/// A template of a tenant must not cost the other groups their controller: each of these ended the process, or would run
/// or grow without end, where it is not bounded. The stack is that of a worker thread.
#[test]
fn a_hostile_template_is_refused_within_its_bounds() {
    let of = |count: usize, open: &str, close: &str| format!("{}{close}", open.repeat(count));
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
        (of(1_000_000, "{{ if 1 }}", ""), "longer than"),
        (of(900, "{{ if 1 }}", ""), "is no Go template"),
        (of(900, "{{ else if 0 }}", "{{ end }}"), "{{ else }}"),
        (of(2000, "{{ 1 }}", ""), "1000 actions"),
        (format!("{{{{ print {} }}}}", "$ ".repeat(3000)), "more than 4096 bytes"),
        (of(999, "{{ $a := $ }}{{/* $ */}}", ""), ""),
        (of(40, &format!("{{{{ print {} }}}}", "$ ".repeat(700)), ""), "mentions values"),
        ("{{ range 1000 }}{{ printf \"%16000d\" 1 }}{{ end }}".into(), ""),
        ("{{ printf \"%1000000000d\" 1 }}".into(), ""),
        ("{{ printf \"%*d\" 1000000000 1 }}".into(), ""),
        ("{{ printf \"%.1000000000f\" 1.5 }}".into(), ""),
        ("{{ '\\'' }}".into(), "character constant"),
        ("{{".into(), "nothing closes"),
        ("{{ \"".into(), "nothing closes"),
        ("{{ `".into(), "nothing closes"),
        ("{{/*".into(), "nothing closes"),
        ("\u{e9}{{ \"\\\u{e9}\" }}".into(), "is no Go template"),
    ];
    let on_a_small_stack = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for (text, wanted) in hostile {
            let shown: String = text.chars().take(60).collect();
            match render(&text) {
                Err(problem) => assert!(problem.rule.contains(wanted), "{shown}: {problem}"),
                // Some are harmless, and then small.
                Ok(out) => assert!(wanted.is_empty() && out.len() <= template::MOST_OUTPUT, "{shown}: {}", out.len()),
            }
        }
    });
    on_a_small_stack.expect("a thread").join().expect("nothing panics");
}

// What it renders to.

fn policy(text: &str) -> Policy {
    let data = [("policy".to_owned(), text.to_owned())].into();
    Boundaries::parse(&data).expect("a policy").0.policy
}

fn allowed(text: &str) -> Allowed {
    let policy = if text.is_empty() { Policy::default() } else { policy(text) };
    Allowed { policy, config_namespace: "instance-manager".into() }
}

const PURPOSE_ID: &str = "20260101000000-3";
const PURPOSE: Purpose<'static> = Purpose { group_namespace: "team", scaling_group: "demo-team-web", id: PURPOSE_ID };

fn judged(rendered: &str, policy: &str) -> Result<Request, Problem> {
    request(rendered, &allowed(policy), &PURPOSE)
}

fn object(kind: &str, api: &str, metadata: &str) -> String {
    format!("apiVersion: {api}\nkind: {kind}\nmetadata: {metadata}\nspec: {{asgName: demo-team-web}}\n")
}

/// Kind by scope by namespace by where the words come from: what is not allowed is refused, whoever wrote it and however.
#[test]
fn only_kinds_and_namespaces_that_the_admin_allows_are_submitted() {
    let kinds = [
        ("RollingUpgrade", "upgrademgr.keikoproj.io/v1alpha1", true, false),
        ("Workflow", "argoproj.io/v1alpha1", true, false),
        ("WorkflowTemplate", "argoproj.io/v1alpha1", false, false),
        ("RollingUpgrade", "argoproj.io/v1alpha1", false, false),
        ("Workflow", "upgrademgr.keikoproj.io/v1alpha1", false, false),
        ("Workflow", "argoproj.io.example.com/v1", false, false),
        ("Job", "batch/v1", false, true),
        ("Pod", "v1", false, false),
        ("Secret", "v1", false, false),
        ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", false, false),
        ("InstanceGroup", "instancemgr.keikoproj.io/v1alpha1", false, false),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", false, false),
        ("List", "v1", false, false),
    ];
    let namespaces = [("team", true), ("instance-manager", true), ("ops", false), ("kube-system", false), ("", false)];
    let listed = "{strategyKinds: [Job.batch], strategyNamespaces: [ops]}";
    let mut checked = 0;
    for (kind, api, by_default, by_list) in kinds {
        for (namespace, own) in namespaces {
            for namespaced in [true, false] {
                for templated in [true, false] {
                    for (rules, kind_allowed, place_allowed) in
                        [("", by_default, own), (listed, by_list, own || namespace == "ops")]
                    {
                        checked += 1;
                        let text = if templated {
                            // The words come out of the group itself.
                            let words = [kind, api, namespace];
                            let [kind, api, namespace] =
                                words.map(|word| format!("{{{{ printf \"%s\" \"{word}\" }}}}"));
                            render(&object(
                                &format!("\"{kind}\""),
                                &api,
                                &format!("{{name: up, namespace: \"{namespace}\"}}"),
                            ))
                            .expect("it renders")
                        } else {
                            object(kind, api, &format!("{{name: up, namespace: \"{namespace}\"}}"))
                        };
                        let plural = format!("{}s", kind.to_ascii_lowercase());
                        let served = Served { plural: plural.clone(), namespaced };
                        let found = judged(&text, rules).and_then(|request| fits(&request, &served, &plural));
                        let wanted = kind_allowed && place_allowed && namespaced;
                        let case = format!("{kind} {api} {namespace} {namespaced} {templated} {rules}: {found:?}");
                        assert_eq!(found.is_ok(), wanted, "{case}");
                        if let Err(problem) = found {
                            assert_eq!(problem.reason, Reason::PolicyViolation, "{case}");
                            assert!(problem.path == "spec.strategy.crd.spec" && !problem.remedy.is_empty(), "{case}");
                        }
                    }
                }
            }
        }
    }
    assert_eq!(checked, 13 * 5 * 2 * 2 * 2);
}

#[test]
fn what_a_template_may_not_say_of_a_resource_is_refused_by_name() {
    let with = |metadata: &str, more: &str| {
        object("Workflow", "argoproj.io/v1alpha1", &format!("{{namespace: team, {metadata}}}")) + more
    };
    for (text, wanted) in [
        (with("name: up, ownerReferences: []", ""), "metadata.ownerReferences"),
        (with("name: up, finalizers: [a]", ""), "metadata.finalizers"),
        (with("name: up, uid: x", ""), "metadata.uid"),
        (with("name: up, resourceVersion: \"1\"", ""), "metadata.resourceVersion"),
        (with("name: up, deletionTimestamp: x", ""), "metadata.deletionTimestamp"),
        (with("name: up, managedFields: []", ""), "metadata.managedFields"),
        (with("name: up, labels: {a: 1}", ""), "metadata.labels"),
        (with("name: up, annotations: [a]", ""), "metadata.annotations"),
        (with("name: 7", ""), "metadata.name"),
        (with("labels: {}", ""), "metadata.name"),
        (with("name: ../../../api/v1/namespaces/kube-system/secrets", ""), "is no name of a resource"),
        (with("name: Up", ""), "is no name of a resource"),
        (with("name: up", "status: {phase: Succeeded}\n"), "`status`"),
        (with("name: up", "---\n") + &with("name: two", ""), "renders to 2 documents"),
        (with("name: up", "---\nkind: Pod\n"), "renders to 2 documents"),
        ("- a\n- b\n".into(), "renders to no object"),
        (String::new(), "renders to no object"),
        ("a: [".into(), "renders to no YAML"),
        ("kind: Workflow\napiVersion: argoproj.io/v1alpha1\nmetadata: up\n".into(), "`metadata`"),
        (object("Workflow", "argoproj.io/../../api", "{name: up, namespace: team}"), "is no version of an API"),
        (format!("x: {}", "[".repeat(500)), "renders to no YAML"),
        ("a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: &d [*c, *c, *c, *c]\ne: &e [*d, *d, *d, *d]\nf: &f [*e, *e, *e, *e]\ng: &g [*f, *f, *f, *f]\nh: &h [*g, *g, *g, *g]\ni: [*h, *h, *h, *h]\n".into(), "renders to no YAML"),
        (object("RollingUpgrade", "upgrademgr.keikoproj.io/v1alpha1", "{name: up, namespace: team}").replace("demo-team-web", "demo-other-db"), "`demo-other-db` is not this group's own scaling group"),
    ] {
        let problem = judged(&text, "").expect_err(&text);
        assert!(problem.to_string().contains(wanted), "{text}: {problem}");
        assert!(!problem.remedy.is_empty());
    }
    // A trailing separator is no second document.
    assert!(judged(&(with("name: up", "") + "---\n"), "").is_ok());
}

#[test]
fn a_crd_name_that_names_another_crd_is_told() {
    let text = object("Workflow", "argoproj.io/v1alpha1", "{name: up, namespace: team}");
    let request = judged(&text, "").expect("allowed");
    let served = Served { plural: "workflows".into(), namespaced: true };
    for name in ["workflows", "Workflows", "workflows.argoproj.io"] {
        assert!(fits(&request, &served, name).is_ok(), "{name}");
    }
    let problem = fits(&request, &served, "rollingupgrades").expect_err("another CRD");
    assert_eq!(problem.path, "spec.strategy.crd.crdName");
    assert!(problem.rule.contains("workflows.argoproj.io"), "{problem}");
}

#[test]
fn a_resource_is_named_for_what_is_wanted_and_says_whose_it_is() {
    let long = "a".repeat(50);
    for (metadata, wanted) in [
        ("name: up".to_owned(), "up-20260101000000-3".to_owned()),
        ("name: up-20260101000000-3".into(), "up-20260101000000-3".into()),
        ("generateName: up-".into(), "up--20260101000000-3".into()),
        ("name: x, generateName: up".into(), "up-20260101000000-3".into()),
        (format!("name: {long}"), "instancemgr-20260101000000-3".into()),
    ] {
        let text = object(
            "Workflow",
            "argoproj.io/v1alpha1",
            &format!("{{namespace: team, annotations: {{a: b}}, {metadata}}}"),
        );
        let found = judged(&text, "").expect(&metadata);
        assert_eq!(found.name, wanted, "{metadata}");
        let metadata = &found.object.expose()["metadata"];
        assert_eq!(metadata["name"], json!(wanted));
        assert_eq!(
            metadata["annotations"],
            json!({"a": "b", "app.kubernetes.io/managed-by": "instance-manager", "instancemgr.keikoproj.io/upgrade-scope": "demo-team-web"})
        );
    }
}

#[test]
fn a_resource_without_a_namespace_goes_to_default_where_that_is_allowed() {
    let text = object("Workflow", "argoproj.io/v1alpha1", "{name: up}");
    assert!(judged(&text, "").is_err());
    let found = judged(&text, "{strategyNamespaces: [default]}").expect("listed");
    assert_eq!(
        (found.namespace.as_str(), &found.object.expose()["metadata"]["namespace"]),
        ("default", &json!("default"))
    );
}

#[test]
fn a_status_is_one_text_at_the_end_of_a_path() {
    let resource = json!({"status": {"phase": "Running", "n": 3, "nodes": {}, "list": []}});
    for (path, wanted) in [
        (".status.phase", Ok("Running")),
        ("status.phase", Ok("Running")),
        ("{.status.phase}", Ok("Running")),
        ("$.status.phase", Ok("Running")),
        ("{$.status.phase}", Ok("Running")),
        (".status.n", Ok("3")),
        (".status.later", Ok("")),
        (".status.phase.deeper", Ok("")),
        (".status.nodes", Err("an object")),
        (".status", Err("an object")),
        (".status.list", Err("a list")),
    ] {
        let found = StatusPath::parse(path).expect(path).read(&resource);
        assert_eq!(found.as_deref().map_err(|what| *what), wanted, "{path}");
    }
    for path in ["", ".", "..", ".status..phase", ".status[0]", "{.status.phase", ".status.*", "$"] {
        assert_eq!(StatusPath::parse(path), None, "{path}");
    }
}

// Decisions.

const WANTED: &str = "up-20260101000000-3";

struct World {
    status: Value,
    outdated: usize,
    concurrency: ConcurrencyPolicy,
    max_retries: Option<i64>,
    rotate_at: Option<Timestamp>,
    resources: Vec<Resource>,
}

fn world(resources: Vec<Resource>) -> World {
    World {
        status: json!({}),
        outdated: 2,
        concurrency: ConcurrencyPolicy::Forbid,
        max_retries: Some(2),
        rotate_at: None,
        resources,
    }
}

impl World {
    fn remembers(mut self, name: &str, retries: i64, state: &str, uid: Option<&str>) -> Self {
        self.status = json!({"strategyResourceName": name, "strategyResourceNamespace": "ops", "strategyRetryCount": retries,
            "strategyProgress": {"state": state, "uid": uid}});
        self
    }

    fn decide(&self) -> Decision {
        let status: InstanceGroupStatus = serde_json::from_value(self.status.clone()).expect("a status");
        decide(&Input {
            kind: "Workflow.argoproj.io".into(),
            namespace: "ops",
            wanted: WANTED,
            concurrency: self.concurrency,
            max_retries: self.max_retries,
            path: ".status.phase".into(),
            outdated: self.outdated,
            rotate_at: self.rotate_at,
            status: &status,
            resources: &self.resources,
        })
    }

    /// What a controller that was killed after so many acts finds: only what those left.
    fn after(mut self, acts: &[Act]) -> Self {
        for act in acts {
            match act {
                Act::Record(patch) => crate::api::merge_patch(&mut self.status, patch),
                Act::Delete { uid, .. } => self.resources.retain(|r| r.uid != *uid),
                Act::Submit => {
                    assert!(!self.resources.iter().any(|r| r.name == WANTED), "one name is one resource");
                    let uid = format!("made-{}", self.status["strategyRetryCount"]);
                    self.resources.push(made(WANTED, &uid, Phase::Active(String::new())));
                }
            }
        }
        self
    }
}

fn made(name: &str, uid: &str, phase: Phase) -> Resource {
    Resource {
        name: name.into(),
        uid: uid.into(),
        created: Some(Timestamp::UNIX_EPOCH),
        ours: true,
        deleting: false,
        phase,
    }
}

/// The acts in short.
fn acts(decision: &Decision) -> Vec<String> {
    let act = |act: &Act| match act {
        Act::Record(patch) => format!(
            "record {} {}",
            patch["strategyRetryCount"],
            patch["strategyProgress"]["state"].as_str().unwrap_or_default()
        ),
        Act::Delete { name, uid } => format!("delete {name} {uid}"),
        Act::Submit => "submit".into(),
    };
    decision.acts.iter().map(act).collect()
}

fn stand(decision: &Decision) -> &'static str {
    match decision.stand {
        Stand::Done => "done",
        Stand::Acted(_) => "acted",
        Stand::Waiting(_) => "waiting",
        Stand::Blocked(reason, _) => match reason {
            Reason::StrategyFailed => "failed",
            Reason::NotOurs => "not ours",
            Reason::InvalidSpec => "invalid",
            _ => "blocked",
        },
    }
}

fn active(name: &str) -> Resource {
    made(name, "u1", Phase::Active("Running".into()))
}

#[test]
fn what_is_done_follows_from_what_is_there_and_what_is_remembered() {
    let wanted = |phase: Phase| vec![made(WANTED, "u1", phase)];
    let other = || vec![active("up-20260101000000-2")];
    let cases: Vec<(&str, World, &[&str], &str)> = vec![
        ("nothing is there", world(vec![]), &["record 0 Submitted", "submit"], "acted"),
        ("nothing is outdated", World { outdated: 0, ..world(vec![]) }, &[], "done"),
        ("it is at work", world(vec![active(WANTED)]), &[], "waiting"),
        ("it works on after the last node", World { outdated: 0, ..world(vec![active(WANTED)]) }, &[], "waiting"),
        (
            "success",
            World { outdated: 0, ..world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")) },
            &[],
            "done",
        ),
        (
            "success a moment too early",
            world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")),
            &[],
            "waiting",
        ),
        (
            "success and old nodes",
            world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUCCEEDED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "a success of an earlier time",
            world(wanted(Phase::Succeeded)).remembers("up-20260101000000-2", 0, state::SUCCEEDED, Some("u0")),
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "a failure of an earlier time",
            world(wanted(Phase::Failed)).remembers("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "a success before rotate-at",
            World {
                rotate_at: Some(Timestamp::MAX),
                ..world(wanted(Phase::Succeeded)).remembers(WANTED, 0, state::SUCCEEDED, Some("u1"))
            },
            &["record 0 Submitted", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "the first failure",
            world(wanted(Phase::Failed)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")),
            &["record 1 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "the last failure",
            world(wanted(Phase::Failed)).remembers(WANTED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        (
            "a failure, retries without end",
            World {
                max_retries: None,
                ..world(wanted(Phase::Failed)).remembers(WANTED, 99, state::SUBMITTED, Some("u1"))
            },
            &["record 100 Retrying", "delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "no retries",
            World {
                max_retries: Some(0),
                ..world(wanted(Phase::Failed)).remembers(WANTED, 0, state::SUBMITTED, Some("u1"))
            },
            &[],
            "failed",
        ),
        (
            "a failure after the last node",
            World { outdated: 0, ..world(wanted(Phase::Failed)).remembers(WANTED, 0, state::SUBMITTED, Some("u1")) },
            &[],
            "failed",
        ),
        ("an old failure, nothing outdated", World { outdated: 0, ..world(wanted(Phase::Failed)) }, &[], "done"),
        (
            "killed after the count",
            world(wanted(Phase::Failed)).remembers(WANTED, 1, state::RETRYING, Some("u1")),
            &["delete up-20260101000000-3 u1"],
            "acted",
        ),
        (
            "killed after the deletion",
            world(vec![]).remembers(WANTED, 1, state::RETRYING, Some("u1")),
            &["submit"],
            "acted",
        ),
        (
            "killed before the submission",
            world(vec![]).remembers(WANTED, 0, state::SUBMITTED, None),
            &["submit"],
            "acted",
        ),
        (
            "deleted by someone",
            world(vec![]).remembers(WANTED, 1, state::SUBMITTED, Some("u1")),
            &["record 2 Submitted", "submit"],
            "acted",
        ),
        (
            "deleted by someone too often",
            world(vec![]).remembers(WANTED, 2, state::SUBMITTED, Some("u1")),
            &[],
            "failed",
        ),
        ("still gone", world(vec![]).remembers(WANTED, 2, state::GONE, None), &[], "failed"),
        (
            "more retries given",
            World { max_retries: Some(3), ..world(vec![]).remembers(WANTED, 2, state::GONE, None) },
            &["record 3 Submitted", "submit"],
            "acted",
        ),
        (
            "the failed one was deleted by someone",
            world(vec![]).remembers(WANTED, 2, state::FAILED, Some("u1")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "another version is wanted",
            world(vec![]).remembers("up-20260101000000-2", 2, state::FAILED, Some("u0")),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        ("forbid", world(other()), &[], "waiting"),
        (
            "allow",
            World { concurrency: ConcurrencyPolicy::Allow, ..world(other()) },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace",
            World { concurrency: ConcurrencyPolicy::Replace, ..world(other()) },
            &["delete up-20260101000000-2 u1"],
            "acted",
        ),
        (
            "replace, on its way out",
            World {
                concurrency: ConcurrencyPolicy::Replace,
                ..world(vec![Resource { deleting: true, ..active("x") }])
            },
            &[],
            "waiting",
        ),
        (
            "forbid, and the other has ended",
            world(vec![made("x", "u0", Phase::Failed)]),
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "replace leaves what is not ours",
            World { concurrency: ConcurrencyPolicy::Replace, ..world(vec![Resource { ours: false, ..active("x") }]) },
            &["record 0 Submitted", "submit"],
            "acted",
        ),
        (
            "taken back while another works",
            World { outdated: 0, ..world(other()).remembers("up-20260101000000-2", 0, state::SUBMITTED, Some("u1")) },
            &[],
            "waiting",
        ),
        ("someone else's", world(vec![Resource { ours: false, ..active(WANTED) }]), &[], "not ours"),
        (
            "on its way out",
            world(vec![Resource { deleting: true, ..made(WANTED, "u1", Phase::Failed) }]),
            &[],
            "waiting",
        ),
        ("no text where the status is", world(wanted(Phase::Unreadable("an object"))), &[], "invalid"),
    ];
    for (case, world, wanted, how) in cases {
        let decision = world.decide();
        let found = acts(&decision);
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), stand(&decision)),
            (wanted.to_vec(), how),
            "{case}"
        );
        if let Stand::Blocked(_, message) = &decision.stand {
            assert!(message.contains(WANTED) && message.contains(';'), "{case}: {message}");
        }
    }
}

/// A controller that dies between any two acts makes no second resource, and gives no retry away or a further one.
#[test]
fn a_failing_upgrade_is_tried_as_often_as_it_may_be_wherever_the_controller_is_killed() {
    for killed_after in 0..4 {
        let mut now = world(vec![]);
        let (mut submitted, mut passes) = (0, 0);
        let last = loop {
            passes += 1;
            assert!(passes < 50, "it comes to an end");
            let decision = now.decide();
            if let Some(progress) = &decision.progress {
                now.status["strategyProgress"] = json!(progress);
            }
            // Every other pass is cut short.
            let most = if passes % 2 == 0 { killed_after } else { decision.acts.len() };
            let done = &decision.acts[..decision.acts.len().min(most)];
            submitted += done.iter().filter(|act| **act == Act::Submit).count();
            now = now.after(done);
            match stand(&decision) {
                "acted" => {}
                // Whatever is made fails.
                "waiting" => now.resources.iter_mut().for_each(|r| r.phase = Phase::Failed),
                _ => break decision,
            }
        };
        assert_eq!((stand(&last), submitted), ("failed", 3), "killed after {killed_after}: {last:?}");
    }
}

#[test]
fn a_group_waits_for_what_its_strategy_has_yet_to_say() {
    for (state, wanted) in [
        (Some(state::SUBMITTED), true),
        (Some(state::RETRYING), true),
        (Some(state::FAILED), true),
        (Some(state::GONE), true),
        (Some(state::SUCCEEDED), false),
        (None, false),
    ] {
        let progress = state.map(|state| StrategyProgress { state: Some(state.into()), uid: None });
        let status = InstanceGroupStatus { strategy_progress: progress, ..InstanceGroupStatus::default() };
        assert_eq!(open(&status), wanted, "{state:?}");
    }
}
