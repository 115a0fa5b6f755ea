//! Validation of rendered resources, and the path of their status.

use serde_json::{Value, json};

use super::render;
use crate::api::spec_error::SpecError;
use crate::boundaries::{Boundaries, Policy};
use crate::plan::StalledReason;
use crate::rotation::crd::decide::ResourcePhase;
use crate::rotation::crd::resource::{
    RenderTarget, RenderedResource, limits_script_text, resolve_kind, validate_resource, validate_script_text,
};
use crate::rotation::crd::template_context::plain_words;
use crate::rotation::crd::{DiscoveredKind, ResourceKind, StatusMatcher, StatusPath, SubmissionPolicy, TemplateAuthor};

fn policy(text: &str) -> Policy {
    let data = [("policy".to_owned(), text.to_owned())].into();
    Boundaries::parse(&data).expect("a policy").0.policy
}

fn allowed(text: &str) -> SubmissionPolicy {
    let policy = if text.is_empty() { Policy::default() } else { policy(text) };
    SubmissionPolicy { policy, config_namespace: "instance-manager".into(), author: TemplateAuthor::Tenant }
}

const VERSION_ID: &str = "20260101000000-3";
const TARGET: RenderTarget<'static> =
    RenderTarget { group_namespace: "team", scaling_group: "demo-team-web", version_id: VERSION_ID };

fn validate(rendered: &str, policy: &str) -> Result<RenderedResource, SpecError> {
    validate_resource(rendered, &allowed(policy), &TARGET)
}

fn object(kind: &str, api: &str, metadata: &str) -> String {
    format!("apiVersion: {api}\nkind: {kind}\nmetadata: {metadata}\nspec: {{asgName: demo-team-web}}\n")
}

/// Every combination of kind, scope, namespace and source of the text: only what the policy allows is accepted.
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
    let namespaces = [("team", true), ("instance-manager", false), ("ops", false), ("kube-system", false), ("", false)];
    let lists = "{strategyKinds: [Job.batch], strategyNamespaces: [ops]}";
    let mut checked = 0;
    for (kind, api, by_default, by_list) in kinds {
        for (namespace, always_allowed) in namespaces {
            for namespaced in [true, false] {
                for templated in [true, false] {
                    for (rules, kind_allowed, namespace_allowed) in
                        [("", by_default, always_allowed), (lists, by_list, always_allowed || namespace == "ops")]
                    {
                        checked += 1;
                        let text = if templated {
                            // A template prints the values.
                            let values = [kind, api, namespace];
                            let [kind, api, namespace] =
                                values.map(|value| format!("{{{{ printf \"%s\" \"{value}\" }}}}"));
                            render(&object(
                                &format!("\"{kind}\""),
                                &api,
                                &format!("{{name: up, namespace: \"{namespace}\"}}"),
                            ))
                            .expect("the template renders")
                        } else {
                            object(kind, api, &format!("{{name: up, namespace: \"{namespace}\"}}"))
                        };
                        let plural = format!("{}s", kind.to_ascii_lowercase());
                        let served = DiscoveredKind { plural: plural.clone(), namespaced };
                        let found = validate(&text, rules).and_then(|request| resolve_kind(&request, &served, &plural));
                        let expected = kind_allowed && namespace_allowed && namespaced;
                        let case = format!("{kind} {api} {namespace} {namespaced} {templated} {rules}: {found:?}");
                        assert_eq!(found.is_ok(), expected, "{case}");
                        if let Err(problem) = found {
                            assert_eq!(problem.reason, StalledReason::PolicyViolation, "{case}");
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
fn forbidden_resource_fields_are_rejected_by_name() {
    let with = |metadata: &str, more: &str| {
        object("Workflow", "argoproj.io/v1alpha1", &format!("{{namespace: team, {metadata}}}")) + more
    };
    for (text, expected) in [
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
        (with("name: ../../../api/v1/namespaces/kube-system/secrets", ""), "is not a valid resource name"),
        (with("name: Up", ""), "is not a valid resource name"),
        (with("name: up", "status: {phase: Succeeded}\n"), "`status`"),
        (with("name: up", "---\n") + &with("name: two", ""), "renders to 2 documents"),
        (with("name: up", "---\nkind: Pod\n"), "renders to 2 documents"),
        ("- a\n- b\n".into(), "does not render to an object"),
        (String::new(), "does not render to an object"),
        ("a: [".into(), "does not render to valid YAML"),
        ("kind: Workflow\napiVersion: argoproj.io/v1alpha1\nmetadata: up\n".into(), "`metadata`"),
        (object("Workflow", "argoproj.io/../../api", "{name: up, namespace: team}"), "is not a valid API version"),
        (format!("x: {}", "[".repeat(500)), "does not render to valid YAML"),
        ("a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: &d [*c, *c, *c, *c]\ne: &e [*d, *d, *d, *d]\nf: &f [*e, *e, *e, *e]\ng: &g [*f, *f, *f, *f]\nh: &h [*g, *g, *g, *g]\ni: [*h, *h, *h, *h]\n".into(), "does not render to valid YAML"),
        (object("RollingUpgrade", "upgrademgr.keikoproj.io/v1alpha1", "{name: up, namespace: team}").replace("demo-team-web", "demo-other-db"), "`demo-other-db` is not this group's own scaling group"),
    ] {
        let problem = validate(&text, "").expect_err(&text);
        assert!(problem.to_string().contains(expected), "{text}: {problem}");
        assert!(!problem.remedy.is_empty());
    }
    // A trailing separator is not a second document.
    assert!(validate(&(with("name: up", "") + "---\n"), "").is_ok());
}

/// The fields of upgrade-manager's RollingUpgradeSpec that it runs with `/bin/sh -c` (api/v1alpha1, script_runner.go).
#[test]
fn only_the_admin_may_submit_scripts() {
    let upgrade = |hooks: &str| {
        format!(
            "apiVersion: upgrademgr.keikoproj.io/v1alpha1\nkind: RollingUpgrade\nmetadata: {{name: up, namespace: team}}\nspec: {{asgName: demo-team-web, {hooks}}}\n"
        )
    };
    let submit = |hooks: &str, rules: &str, author| {
        let allowed = SubmissionPolicy { author, ..allowed(rules) };
        validate_resource(&upgrade(hooks), &allowed, &TARGET)
    };
    for (hooks, path) in [
        ("preDrain: {script: canary}", "spec.preDrain.script"),
        ("postDrain: {script: canary}", "spec.postDrain.script"),
        ("postDrain: {postWaitScript: canary}", "spec.postDrain.postWaitScript"),
        ("postTerminate: {script: canary}", "spec.postTerminate.script"),
        ("PreDrain: {SCRIPT: canary}", "spec.preDrain.script"),
        ("preDrain: {script: [canary]}", "spec.preDrain.script"),
    ] {
        let problem = submit(hooks, "", TemplateAuthor::Tenant).expect_err(hooks);
        assert_eq!((problem.reason, &*problem.value), (StalledReason::PolicyViolation, path), "{hooks}");
        assert!(!problem.to_string().contains("canary"), "{problem}");
        assert!(submit(hooks, "strategyScripts: [other]", TemplateAuthor::Tenant).is_err(), "{hooks}");
        assert!(submit(hooks, "strategyScripts: [te*]", TemplateAuthor::Tenant).is_ok(), "{hooks}");
        assert!(
            submit(hooks, "", TemplateAuthor::Admin).is_ok() && submit(hooks, "", TemplateAuthor::Unlimited).is_ok()
        );
    }
    for hooks in ["postDrain: {waitSeconds: 60}", "preDrain: {script: ''}", "preDrain: null", "forceRefresh: true"] {
        assert!(submit(hooks, "", TemplateAuthor::Tenant).is_ok(), "{hooks}");
    }
}

#[test]
fn scripts_of_the_admin_contain_no_text_of_the_tenant() {
    let resource = |script: &str| {
        let text = object("RollingUpgrade", "upgrademgr.keikoproj.io/v1alpha1", "{name: up, namespace: team}");
        format!(
            "{}  preDrain:\n    script: {}\n",
            text.replace("spec: {asgName: demo-team-web}", "spec:\n  asgName: demo-team-web"),
            json!(script)
        )
    };
    let admins = SubmissionPolicy { author: TemplateAuthor::Admin, ..allowed("") };
    let check = |rendered: &str, plain: &str| {
        let found = validate_resource(&resource(rendered), &admins, &TARGET).expect("the admin's");
        validate_script_text(&found, || Ok(resource(plain)))
    };
    assert!(check("run web", "run web").is_ok());
    let problem = check("run web; canary", "run x").expect_err("text of the tenant");
    assert!(problem.reason == StalledReason::PolicyViolation && !problem.to_string().contains("canary"), "{problem}");
    let words = plain_words(&json!({"a": "web-1", "b": "a b", "c": ["$(x)", "-f", "a\nb", 7], "d e": "x/y"}));
    assert_eq!(words, json!({"a": "web-1", "b": "x", "c": ["x", "x", "x", 7], "x": "x/y"}));
    assert!(limits_script_text(&admins, "team") && !limits_script_text(&allowed(""), "team"));
}

#[test]
fn namespace_of_the_config_map_is_the_admins() {
    let text = object("Workflow", "argoproj.io/v1alpha1", "{name: up, namespace: instance-manager}");
    let submit =
        |author, rules: &str| validate_resource(&text, &SubmissionPolicy { author, ..allowed(rules) }, &TARGET).is_ok();
    assert!(
        !submit(TemplateAuthor::Tenant, "") && submit(TemplateAuthor::Tenant, "strategyNamespaces: [instance-manager]")
    );
    assert!(submit(TemplateAuthor::Admin, "") && submit(TemplateAuthor::Unlimited, ""));
}

#[test]
fn mismatched_crd_name_is_reported() {
    let text = object("Workflow", "argoproj.io/v1alpha1", "{name: up, namespace: team}");
    let request = validate(&text, "").expect("allowed");
    let served = DiscoveredKind { plural: "workflows".into(), namespaced: true };
    for name in ["workflows", "Workflows", "workflows.argoproj.io"] {
        assert!(resolve_kind(&request, &served, name).is_ok(), "{name}");
    }
    let problem = resolve_kind(&request, &served, "rollingupgrades").expect_err("another CRD");
    assert_eq!(problem.path, "spec.strategy.crd.crdName");
    assert!(problem.rule.contains("workflows.argoproj.io"), "{problem}");
}

#[test]
fn resource_name_and_owner_annotations_are_set() {
    let long = "a".repeat(50);
    for (metadata, expected) in [
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
        let found = validate(&text, "").expect(&metadata);
        assert_eq!(found.name, expected, "{metadata}");
        let metadata = &found.object.expose()["metadata"];
        assert_eq!(metadata["name"], json!(expected));
        assert_eq!(
            metadata["annotations"],
            json!({"a": "b", "app.kubernetes.io/managed-by": "instance-manager", "instancemgr.keikoproj.io/upgrade-scope": "demo-team-web"})
        );
    }
}

#[test]
fn missing_namespace_means_default_if_allowed() {
    let text = object("Workflow", "argoproj.io/v1alpha1", "{name: up}");
    assert!(validate(&text, "").is_err());
    let found = validate(&text, "{strategyNamespaces: [default]}").expect("listed");
    assert_eq!(
        (found.namespace.as_str(), &found.object.expose()["metadata"]["namespace"]),
        ("default", &json!("default"))
    );
}

#[test]
fn status_path_reads_one_scalar() {
    let resource = json!({"status": {"phase": "Running", "n": 3, "nodes": {}, "list": []}});
    for (path, expected) in [
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
        assert_eq!(found.as_deref().map_err(|what| *what), expected, "{path}");
    }
    for path in ["", ".", "..", ".status..phase", ".status[0]", "{.status.phase", ".status.*", "$"] {
        assert_eq!(StatusPath::parse(path), None, "{path}");
    }
}

/// A resource is read with the values that it was submitted with, even if the spec has changed since.
#[test]
fn submitted_resource_is_read_by_recorded_status_strings() {
    let from_progress =
        |progress: &Value| StatusMatcher::from_progress(&serde_json::from_value(progress.clone()).expect("progress"));
    let whole =
        json!({"statusJSONPath": ".status.phase", "statusSuccessString": "done", "statusFailureString": "broken"});
    let matcher = from_progress(&whole).expect("a matcher");
    let kind =
        ResourceKind { group: "ops.example.com".into(), version: "v1".into(), kind: "A".into(), plural: "as".into() };
    let phase = |value: &str| matcher.phase(&json!({"status": {"phase": value}}), &kind);
    assert_eq!((phase("Done"), phase("BROKEN")), (ResourcePhase::Succeeded, ResourcePhase::Failed));
    assert_eq!(phase("running"), ResourcePhase::Active("running".into()));
    assert_eq!(matcher.phase(&json!({"status": {"phase": {}}}), &kind), ResourcePhase::Unreadable("an object"));
    for field in ["statusJSONPath", "statusSuccessString", "statusFailureString"] {
        let mut part = whole.clone();
        part[field] = json!("");
        assert_eq!(from_progress(&part), None, "{field}");
    }
}

/// Error messages must be short enough for a condition.
#[test]
fn template_errors_are_short() {
    let long = "x".repeat(3000);
    let errors = [
        render(&format!("{{{{ .InstanceGroup.{long} }}}}")).map(drop),
        render(&format!("{{{{ {long} }}}}")).map(drop),
        validate(&object(&long, "argoproj.io/v1alpha1", "{name: up}"), "").map(drop),
        validate(&object("Workflow", &format!("{long}/v1"), "{name: up}"), "").map(drop),
        validate(&object("Workflow", &format!("argoproj.io/{long}-"), "{name: up, namespace: team}"), "").map(drop),
        validate(&object("Workflow", "argoproj.io/v1alpha1", &format!("{{name: up, namespace: {long}}}")), "")
            .map(drop),
        validate(&object("Workflow", "argoproj.io/v1alpha1", &format!("{{name: up, {long}: a}}")), "").map(drop),
        validate(
            &object("Workflow", "argoproj.io/v1alpha1", &format!("{{name: {long}{VERSION_ID}, namespace: team}}")),
            "",
        )
        .map(drop),
    ];
    for problem in errors {
        let text = problem.expect_err("an error").to_string();
        assert!(text.len() < 600, "{text}");
    }
}

/// The controller must know who deletes a resource that has ended: its time to live, or a user who wants another one.
#[test]
fn time_to_live_is_recognized() {
    for (spec, expected) in [
        ("{ttlStrategy: {secondsAfterCompletion: 60}}", true),
        ("{ttlSecondsAfterFinished: 60}", true),
        ("{ttlStrategy: null}", false),
        ("{}", false),
    ] {
        let text = format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: up, namespace: team}}\nspec: {spec}\n"
        );
        assert_eq!(validate(&text, "").expect("a resource").has_time_to_live(), expected, "{spec}");
    }
}
