//! Values of the tenant that reach the merged spec and have no effect there. They belong to another provisioner or
//! strategy, another field replaces them, or a number counts as unset. Each is reported, because nothing else shows it.
//!
//! What depends on the OS family is known only when user data is rendered: see `IgnoredField` of the provisioner `eks`.

use serde_json::Value;

use super::merged_spec::MergedSpec;
use super::overridden::OverriddenValue;
use super::provenance::Origin;
use crate::api::{ConcurrencyPolicy, DefaultResult, ProvisionerKind, StrategyType, UserDataStage, display_value};

/// The tenant's values without effect. None while the provisioner is unknown, because then nothing is done with the spec.
pub(super) fn find_unused(merged: &MergedSpec) -> Vec<OverriddenValue> {
    let Some(kind) = merged.spec["provisioner"].as_str().and_then(ProvisionerKind::parse) else { return vec![] };
    let mut finder = UnusedValueFinder { merged, found: vec![] };
    finder.other_provisioners(kind);
    match kind {
        ProvisionerKind::Eks => {
            finder.strategy_of_scaling_group();
            finder.configuration();
            finder.lists();
            finder.numbers_that_count_as_unset();
        }
        ProvisionerKind::EksManaged => finder.node_group(),
        ProvisionerKind::EksFargate => finder.fargate_profile(),
    }
    finder.found
}

struct UnusedValueFinder<'a> {
    merged: &'a MergedSpec,
    found: Vec<OverriddenValue>,
}

impl<'a> UnusedValueFinder<'a> {
    /// The value at a dotted path outside of lists; null if there is none.
    fn get(&self, path: &str) -> &'a Value {
        path.split('.').skip(1).fold(&self.merged.spec, |value, key| &value[key])
    }

    fn text(&self, path: &str) -> &'a str {
        self.get(path).as_str().unwrap_or_default()
    }

    fn items(&self, path: &str) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
        self.get(path).as_array().into_iter().flatten().enumerate()
    }

    fn strategy_type(&self) -> StrategyType {
        StrategyType::parse(self.text("spec.strategy.type")).unwrap_or(StrategyType::RollingUpdate)
    }

    /// Reports the value at a path outside of lists, if it is set.
    fn report(&mut self, path: &str, why: &str) {
        self.report_value(path, path.to_owned(), self.get(path), why);
    }

    /// Reports a value under another name than its path, unless the admin set all of it.
    fn report_value(&mut self, path: &str, shown_path: String, value: &Value, why: &str) {
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        let is_below =
            |at: &str| at.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        let sources = &self.merged.provenance;
        let is_tenants = sources.iter().any(|(at, source)| source.origin == Origin::Tenant && is_below(at));
        if is_tenants && !is_empty {
            self.found.push(OverriddenValue {
                tenant_value: display_value(path, value),
                path: shown_path,
                effective_value: None,
                winner: None,
                lost_in_merge: None,
                unused_because: Some(why.to_owned()),
            });
        }
    }

    fn other_provisioners(&mut self, kind: ProvisionerKind) {
        for other in ProvisionerKind::ALL.iter().filter(|other| **other != kind) {
            let why = format!("the provisioner is {kind}; remove it, or set spec.provisioner to {other}");
            self.report(&format!("spec.{other}"), &why);
        }
    }

    fn strategy_of_scaling_group(&mut self) {
        const ROLLING: &str = "spec.strategy.rollingUpdate";
        self.report("spec.strategy.managed", "it belongs to the provisioner eks-managed; remove it");
        let kind = self.strategy_type();
        if kind == StrategyType::Managed {
            self.report(
                "spec.strategy.type",
                "the provisioner eks has no such strategy and uses rollingUpdate; set rollingUpdate or crd",
            );
        }
        if kind == StrategyType::Crd {
            self.report(
                &format!("{ROLLING}.maxSurge"),
                "with the strategy crd, its resource replaces the nodes; remove it",
            );
            self.report(
                &format!("{ROLLING}.inPlace"),
                "with the strategy crd, its resource replaces the nodes; remove it",
            );
            let policy = self.text("spec.strategy.crd.concurrencyPolicy");
            if ConcurrencyPolicy::parse(policy).is_none() {
                let why = "it is unknown and means forbid; use allow, forbid or replace";
                self.report("spec.strategy.crd.concurrencyPolicy", why);
            }
        } else {
            self.report("spec.strategy.crd", "spec.strategy.type is not crd; set it to crd, or remove the block");
            let path = format!("{ROLLING}.maxUnavailable");
            let is_zero = match self.get(&path) {
                Value::String(text) => text.trim_end_matches('%').parse() == Ok(0),
                other => other.as_i64() == Some(0),
            };
            if is_zero {
                let why = "it counts as 1, because a rotation must make progress; use 1 or more, \
                           or stop rotations with the annotation lock-upgrades";
                self.report(&path, why);
            }
        }
        self.drain_force();
    }

    fn drain_force(&mut self) {
        const ROLLING: &str = "spec.strategy.rollingUpdate";
        if *self.get(&format!("{ROLLING}.drainForce")) == true
            && self.text(&format!("{ROLLING}.drainTimeout")).is_empty()
        {
            let why = "it acts at drainTimeout, which is not set; set drainTimeout, or remove it";
            self.report(&format!("{ROLLING}.drainForce"), why);
        }
    }

    fn configuration(&mut self) {
        const FIELD: &str = "spec.eks.configuration";
        let names_role = !self.text(&format!("{FIELD}.roleName")).is_empty();
        if names_role {
            let why = "roleName names an existing role, which the controller does not change; \
                       attach the policies to that role, or remove roleName";
            self.report(&format!("{FIELD}.managedPolicies"), why);
        } else {
            self.report(&format!("{FIELD}.instanceProfileName"), "it needs roleName; set roleName, or remove it");
        }
        let pools = format!("{FIELD}.mixedInstancesPolicy.spotPools");
        if self.get(&pools).as_i64().is_some_and(|count| !(1..=20).contains(&count)) {
            self.report(&pools, "it is not a number from 1 to 20, so 2 applies; use 1 to 20, or remove it");
        }
    }

    fn lists(&mut self) {
        const FIELD: &str = "spec.eks.configuration";
        for (index, taint) in self.items(&format!("{FIELD}.taints")) {
            let path = format!("{FIELD}.taints[{index}].timeAdded");
            self.report_value(&path, path.clone(), &taint["timeAdded"], "Kubernetes sets it on the Node; remove it");
        }
        for (index, hook) in self.items(&format!("{FIELD}.lifecycleHooks")) {
            let result = &hook["defaultResult"];
            if result.as_str().is_some_and(|text| DefaultResult::parse(text).is_none()) {
                let path = format!("{FIELD}.lifecycleHooks[{index}].defaultResult");
                let why = "it is unknown and means abandon; use abandon or continue";
                self.report_value(&path, path.clone(), result, why);
            }
        }
        for (index, volume) in self.items(&format!("{FIELD}.volumes")) {
            let mount = &volume["mountOptions"];
            if mount["persistence"].is_boolean() && mount["persistence"] != mount["persistance"] {
                let path = format!("{FIELD}.volumes[{index}].mountOptions.persistance");
                let why = "persistence has another value and takes precedence; remove one of the two";
                self.report_value(&path, path.clone(), &mount["persistance"], why);
            }
        }
        self.user_data();
    }

    /// Entries with an unknown stage, and every `NodeConfigYaml` but the last. Entries are named as in the merge.
    fn user_data(&mut self) {
        const FIELD: &str = "spec.eks.configuration.userData";
        let stage = |entry: &Value| UserDataStage::parse(entry["stage"].as_str().unwrap_or_default());
        let is_config = |entry: &Value| stage(entry) == Some(UserDataStage::NodeConfigYaml);
        let last_config = self.items(FIELD).filter(|(_, entry)| is_config(entry)).map(|(index, _)| index).last();
        for (index, entry) in self.items(FIELD) {
            let why = match stage(entry) {
                None => {
                    let given = entry["stage"].as_str().unwrap_or_default();
                    let is_word = given.len() <= 40 && given.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
                    let shown = if is_word { format!("{given:?}") } else { "it has".to_owned() };
                    let stages = "use PreBootstrap, PostBootstrap or NodeConfigYaml";
                    if given.is_empty() {
                        format!("it has no stage; {stages}")
                    } else {
                        format!("the stage {shown} is unknown; {stages}")
                    }
                }
                Some(UserDataStage::NodeConfigYaml) if last_config != Some(index) => {
                    "only the last entry with the stage NodeConfigYaml is used; write one NodeConfig".to_owned()
                }
                Some(_) => continue,
            };
            let name = entry["name"].as_str().filter(|name| !name.is_empty());
            let label = name.map_or_else(|| index.to_string(), str::to_owned);
            self.report_value(&format!("{FIELD}[{index}]"), format!("{FIELD}[{label}]"), entry, &why);
        }
    }

    fn numbers_that_count_as_unset(&mut self) {
        const FIELD: &str = "spec.eks.configuration";
        const UNSET: &str = "it counts as not set; use another number, or remove it";
        let is_zero = |value: &Value| value.as_i64() == Some(0);
        let is_below_one = |value: &Value| value.as_i64().is_some_and(|number| number <= 0);
        for path in
            ["bootstrapOptions.maxPods", "metadataOptions.httpPutHopLimit"].map(|name| format!("{FIELD}.{name}"))
        {
            let counts_as_unset =
                if path.ends_with("maxPods") { is_below_one(self.get(&path)) } else { is_zero(self.get(&path)) };
            if counts_as_unset {
                self.report(&path, UNSET);
            }
        }
        for (list, fields, is_unset) in [
            ("volumes", &["size", "iops", "throughput"][..], &is_below_one as &dyn Fn(&Value) -> bool),
            ("lifecycleHooks", &["heartbeatTimeout"], &is_zero),
            ("mixedInstancesPolicy.instanceTypes", &["weight"], &is_zero),
        ] {
            for (index, item) in self.items(&format!("{FIELD}.{list}")) {
                for field in fields.iter().filter(|field| is_unset(&item[**field])) {
                    let path = format!("{FIELD}.{list}[{index}].{field}");
                    self.report_value(&path, path.clone(), &item[*field], UNSET);
                }
            }
        }
    }

    fn node_group(&mut self) {
        const FIELD: &str = "spec.eks-managed.configuration";
        let given = self.text("spec.strategy.type");
        if !given.is_empty() && self.strategy_type() != StrategyType::Managed {
            self.report("spec.strategy.type", "EKS replaces the nodes of a managed node group; use managed");
        }
        self.report("spec.strategy.crd", "EKS replaces the nodes of a managed node group; remove it");
        for (field, why) in [
            (
                "maxUnavailable",
                "EKS replaces the nodes of a managed node group; use spec.strategy.managed.maxUnavailable",
            ),
            ("maxSurge", "EKS replaces the nodes of a managed node group; remove it"),
            ("inPlace", "EKS changes labels and taints of a managed node group in place; remove it"),
        ] {
            self.report(&format!("spec.strategy.rollingUpdate.{field}"), why);
        }
        self.drain_force();
        if self.text(&format!("{FIELD}.keyPairName")).is_empty() {
            let why = "EKS uses it for SSH access only, which needs keyPairName; set keyPairName, or remove it";
            self.report(&format!("{FIELD}.securityGroups"), why);
        }
        if self.get(&format!("{FIELD}.volSize")).as_i64() == Some(0) {
            self.report(&format!("{FIELD}.volSize"), "it counts as not set; use another number, or remove it");
        }
    }

    fn fargate_profile(&mut self) {
        for block in ["rollingUpdate", "crd", "managed"] {
            self.report(&format!("spec.strategy.{block}"), "a Fargate profile has no nodes to replace; remove it");
        }
    }
}
