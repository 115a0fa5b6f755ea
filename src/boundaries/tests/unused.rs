//! Values that have no effect: every field of the CRD, with every provisioner.

use std::collections::BTreeSet;

use super::*;
use crate::api::schema;

/// Every field, with the provisioners on which it has an effect (`e`: eks, `m`: eks-managed, `f`: eks-fargate) beside
/// nothing but the strategy type in brackets. A field that needs another field is in `SITUATIONS` as well. A new field
/// belongs into this list, and into `find_unused` where it has no effect.
const EFFECTS: &str = "
    provisioner emf
    strategy.type[managed] mf
    strategy.type[crd] ef
    strategy.type[rollingUpdate] ef
    strategy.rollingUpdate.maxUnavailable e
    strategy.rollingUpdate.maxSurge e
    strategy.rollingUpdate.inPlace[] e
    strategy.rollingUpdate.drainTimeout em
    strategy.rollingUpdate.drainForce -
    strategy.rollingUpdate.joinTimeout em
    strategy.crd.spec[crd] e
    strategy.crd.crdName[crd] e
    strategy.crd.concurrencyPolicy[crd] -
    strategy.crd.maxRetries[crd] e
    strategy.crd.statusJSONPath[crd] e
    strategy.crd.statusSuccessString[crd] e
    strategy.crd.statusFailureString[crd] e
    strategy.managed.maxUnavailable m
    eks.minSize e
    eks.maxSize e
    eks.type e
    eks.warmPool.minSize e
    eks.warmPool.maxSize e
    eks.configuration.clusterName e
    eks.configuration.keyPairName e
    eks.configuration.image e
    eks.configuration.instanceType e
    eks.configuration.securityGroups[] e
    eks.configuration.subnets[] e
    eks.configuration.volumes[].name e
    eks.configuration.volumes[].type e
    eks.configuration.volumes[].size e
    eks.configuration.volumes[].iops e
    eks.configuration.volumes[].throughput e
    eks.configuration.volumes[].deleteOnTermination e
    eks.configuration.volumes[].encrypted e
    eks.configuration.volumes[].snapshotId e
    eks.configuration.volumes[].mountOptions.fileSystem e
    eks.configuration.volumes[].mountOptions.mount e
    eks.configuration.volumes[].mountOptions.persistance e
    eks.configuration.volumes[].mountOptions.persistence e
    eks.configuration.suspendProcesses[] e
    eks.configuration.bootstrapArguments e
    eks.configuration.bootstrapOptions.maxPods e
    eks.configuration.bootstrapOptions.containerRuntime e
    eks.configuration.spotPrice e
    eks.configuration.tags[].key e
    eks.configuration.tags[].value e
    eks.configuration.tagSpecifications[].resourceType e
    eks.configuration.tagSpecifications[].tags[].key e
    eks.configuration.tagSpecifications[].tags[].value e
    eks.configuration.labels e
    eks.configuration.taints[].key e
    eks.configuration.taints[].value e
    eks.configuration.taints[].effect e
    eks.configuration.taints[].timeAdded -
    eks.configuration.userData[].name -
    eks.configuration.userData[].stage -
    eks.configuration.userData[].data -
    eks.configuration.roleName e
    eks.configuration.instanceProfileName -
    eks.configuration.managedPolicies[] e
    eks.configuration.metricsCollection[] e
    eks.configuration.lifecycleHooks[].name e
    eks.configuration.lifecycleHooks[].lifecycle e
    eks.configuration.lifecycleHooks[].defaultResult -
    eks.configuration.lifecycleHooks[].heartbeatTimeout e
    eks.configuration.lifecycleHooks[].notificationArn e
    eks.configuration.lifecycleHooks[].metadata e
    eks.configuration.lifecycleHooks[].roleArn e
    eks.configuration.mixedInstancesPolicy.strategy e
    eks.configuration.mixedInstancesPolicy.onDemandAllocationStrategy e
    eks.configuration.mixedInstancesPolicy.spotPools e
    eks.configuration.mixedInstancesPolicy.baseCapacity e
    eks.configuration.mixedInstancesPolicy.spotRatio e
    eks.configuration.mixedInstancesPolicy.instancePool e
    eks.configuration.mixedInstancesPolicy.instanceTypes[].type e
    eks.configuration.mixedInstancesPolicy.instanceTypes[].weight e
    eks.configuration.licenseSpecifications[] e
    eks.configuration.placement.availabilityZone e
    eks.configuration.placement.hostResourceGroupArn e
    eks.configuration.placement.tenancy e
    eks.configuration.metadataOptions.httpEndpoint e
    eks.configuration.metadataOptions.httpTokens e
    eks.configuration.metadataOptions.httpPutHopLimit e
    eks-managed.minSize m
    eks-managed.maxSize m
    eks-managed.configuration.clusterName m
    eks-managed.configuration.volSize m
    eks-managed.configuration.instanceType m
    eks-managed.configuration.instanceTypes[] m
    eks-managed.configuration.capacityType m
    eks-managed.configuration.nodeLabels m
    eks-managed.configuration.taints[].key m
    eks-managed.configuration.taints[].value m
    eks-managed.configuration.taints[].effect m
    eks-managed.configuration.nodeRole m
    eks-managed.configuration.securityGroups[] -
    eks-managed.configuration.keyPairName m
    eks-managed.configuration.tags[].key m
    eks-managed.configuration.tags[].value m
    eks-managed.configuration.subnets[] m
    eks-managed.configuration.amiType m
    eks-managed.configuration.releaseVersion m
    eks-managed.configuration.version m
    eks-managed.configuration.nodeRepairConfig.enabled m
    eks-fargate.clusterName f
    eks-fargate.podExecutionRoleArn f
    eks-fargate.subnets[] f
    eks-fargate.selectors[].namespace f
    eks-fargate.selectors[].labels f
    eks-fargate.tags[] f
";

/// The leaves of a schema below a path, each with its schema.
fn leaves<'a>(schema: &'a Value, path: &str, found: &mut Vec<(String, &'a Value)>) {
    match (schema["properties"].as_object(), schema["items"].is_object()) {
        (Some(fields), _) => fields.iter().for_each(|(name, field)| leaves(field, &format!("{path}.{name}"), found)),
        (None, true) => leaves(&schema["items"], &format!("{path}[]"), found),
        (None, false) => found.push((path.trim_start_matches('.').to_owned(), schema)),
    }
}

/// A value of a schema that a tenant may mean.
fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("string") => json!("x"),
        Some("boolean") => json!(true),
        Some("object") => json!({"a": "b"}),
        _ => json!(3),
    }
}

/// The object in which only the value at a path is set.
fn nested(path: &str, value: Value) -> Value {
    path.split('.').rev().fold(value, |value, key| match key.strip_suffix("[]") {
        Some(list) => json!({list: [value]}),
        None => json!({key: value}),
    })
}

fn unused(spec: Value) -> Vec<String> {
    merge_spec(&Boundaries::default(), spec).overridden.iter().map(ToString::to_string).collect()
}

#[test]
fn every_field_has_an_effect_or_is_reported_with_each_provisioner() {
    let mut schemas = vec![];
    leaves(schema::spec(), "", &mut schemas);
    let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
    let mut listed = BTreeSet::new();
    for line in EFFECTS.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (field, effective) = line.split_once(' ').expect("a field and its provisioners");
        let is_strategy = |tail: &str| ["[managed]", "[crd]", "[rollingUpdate]"].contains(&tail);
        let (path, strategy) = match field.rfind('[').map(|at| field.split_at(at)) {
            Some((path, tail)) if is_strategy(tail) => (path, Some(tail.trim_matches(['[', ']']))),
            _ => (field, None),
        };
        let schema =
            schemas.get(path).unwrap_or_else(|| panic!("{path} is not a field of the schema; remove its line"));
        listed.insert(path);
        for (letter, kind) in [('e', "eks"), ('m', "eks-managed"), ('f', "eks-fargate")] {
            let mut spec = if path == "provisioner" { json!({}) } else { nested(path, sample(schema)) };
            spec["provisioner"] = json!(kind);
            if let Some(strategy) = strategy {
                spec["strategy"]["type"] = json!(strategy);
            }
            let found = unused(spec);
            let found: Vec<_> = found
                .iter()
                .filter(|text| strategy.is_none() || path == "strategy.type" || !text.starts_with("spec.strategy.type"))
                .collect();
            assert_eq!(found.is_empty(), effective.contains(letter), "{field} with {kind}: {found:#?}");
        }
    }
    let missing: Vec<_> = schemas.keys().filter(|path| !listed.contains(path.as_str())).collect();
    assert!(missing.is_empty(), "say in EFFECTS on which provisioners these fields have an effect: {missing:#?}");
}

/// Fields whose effect depends on other fields.
#[test]
fn values_without_effect_beside_others_are_reported() {
    let rolling = |settings: Value| json!({"provisioner": "eks", "strategy": {"rollingUpdate": settings}});
    let eks = |configuration: Value| json!({"provisioner": "eks", "eks": {"configuration": configuration}});
    let managed =
        |configuration: Value| json!({"provisioner": "eks-managed", "eks-managed": {"configuration": configuration}});
    let crd =
        |policy: &str| json!({"provisioner": "eks", "strategy": {"type": "crd", "crd": {"concurrencyPolicy": policy}}});
    let stage = |stage: &str| eks(json!({"userData": [{"name": "setup", "stage": stage, "data": "canary"}]}));
    // A spec with a value without effect, parts of its report, and a similar spec without a report.
    for (spec, parts, fine) in [
        (
            rolling(json!({"maxUnavailable": 0})),
            ["maxUnavailable: 0", "counts as 1"],
            rolling(json!({"maxUnavailable": 1})),
        ),
        (rolling(json!({"maxUnavailable": "0%"})), ["\"0%\"", "counts as 1"], rolling(json!({"maxSurge": 0}))),
        (
            rolling(json!({"drainForce": true})),
            ["drainForce: true", "set drainTimeout"],
            rolling(json!({"drainForce": true, "drainTimeout": "15m"})),
        ),
        (crd("sometimes"), ["\"sometimes\"", "means forbid"], crd("Replace")),
        (stage("PreBoot"), ["userData[setup]", "\"PreBoot\" is unknown; use PreBootstrap"], stage("prebootstrap")),
        (stage(""), ["userData[setup]", "has no stage"], stage("PostBootstrap")),
        (
            eks(
                json!({"userData": [{"stage": "NodeConfigYaml", "data": "a"}, {"stage": "NodeConfigYaml", "data": "b"}]}),
            ),
            ["userData[0]", "only the last"],
            stage("NodeConfigYaml"),
        ),
        (
            eks(json!({"instanceProfileName": "own"})),
            ["instanceProfileName", "needs roleName"],
            eks(json!({"instanceProfileName": "own", "roleName": "own"})),
        ),
        (
            eks(json!({"roleName": "own", "managedPolicies": ["p"]})),
            ["managedPolicies", "remove roleName"],
            eks(json!({"managedPolicies": ["p"]})),
        ),
        (
            eks(json!({"lifecycleHooks": [{"defaultResult": "retry"}]})),
            ["defaultResult: \"retry\"", "means abandon"],
            eks(json!({"lifecycleHooks": [{"defaultResult": "CONTINUE"}]})),
        ),
        (
            eks(json!({"volumes": [{"mountOptions": {"persistance": true, "persistence": false}}]})),
            ["persistance: true", "takes precedence"],
            eks(json!({"volumes": [{"mountOptions": {"persistance": true, "persistence": true}}]})),
        ),
        (
            eks(json!({"mixedInstancesPolicy": {"spotPools": 21}})),
            ["spotPools: 21", "2 applies"],
            eks(json!({"mixedInstancesPolicy": {"spotPools": 20}})),
        ),
        (
            eks(json!({"volumes": [{"size": 0}]})),
            ["volumes[0].size: 0", "counts as not set"],
            eks(json!({"volumes": [{"size": 1}]})),
        ),
        (
            eks(json!({"bootstrapOptions": {"maxPods": -1}})),
            ["maxPods: -1", "counts as not set"],
            eks(json!({"bootstrapOptions": {"maxPods": 1}})),
        ),
        (
            managed(json!({"securityGroups": ["sg-1"]})),
            ["securityGroups", "needs keyPairName"],
            managed(json!({"securityGroups": ["sg-1"], "keyPairName": "k"})),
        ),
        (managed(json!({"volSize": 0})), ["volSize: 0", "counts as not set"], managed(json!({"volSize": 20}))),
    ] {
        let found = unused(spec.clone());
        assert!(found.len() == 1 && parts.iter().all(|part| found[0].contains(part)), "{spec}: {found:#?}");
        assert!(!found[0].contains("canary"), "{found:?}");
        assert_eq!(unused(fine.clone()), [""; 0], "{fine}");
    }
}

#[test]
fn block_of_another_provisioner_is_reported_only_if_the_tenant_wrote_it() {
    let boundaries = parse(&[
        ("boundaries", "{shared: {mergeOverride: [spec.provisioner, spec.eks, spec.strategy]}}"),
        ("defaults", "{spec: {provisioner: eks-managed, eks: {maxSize: 3}, strategy: {rollingUpdate: {maxSurge: 1}}}}"),
    ]);
    assert_eq!(merge_spec(&boundaries, json!({})).overridden, []);
    let own = merge_spec(&boundaries, json!({"eks": {"minSize": 1}, "strategy": {"crd": {"crdName": "x"}}}));
    let found: Vec<_> = own.overridden.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            r#"spec.eks: {"maxSize":3,"minSize":1} was not used: the provisioner is eks-managed; remove it, or set spec.provisioner to eks"#,
            "spec.strategy.crd: {1 key} was not used: EKS replaces the nodes of a managed node group; remove it",
        ]
    );
    let excluded = merge(
        &Boundaries::default(),
        &json!({"spec": {"provisioner": "eks", "eks-fargate": {"clusterName": "c"}}}),
        true,
    );
    assert_eq!(excluded.expect("a merged spec").overridden.len(), 1, "a group without boundaries reports it, too");
}
