//! Every example merges with its ConfigMap and decodes. `UPDATE_GOLDEN=1 cargo test --test it` regenerates the explanations.

use std::path::{Path, PathBuf};

use instance_manager::{
    api::{EksConfiguration, InstanceGroupSpec, decode_spec},
    cli::{
        explain::{self, ExplainArgs},
        input::{InputArgs, LoadResult, MergedGroup, load},
        render::{self, RenderArgs},
    },
};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn input(files: &[&str]) -> InputArgs {
    InputArgs { files: files.iter().map(|file| root(file)).collect(), ..InputArgs::default() }
}

fn merged(files: &[&str]) -> LoadResult {
    let outcome = load(&input(files), &mut std::io::empty()).expect("the files can be read");
    assert!(outcome.diagnostics.is_empty(), "{files:?}: {:?}", outcome.diagnostics);
    outcome
}

fn specs(files: &[&str]) -> Vec<InstanceGroupSpec> {
    let groups = merged(files).groups;
    groups.iter().map(|group| decode_spec(&group.merged.spec).expect("an example decodes")).collect()
}

fn configuration(spec: &InstanceGroupSpec) -> &EksConfiguration {
    spec.eks.as_ref().and_then(|eks| eks.configuration.as_ref()).expect("the group has a configuration")
}

/// Each example with its ConfigMap, if it needs one.
const EXAMPLES: [(&str, &[&str]); 17] = [
    ("full", &["examples/full.yaml"]),
    ("short", &["boundaries/basic.yaml", "examples/short.yaml"]),
    ("conditionals", &["boundaries/architectures.yaml", "examples/conditionals.yaml"]),
    ("own-role", &["examples/own-role.yaml"]),
    ("by-name", &["examples/by-name.yaml"]),
    ("bottlerocket", &["examples/bottlerocket.yaml"]),
    ("amazonlinux2023", &["examples/amazonlinux2023.yaml"]),
    ("windows", &["examples/windows.yaml"]),
    ("managed", &["examples/managed.yaml"]),
    ("mixed", &["examples/mixed.yaml"]),
    ("pool", &["examples/pool.yaml"]),
    ("in-place", &["examples/in-place.yaml"]),
    ("spot", &["examples/spot.yaml"]),
    ("warm-pool", &["examples/warm-pool.yaml"]),
    ("fargate", &["examples/fargate.yaml"]),
    ("crd-rolling-upgrade", &["examples/crd-rolling-upgrade.yaml"]),
    ("crd-workflow", &["examples/crd-workflow.yaml"]),
];

/// The two files must not drift apart: an admin moves from one to the other.
#[test]
fn boundaries_with_waves_are_the_basic_ones() {
    let data = |file: &str| {
        let text = std::fs::read_to_string(root(file)).expect("the file can be read");
        let map: serde_yaml::Value = serde_yaml::from_str(&text).expect("a ConfigMap");
        map["data"].as_mapping().expect("data").clone()
    };
    let mut waves = data("boundaries/waves.yaml");
    assert!(waves.remove("rollout").is_some());
    assert_eq!(merged(&["boundaries/waves.yaml", "examples/short.yaml"]).groups.len(), 1);
    assert_eq!(waves, data("boundaries/basic.yaml"));
}

#[test]
fn examples_are_complete_after_merge() {
    for (name, files) in EXAMPLES {
        for spec in specs(files) {
            if let Some(fargate) = &spec.eks_fargate {
                let complete = fargate.cluster_name.is_some() && fargate.selectors.is_some();
                assert!(complete && spec.provisioner.is_some() && spec.strategy.is_some(), "{name}");
                continue;
            }
            if let Some(managed) = &spec.eks_managed {
                let c = managed.configuration.as_ref().expect("the group has a configuration");
                let complete = c.cluster_name.is_some() && c.node_role.is_some() && c.subnets.is_some();
                assert!(complete && managed.max_size.is_some(), "{name}");
                continue;
            }
            let eks = spec.eks.as_ref().expect("an eks group");
            let configuration = configuration(&spec);
            let complete = configuration.cluster_name.is_some()
                && configuration.image.is_some()
                && configuration.instance_type.is_some()
                && configuration.subnets.is_some()
                && configuration.security_groups.is_some();
            assert!(
                complete && spec.provisioner.is_some() && eks.min_size.is_some() && eks.max_size.is_some(),
                "{name}"
            );
        }
    }
}

/// docs/install.md applies boundaries/basic.yaml, and says which examples go with it.
#[test]
fn examples_name_the_boundaries_they_need() {
    for (name, files) in EXAMPLES {
        let [alone] = files else {
            let with = files[0];
            let text = std::fs::read_to_string(root(files[1])).expect("the example can be read");
            assert!(text.contains(&format!("with {with}.")), "{name}");
            continue;
        };
        let text = std::fs::read_to_string(root(alone)).expect("the example can be read");
        let header = text.split("apiVersion:").next().unwrap_or_default();
        assert!(header.contains("a Namespace that skips the boundaries"), "{name}");
        let excluded = InputArgs { namespace_excluded: true, ..input(&["boundaries/basic.yaml", alone]) };
        let outcome = load(&excluded, &mut std::io::empty()).expect("the files can be read");
        assert!(outcome.diagnostics.is_empty(), "{name}: {:?}", outcome.diagnostics);
        let spec = |group: &MergedGroup| decode_spec(&group.merged.spec).expect("a spec");
        let complete: Vec<_> = outcome.groups.iter().map(spec).collect();
        assert_eq!(complete, specs(files), "{name}");
    }
}

#[test]
fn every_example_file_is_tested() {
    for (directory, known) in [
        ("examples", EXAMPLES.map(|(name, _)| name).to_vec()),
        ("boundaries", vec!["basic", "architectures", "strict", "waves"]),
    ] {
        let files =
            std::fs::read_dir(root(directory)).expect("the directory can be read").flatten().map(|entry| entry.path());
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
            let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            assert!(known.contains(&name.as_str()), "{directory}/{name}.yaml has no test");
        }
    }
    let tests = std::fs::read_to_string(root("src/rollout/tests/examples.rs")).expect("the tests can be read");
    for file in std::fs::read_dir(root("examples/rollouts")).expect("the directory can be read").flatten() {
        let name = file.file_name().into_string().expect("UTF-8");
        assert!(tests.contains(&format!("examples/rollouts/{name}\"")), "examples/rollouts/{name} has no test");
    }
}

#[test]
fn explanations_match_golden_files() {
    for (name, files) in EXAMPLES {
        let mut out = vec![];
        let args = ExplainArgs { input: input(files), ..ExplainArgs::default() };
        assert!(
            explain::run_with(&args, &mut std::io::empty(), &mut out, &mut std::io::sink()).expect("the command runs")
        );
        let text = String::from_utf8(out).expect("UTF-8");
        let path = root(&format!("tests/golden/explain/{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().expect("a parent directory")).expect("the directory is created");
            std::fs::write(&path, &text).expect("the golden file is written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{} is stale: run UPDATE_GOLDEN=1 cargo test --test it\n{text}", path.display());
    }
}

#[test]
fn basic_boundaries_override_the_image() {
    let group = "apiVersion: instancemgr.keikoproj.io/v1alpha1\nkind: InstanceGroup\nmetadata: {name: a, namespace: t}\nspec: {eks: {configuration: {image: ami-mine, instanceType: c5.large}}}\n";
    let args = input(&["boundaries/basic.yaml", "-"]);
    let args = InputArgs { files: vec![args.files[0].clone(), PathBuf::from("-")], ..args };
    let outcome = load(&args, &mut group.as_bytes()).expect("the input can be read");
    let spec = decode_spec(&outcome.groups[0].merged.spec).expect("a spec");
    assert_eq!(configuration(&spec).image.as_deref(), Some("ami-02100000000000001"));
    assert_eq!(configuration(&spec).instance_type.as_deref(), Some("c5.large"));
    let overridden = &outcome.groups[0].merged.overridden;
    assert_eq!(overridden.len(), 1);
    assert_eq!(overridden[0].path, "spec.eks.configuration.image");
}

#[test]
fn annotations_select_image_and_instance_type() {
    let image = |annotations: &str| {
        let group = format!(
            "kind: InstanceGroup\nmetadata: {{name: a, namespace: t, annotations: {{{annotations}}}}}\nspec: {{}}\n"
        );
        let args = InputArgs {
            files: vec![root("boundaries/architectures.yaml"), PathBuf::from("-")],
            ..InputArgs::default()
        };
        let outcome = load(&args, &mut group.as_bytes()).expect("the input can be read");
        let spec = decode_spec(&outcome.groups[0].merged.spec).expect("a spec");
        let configuration = configuration(&spec).clone();
        format!("{} {}", configuration.image.unwrap_or_default(), configuration.instance_type.unwrap_or_default())
    };
    let family = |name: &str| format!("instancemgr.keikoproj.io/os-family: {name}");
    let arm = "example.com/architecture: arm64";
    for (annotations, expected) in [
        (String::new(), "ami-01100000000000001 m5.large"),
        (family("amazonlinux2023"), "ami-02100000000000001 m5.large"),
        (family("bottlerocket"), "ami-03100000000000001 m5.large"),
        (arm.to_owned(), "ami-01200000000000001 m6g.large"),
        (format!("{arm}, {}", family("amazonlinux2023")), "ami-02200000000000001 m6g.large"),
        (format!("{arm}, {}", family("bottlerocket")), "ami-03200000000000001 m6g.large"),
    ] {
        assert_eq!(image(&annotations), expected, "{annotations}");
    }
}

#[test]
fn strict_tenancy_ignores_tenant_values() {
    let group = r#"
kind: Namespace
metadata: {name: sandbox-a, annotations: {instancemgr.keikoproj.io/config-excluded: "true"}}
---
kind: InstanceGroup
metadata:
  name: greedy
  namespace: sandbox-a
  annotations:
    instancemgr.keikoproj.io/default-labels: tier=platform
    instancemgr.keikoproj.io/os-family: windows
    instancemgr.keikoproj.io/cluster-autoscaler-enabled: "true"
spec:
  provisioner: eks-managed
  strategy: {type: crd, crd: {spec: canary-template}}
  eks:
    maxSize: 5
    configuration:
      image: ami-mine
      userData: [{name: x, stage: PreBootstrap, data: canary-data}]
      bootstrapArguments: canary-arguments
      lifecycleHooks: [{name: h, lifecycle: launch, roleArn: "arn:aws:iam::1:role/admin"}]
      volumes: [{name: /dev/xvdb, type: gp3, snapshotId: snap-1}]
      roleName: admin
      managedPolicies: [AdministratorAccess]
      tags: [{key: owner, value: me}]
"#;
    let args = InputArgs { files: vec![root("boundaries/strict.yaml"), PathBuf::from("-")], ..InputArgs::default() };
    let outcome = load(&args, &mut group.as_bytes()).expect("the input can be read");
    let effective = &outcome.groups[0].merged;
    let overridden: Vec<&str> = effective.overridden.iter().map(|value| value.path.as_str()).collect();
    assert_eq!(
        overridden,
        [
            "metadata.annotations.instancemgr.keikoproj.io/default-labels",
            "metadata.annotations.instancemgr.keikoproj.io/os-family",
            "spec.eks.configuration.bootstrapArguments",
            "spec.eks.configuration.image",
            "spec.eks.configuration.lifecycleHooks",
            "spec.eks.configuration.tags[owner]",
            "spec.eks.configuration.userData",
            "spec.eks.configuration.volumes[/dev/xvdb]",
            "spec.provisioner",
            "spec.strategy.crd",
            "spec.strategy.type",
            "spec.eks.configuration.managedPolicies",
        ]
    );
    let errors: Vec<String> = outcome.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 3, "{errors:#?}");
    for (error, expected) in errors.iter().zip([
        "roleName `admin` is not allowed by",
        "managedPolicies[0] `AdministratorAccess` is not allowed by",
        "spec.eks.maxSize `5 nodes` is more than policy.quotas[sandbox-*] leaves: sandbox-a may have 4 nodes",
    ]) {
        assert!(error.contains(expected), "{error} {expected}");
    }
    let reported = format!("{:?} {errors:?}", effective.overridden);
    assert!(!reported.contains("canary"), "{reported}");
}

fn render(text: &str, args: InputArgs) -> (bool, String, String) {
    let (mut out, mut err) = (vec![], vec![]);
    let args = RenderArgs { input: InputArgs { files: vec![PathBuf::from("-")], ..args } };
    let ok = render::run_with(&args, &mut text.as_bytes(), &mut out, &mut err).expect("the command runs");
    (ok, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

#[test]
fn errors_name_file_line_and_field() {
    let group = "kind: InstanceGroup\nmetadata: {name: a}\nspec:\n  eks:\n    minSize: 1\n";
    for (text, expected) in [
        (
            "kind: InstanceGroup\nspec:\n  eks:\n    minSize: three\n".to_owned(),
            "<stdin>:4: spec.eks.minSize: \"three\" is not a whole number; write a whole number\n",
        ),
        (
            format!("kind: ConfigMap\ndata:\n  defaults: |\n    spec:\n      eks:\n        minSize: [1]\n---\n{group}"),
            "<stdin>:6: defaults: spec.eks.minSize: [1] is not a whole number; write a whole number\n",
        ),
        (
            format!(
                "kind: ConfigMap\ndata:\n  conditionals: |\n    - annotationSelector: a\n    - annotationSelector: a b\n---\n{group}"
            ),
            "<stdin>:5: conditionals: [1].annotationSelector: is not a valid selector: found \"b\" after \"a\", expected one of = == != > < in notin; use the grammar of Kubernetes label selectors, such as 'a = b, c in (d, e), !f'\n",
        ),
        ("kind: InstanceGroup\nspec: [\n".to_owned(), "<stdin>:"),
        (
            "kind: Deployment\n".to_owned(),
            "<stdin>:1: warning: kind: is not InstanceGroup, ConfigMap or Namespace; the object is ignored\ninput: the input contains no InstanceGroup; add a file with one\n",
        ),
        (
            format!("kind: ConfigMap\n---\nkind: ConfigMap\n---\n{group}"),
            "<stdin>:3: the input contains more than one ConfigMap; keep one, named instance-manager in instance-manager\n",
        ),
    ] {
        let (ok, out, err) = render(&text, InputArgs::default());
        assert!(!ok && out.is_empty(), "{out}");
        assert!(err == expected || expected.ends_with(':') && err.starts_with(expected), "{err}");
    }
}

#[test]
fn excluded_namespace_is_unchanged() {
    let text = "kind: ConfigMap\ndata: {boundaries: '{restricted: [spec.eks.minSize]}', policy: '{roles: [], managedPolicies: []}'}\n---\nkind: InstanceGroup\nmetadata: {name: a}\nspec: {eks: {minSize: 1}}\n";
    let (_, out, _) = render(text, InputArgs { namespace_excluded: true, ..InputArgs::default() });
    assert!(out.contains("minSize: 1"), "{out}");
    let (_, out, _) = render(text, InputArgs::default());
    assert!(out.contains("kind: InstanceGroup") && !out.contains("minSize"), "{out}");
}

#[test]
fn kubectl_lists_are_accepted() {
    let text = "kind: List\nitems:\n- kind: InstanceGroup\n  metadata: {name: a}\n  spec: {eks: {minSize: 1}}\n- kind: InstanceGroup\n  metadata: {name: b}\n  spec:\n    eks: {minSize: x}\n";
    let (ok, out, err) = render(text, InputArgs::default());
    assert!(!ok && out.contains("name: a"), "{out}");
    assert!(err.starts_with("<stdin>:9: spec.eks.minSize"), "{err}");
}

#[test]
fn quota_counts_every_provisioner_and_recorded_nodes() {
    let config = "kind: ConfigMap\ndata: {policy: '{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], quotas: {t: {maxNodes: 10}}}'}\n";
    let group = |name: &str, spec: &str| {
        format!("---\nkind: InstanceGroup\nmetadata: {{name: {name}, namespace: t}}\n{spec}\n")
    };
    let last = group("last", "spec: {provisioner: eks, eks: {maxSize: 2}}");
    let rejected = |older: &[&str]| {
        let older: String = older.iter().enumerate().map(|(index, spec)| group(&format!("g{index}"), spec)).collect();
        let (_, _, err) = render(&format!("{config}{older}{last}"), InputArgs::default());
        err.contains("t/last: spec.eks.maxSize")
    };
    assert!(!rejected(&["spec: {provisioner: eks, eks: {maxSize: 8}}"]));
    assert!(rejected(&["spec: {provisioner: eks-managed, eks-managed: {maxSize: 9}}"]));
    assert!(rejected(&["spec: {provisioner: eks, eks: {maxSize: 1}}\nstatus: {currentMax: 9}"]));
    assert!(rejected(&["spec: {provisioner: eks, eks: {maxSize: 9, minSize: wrong}}"]), "an invalid group counts");
    assert!(rejected(&["spec: {provisioner: eks, eks: {maxSize: 6, warmPool: {minSize: 3}}}"]), "a warm pool counts");
    let huge = "spec: {provisioner: eks, eks: {maxSize: 9223372036854775807}}";
    assert!(!rejected(&[huge, huge, huge]), "what is rejected itself does not count");
    let huge = format!("{huge}\nstatus: {{currentMax: 9223372036854775807}}");
    assert!(rejected(&[&huge, &huge, &huge]), "what exists counts");
}

#[test]
fn default_labels_are_shown_as_labels() {
    let explain = |boundary: &str| {
        let text = format!(
            "kind: ConfigMap\ndata: {{boundaries: '{boundary}: [spec.eks.configuration.labels]{}', defaults: '{{spec: {{eks: {{configuration: {{labels: {{team: platform}}}}}}}}}}'}}\n---\nkind: InstanceGroup\nmetadata: {{name: a, annotations: {{instancemgr.keikoproj.io/default-labels: 'team=mine,new=1'}}}}\nspec: {{eks: {{minSize: 1}}}}\n",
            "}".repeat(boundary.matches('{').count())
        );
        let args = InputArgs { files: vec![PathBuf::from("-")], ..InputArgs::default() };
        let (mut out, mut err) = (vec![], vec![]);
        explain::run_with(
            &ExplainArgs { input: args, ..ExplainArgs::default() },
            &mut text.as_bytes(),
            &mut out,
            &mut err,
        )
        .expect("the command runs");
        let text = String::from_utf8(out).expect("UTF-8");
        let labels = text.lines().filter(|line| line.trim().starts_with("spec.eks.configuration.labels."));
        labels.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(
        explain("{shared: {mergeOverride"),
        ["spec.eks.configuration.labels.team tenant \"mine\"", "spec.eks.configuration.labels.new tenant \"1\""]
    );
    assert_eq!(
        explain("{shared: {merge"),
        [
            "spec.eks.configuration.labels.team default (shared.merge) \"platform\"",
            "spec.eks.configuration.labels.new tenant \"1\"",
        ]
    );
    assert_eq!(explain("restricted"), ["spec.eks.configuration.labels.team default (restricted) \"platform\""]);
}

#[test]
fn dropped_annotations_are_not_rendered() {
    let text = "kind: ConfigMap\ndata: {boundaries: '{restricted: [metadata.annotations]}'}\n---\nkind: InstanceGroup\nmetadata: {name: a, annotations: {mine: canary}}\nspec: {eks: {minSize: 1}}\n";
    let (_, out, _) = render(text, InputArgs::default());
    assert!(out.contains("name: a") && !out.contains("canary"), "{out}");
}

#[test]
fn keys_of_tenants_cannot_add_lines() {
    let text = r#"kind: ConfigMap
data: {boundaries: '{restricted: [spec.eks.configuration.taints], shared: {merge: [spec.eks.configuration.labels]}}', defaults: '{spec: {eks: {configuration: {labels: {"x\nforged": a}}}}}'}
---
kind: InstanceGroup
metadata: {name: "a\nforged"}
spec: {eks: {configuration: {labels: {"x\nforged": b, "y\nforged: default (restricted)": "c d"}, "z\nforged": 1}}}
"#;
    for text in explained(text) {
        assert!(text.contains("\\nforged") && !text.lines().any(|line| line.starts_with("forged")), "{text}");
    }
}

/// The copy that kubectl keeps has the whole manifest, and hides the few lines that count.
#[test]
fn annotations_that_set_nothing_are_not_explained() {
    let text = r#"kind: ConfigMap
data: {boundaries: '{}'}
---
kind: InstanceGroup
metadata: {name: a, annotations: {mine: b, kubectl.kubernetes.io/last-applied-configuration: whole, instancemgr.keikoproj.io/reconcile-now: c}}
spec: {eks: {minSize: 1}}
"#;
    let [out, _] = explained(text);
    assert!(out.contains("metadata.annotations.mine"), "{out}");
    assert!(!out.contains("last-applied") && !out.contains("reconcile-now"), "{out}");
}

/// What `explain` prints about a manifest: its output, and its warnings.
fn explained(manifest: &str) -> [String; 2] {
    let args = InputArgs { files: vec![PathBuf::from("-")], ..InputArgs::default() };
    let args = ExplainArgs { input: args, ..ExplainArgs::default() };
    let (mut out, mut err) = (vec![], vec![]);
    explain::run_with(&args, &mut manifest.as_bytes(), &mut out, &mut err).expect("the command runs");
    [out, err].map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn duplicate_keys_are_reported() {
    let text = "kind: InstanceGroup\nmetadata: {name: a}\nspec:\n  eks: {minSize: 1, minSize: 2}\n";
    let (ok, _, err) = render(text, InputArgs::default());
    assert!(ok);
    assert_eq!(
        err,
        "<stdin>:4: warning: spec.eks.minSize: is a duplicate key, and only the last value is used; remove the duplicate\n"
    );
}

/// A check of a pull request that passes must not end in a group that is Stalled.
#[test]
fn what_the_controller_rejects_is_an_error_with_its_line() {
    let config = "kind: ConfigMap\nmetadata: {name: instance-manager}\ndata:\n  boundaries: |\n    shared: {merge: [spec.eks.configuration.taints], replace: [spec.provisioner, spec.eks.maxSize, spec.eks.configuration.clusterName, spec.eks.configuration.subnets, spec.eks.configuration.securityGroups, spec.eks.configuration.instanceType]}\n  defaults: |\n    spec: {provisioner: eks, eks: {maxSize: 3, configuration: {clusterName: c, subnets: [a], securityGroups: [b], instanceType: m5.large, taints: [{key: admin, effect: NoSchedule}]}}}\n  policy: '{roles: [], managedPolicies: [], strategyKinds: [], fargateNamespaces: [], excludableNamespaces: []}'\n---\n";
    let group = |fields: &str| {
        format!(
            "kind: InstanceGroup\nmetadata: {{name: web, namespace: team}}\nspec:\n  eks:\n    configuration:\n{fields}"
        )
    };
    let image = "      image: ami-00000001\n";
    for (fields, line, expected) in [
        (
            format!("{image}      metricsCollection:\n      - Foo\n"),
            17,
            "metricsCollection `Foo` is not known to Auto Scaling",
        ),
        (
            format!("{image}      taints:\n      - {{key: admin, effect: NoSchedule, value: x}}\n"),
            17,
            "taints[key=admin]",
        ),
        ("      keyPairName: k\n".to_owned(), 14, "image is required"),
    ] {
        let (ok, _, err) = render(&format!("{config}{}", group(&fields)), InputArgs::default());
        let lines: Vec<_> = err.lines().collect();
        assert!(!ok && lines.len() == 1, "{err}");
        assert!(lines[0].starts_with(&format!("<stdin>:{line}: team/web: spec.eks.configuration.{expected}")), "{err}");
    }
    let lost = config.replace("merge: [", "merge: [spec.eks, ");
    let (_, _, err) = render(&format!("{lost}{}", group(image)), InputArgs::default());
    let required = "image is required, and tenants may not set it; ask your cluster admin for a default";
    assert!(err.contains(required), "the merge of spec.eks takes the admin's configuration as a whole: {err}");
    let (ok, _, err) = render(&format!("{config}{}", group(image)), InputArgs::default());
    assert!(ok && err.is_empty(), "{err}");
    let (ok, _, err) = render(&group("      instanceType: m5.large\n"), InputArgs::default());
    assert!(ok && err.is_empty(), "without the ConfigMap it is unknown what is missing: {err}");
}
