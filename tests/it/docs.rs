//! Documents that repeat what the code says are held to it. `make golden` regenerates the references and the
//! CloudFormation template.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use instance_manager::api;
use instance_manager::aws::sdk::OPERATIONS;
use instance_manager::boundaries::rollout_reference;
use instance_manager::plan::EventReason;
use serde_json::{Value, json};

use crate::crd::spec_description;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The variants of an enum, in source order.
fn variants(source: &str, name: &str) -> Vec<String> {
    let body = source.split_once(&format!("pub enum {name} {{")).expect("the enum exists").1;
    let body = body.split_once("\n}").expect("the enum has an end").0;
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.map(|line| line.trim_end_matches(',').to_owned()).collect()
}

#[test]
fn operations_page_covers_every_reason() {
    let text = read("docs/operations.md");
    let documented: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(reason, _)| reason).collect();
    let missing: Vec<_> = variants(&read("src/plan/stalled_reason.rs"), "StalledReason")
        .into_iter()
        .filter(|reason| !documented.contains(reason.as_str()))
        .collect();
    assert_eq!(missing, Vec::<String>::new(), "reasons without a row in docs/operations.md");
}

/// A person on call begins with what `kubectl get` and `kubectl describe` show.
#[test]
fn index_of_symptoms_covers_every_state_and_condition() {
    let page = read("docs/operations.md");
    let index = page.split("\n## ").find(|chapter| chapter.starts_with("Symptoms")).expect("a chapter");
    let states = ["Ready", "InitCreate", "InitUpgrade", "ReconcileModifying", "Locked", "Error", "Deleting"];
    let source = read("src/api/names.rs");
    let types = source.split_once("mod condition {").expect("the module exists").1;
    let types = types.split_once("/// Reason of").expect("reasons follow the types").0;
    let types: Vec<_> = types.split('"').skip(1).step_by(2).collect();
    assert!(types.len() > 10, "{types:?}");
    let missing: Vec<_> = states.iter().chain(&types).filter(|name| !index.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in the index of symptoms: {missing:?}");
}

/// A person on call looks up the reason of an event that `kubectl describe` shows.
#[test]
fn operations_page_covers_every_event() {
    let page = read("docs/operations.md");
    let missing: Vec<_> = EventReason::all().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "without a word in docs/operations.md: {missing:?}");
}

#[test]
fn alerts_use_existing_metrics_and_are_documented() {
    let (rules, page) = (read("deploy/alerts.yaml"), read("docs/alerts.md"));
    let sources = ["src/telemetry/metrics/mod.rs", "src/telemetry/metrics/rollout.rs", "src/telemetry/process.rs"];
    let metrics_source = sources.map(read).concat();
    let names = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned);
        words
            .filter(|w| ["instance_manager_", "controller_runtime_", "workqueue_"].iter().any(|p| w.starts_with(p)))
            .collect::<BTreeSet<_>>()
    };
    for name in names(&rules).union(&names(&page)) {
        let base = ["_count", "_sum", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(metrics_source.contains(&format!("\"{base}\"")), "the controller exports no metric {name}");
    }
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(page.contains(&format!("### {alert}\n")), "docs/alerts.md does not explain {alert}");
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        _ => vec![],
    }
}

/// The IAM policies by file name, in the order of the names.
fn iam_policies() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(path("deploy/iam")).expect("the folder exists").flatten().map(|file| file.path());
    let policies = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
    let name = |file: &Path| file.file_stem().expect("it has a name").to_string_lossy().into_owned();
    let text = |file: &Path| std::fs::read_to_string(file).expect("it is readable");
    policies.map(|file| (name(&file), serde_json::from_str(&text(&file)).expect("the policy is JSON"))).collect()
}

fn statements() -> Vec<Value> {
    let policies = iam_policies().into_values();
    policies.flat_map(|policy| policy["Statement"].as_array().expect("it has statements").clone()).collect()
}

/// IAM and STS quotas: a managed policy holds 6,144 characters, without white space. A role takes ten managed policies.
#[test]
fn iam_policies_fit_the_quotas_with_the_longest_cluster_name() {
    let policies = iam_policies();
    assert!(policies.len() <= 10);
    for (name, policy) in policies {
        let text = policy.to_string().replace("arn:aws:", "arn:aws-us-gov:").replace("REGION", "ap-southeast-1");
        let text = text.replace("ACCOUNT", "123456789012").replace("CLUSTER", &"c".repeat(100));
        let size = text.chars().filter(|c| !c.is_whitespace()).count();
        assert!(size <= 6144, "{name} has {size} characters");
    }
}

#[test]
fn statement_ids_are_unique_and_valid() {
    let statements = statements();
    let ids: BTreeSet<_> = statements.iter().map(|s| s["Sid"].as_str().expect("it has an id")).collect();
    assert_eq!(ids.len(), statements.len());
    assert!(ids.iter().all(|id| id.chars().all(|c| c.is_ascii_alphanumeric())));
}

/// EKS or a user may have created the access entry of a role that the controller deletes. Such an entry has no tags, and the
/// group could not be deleted.
#[test]
fn policy_allows_deleting_untagged_access_entries_of_own_roles_only() {
    let policies = iam_policies();
    let statements = policies["access-entries"]["Statement"].as_array().expect("statements").iter();
    let untagged: Vec<_> = statements
        .filter(|statement| statement["Action"] == "eks:DeleteAccessEntry" && statement.get("Condition").is_none())
        .flat_map(|statement| statement["Resource"].as_array().expect("resources"))
        .collect();
    let of_role = |name: &str| json!(format!("arn:aws:eks:REGION:ACCOUNT:access-entry/CLUSTER/role/ACCOUNT/{name}"));
    assert_eq!(untagged, [&of_role("CLUSTER-*"), &of_role("fargate-CLUSTER-*")]);
}

#[test]
fn cloudformation_template_contains_the_iam_policies() {
    let generated = cloudformation_template();
    let file = "deploy/cloudformation.json";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path(file), &generated).expect("the template is written");
    }
    assert!(read(file) == generated, "{file} is stale: run make golden");
}

/// A stack with the controller's role for EKS Pod Identity and its policies. The stack knows account, region and partition.
fn cloudformation_template() -> String {
    fn substitute(value: &Value) -> Value {
        match value {
            Value::String(text) if text == "CLUSTER" => json!({"Ref": "ClusterName"}),
            Value::String(text) => {
                let replaced = text.replace("arn:aws:iam::aws:", "arn:${AWS::Partition}:iam::aws:");
                let replaced =
                    replaced.replace("arn:aws:", "arn:${AWS::Partition}:").replace("REGION", "${AWS::Region}");
                let replaced = replaced.replace("ACCOUNT", "${AWS::AccountId}").replace("CLUSTER", "${ClusterName}");
                if replaced == *text { value.clone() } else { json!({"Fn::Sub": replaced}) }
            }
            Value::Array(items) => items.iter().map(substitute).collect(),
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), substitute(value))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
    let mut resources = serde_json::Map::new();
    let mut references = Vec::new();
    for (name, policy) in iam_policies() {
        let title = |word: &str| word[..1].to_uppercase() + &word[1..];
        let id = name.split('-').map(title).collect::<String>() + "Policy";
        references.push(json!({"Ref": id}));
        let description = format!("instance-manager, deploy/iam/{name}.json");
        let properties = json!({"Description": description, "PolicyDocument": substitute(&policy)});
        resources.insert(id, json!({"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}));
    }
    let trust = json!({"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": {
            "aws:RequestTag/eks-cluster-name": {"Ref": "ClusterName"},
            "aws:RequestTag/kubernetes-namespace": "instance-manager",
            "aws:RequestTag/kubernetes-service-account": "instance-manager",
        }},
    }]});
    let role = json!({"AssumeRolePolicyDocument": trust, "ManagedPolicyArns": references});
    resources.insert("ControllerRole".into(), json!({"Type": "AWS::IAM::Role", "Properties": role}));
    let template = json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The IAM role of instance-manager in one EKS cluster; generated from deploy/iam by make golden",
        "Parameters": {"ClusterName": {"Type": "String", "Description": "Name of the EKS cluster", "MaxLength": 100}},
        "Resources": resources,
        "Outputs": {"RoleArn": {"Description": "Role of the controller", "Value": {"Fn::GetAtt": ["ControllerRole", "Arn"]}}},
    });
    serde_json::to_string_pretty(&template).expect("the template is JSON") + "\n"
}

#[test]
fn iam_policy_grants_called_actions() {
    let granted: BTreeSet<_> = statements().iter().flat_map(|s| texts(&s["Action"])).collect();
    let called = OPERATIONS.iter().map(|(service, operation)| format!("{service}:{operation}"));
    // AWS checks these for calls that it makes itself; the controller never calls them.
    let implied = ["ec2:RunInstances", "iam:CreateServiceLinkedRole", "iam:PassRole"].map(str::to_owned);
    assert_eq!(granted, called.chain(implied).collect());
}

#[test]
fn iam_policy_writes_are_conditional() {
    for statement in statements() {
        let actions = texts(&statement["Action"]);
        let reads = |action: &String| {
            // IAM lists the action SimulatePrincipalPolicy among the reads.
            ["Describe", "Get", "List", "Simulate"]
                .iter()
                .any(|p| action.split_once(':').is_some_and(|(_, name)| name.starts_with(p)))
        };
        if !actions.iter().all(reads) {
            // A launch configuration has no tags, so its name is restricted to the cluster. An access entry that EKS or a
            // user created has none either, so the name of its role is.
            let is_own = |resource: &String| {
                let own = [":launchConfigurationName/", ":access-entry/CLUSTER/role/ACCOUNT/"];
                own.iter().any(|kind| {
                    let name = resource.split_once(kind).map(|(_, name)| name);
                    matches!(name, Some("CLUSTER-*" | "fargate-CLUSTER-*"))
                })
            };
            let named = texts(&statement["Resource"]).iter().all(is_own);
            assert!(statement["Condition"].is_object() || named, "{} has no condition", statement["Sid"]);
        }
        if actions.iter().any(|a| a == "iam:PassRole") {
            let services = texts(&statement["Condition"]["StringEquals"]["iam:PassedToService"]);
            let allowed = ["eks.amazonaws.com", "eks-fargate-pods.amazonaws.com"];
            // EC2 has another name in each partition of AWS.
            let is_known = |service: &String| service.starts_with("ec2.") || allowed.contains(&service.as_str());
            let is_allowed = !services.is_empty() && services.iter().all(is_known);
            assert!(is_allowed, "roles may be passed to {services:?}");
            assert!(texts(&statement["Resource"]).iter().all(|r| !r.ends_with(":role/*") && r != "*"));
        }
    }
}

/// A definition in `crds/`, the page that is generated from it, the beginning of that page, and the name in `kubectl get`.
const REFERENCES: [(&str, &str, &str, &str); 2] = [
    (
        "instancegroups.yaml",
        "docs/reference.md",
        "# Reference of the InstanceGroup\n\n\
         Generated from the CustomResourceDefinition by `make golden`. `kubectl explain ig.spec --recursive`\n\
         shows the same. No field of `spec` is required in a tenant's resource, because the cluster's\n\
         ConfigMap may supply it. Required fields are checked after the merge. A default applies when neither\n\
         the tenant nor the ConfigMap sets the field. Tenants set fields within the\n\
         [boundaries](boundaries.md#merge-rules) and their [policy](boundaries.md#policy).\n",
        "instancegroups",
    ),
    (
        "boundariesrevisions.yaml",
        "docs/revision-reference.md",
        "# Reference of the BoundariesRevision\n\n\
         Generated from the CustomResourceDefinition by `make golden`.\n\
         `kubectl explain brev.spec --recursive` shows the same. The controller creates a revision for each\n\
         content of the ConfigMap, and writes its `status`. People change only `spec.orders`, by\n\
         `instance-manager rollout` or `kubectl patch`: see [rollouts](rollouts.md#orders).\n",
        "boundariesrevisions",
    ),
];

#[test]
fn references_match_the_crds() {
    let definitions = BTreeMap::from(api::crd_files());
    for (file, page, introduction, plural) in REFERENCES {
        let generated = reference(&definitions[file], introduction, plural);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path(page), &generated).expect("the reference is written");
        }
        assert!(read(page) == generated, "{page} is stale: run make golden");
    }
}

fn reference(definition: &str, introduction: &str, plural: &str) -> String {
    let crd: Value = serde_yaml::from_str(definition).expect("the CRD is YAML");
    let version = &crd["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let mut out = introduction.to_owned();
    for part in ["spec", "status"] {
        let columns = if part == "spec" {
            "| field | type | default | set by | meaning |\n| --- | --- | --- | --- | --- |"
        } else {
            "| field | type | meaning |\n| --- | --- | --- |"
        };
        let _ = writeln!(out, "\n## {part}\n\n{columns}");
        fields(&schema[part], part, &mut out);
    }
    let _ = write!(out, "\n## Columns of `kubectl get {plural}`\n\n| column | from |\n| --- | --- |\n");
    for column in version["additionalPrinterColumns"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "| {} | `{}` |",
            column["name"].as_str().unwrap_or_default(),
            column["jsonPath"].as_str().unwrap_or_default()
        );
    }
    out
}

fn fields(schema: &Value, path: &str, out: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let text = field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let cells = match spec_description(&text) {
            Some((meaning, default, by)) => format!("{default} | {by} | {meaning}"),
            None => text,
        };
        let _ = writeln!(out, "| `{path}` | {} | {cells} |", kind(field));
        fields(field, &path, out);
        fields(&field["items"], &format!("{path}[]"), out);
    }
}

fn kind(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".into();
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", kind(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map of {}", kind(&field["additionalProperties"]))
        }
        Some(other) => other.to_owned(),
        None => "any".into(),
    }
}

/// The fields that the parser of the key `rollout` accepts, as paths such as `waves[].soak`.
fn rollout_fields() -> BTreeSet<String> {
    let places = BTreeMap::from([
        ("POLICY", ""),
        ("WAVE", "waves[]."),
        ("WINDOW", "windows[]."),
        ("FREEZE", "freezes[]."),
        ("DEFERRAL", "deferral[]."),
        ("BUDGET", "budget."),
        ("CHECK", "checks[]."),
        ("DELAY", "delay[]."),
    ]);
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(path("src/boundaries")).expect("the folder exists").flatten() {
        if !file.file_name().to_string_lossy().starts_with("rollout_") {
            continue;
        }
        let source = std::fs::read_to_string(file.path()).expect("it is readable");
        for declared in source.split("\nconst ").skip(1) {
            let named = declared.split_once("_KEYS: [&str; ").filter(|(name, _)| !name.contains(' '));
            let Some((name, rest)) = named else { continue };
            let place = places.get(name).unwrap_or_else(|| panic!("give {name}_KEYS a place here, and its rows"));
            let list = rest.split_once('[').expect("a list").1.split_once(']').expect("its end").0;
            found.extend(list.split('"').skip(1).step_by(2).map(|field| format!("{place}{field}")));
        }
    }
    found
}

/// An admin writes a policy from the reference alone: a field without a row would be a safeguard that no admin finds.
#[test]
fn reference_of_the_rollout_has_a_row_for_each_field() {
    let table = rollout_reference();
    assert!(!table.contains('$'), "a limit or a default has no value: {table}");
    let mut documented = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 5 && cells.iter().all(|cell| !cell.is_empty()), "a cell is missing: {row}");
        assert!(documented.insert(cells[0].trim_matches('`').to_owned()), "two rows for {}", cells[0]);
    }
    assert_eq!(documented, rollout_fields());
}

/// A limit that the page names and the parser does not have costs an admin a refused ConfigMap, or a safeguard. What stands
/// above the table is written by hand.
#[test]
fn reference_of_the_rollout_has_the_limits_and_defaults_of_the_parser() {
    let file = "docs/rollout-reference.md";
    let page = read(file);
    let text = page.split_once("| field |").expect("a table").0;
    let generated = format!("{text}{}", rollout_reference());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path(file), &generated).expect("the reference is written");
    }
    assert!(read(file) == generated, "{file} is stale: run make golden");
}
