//! `explain NAMESPACE/NAME`: the same for a group of the cluster, with the active boundaries. It reads Kubernetes
//! alone, with the permissions of the caller; what they do not cover is reported.

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::api::names::{CONFIG_MAP, LAST_KNOWN_GOOD_CONFIG_MAP, condition};
use crate::api::{EffectiveValues, InstanceGroup};
use crate::boundaries::active::{BoundariesSource, ConfigMapData, select_active};
use crate::cli::args::{ConnectionArgs, GroupRef, NamespaceArgs};
use crate::cli::group_error;
use crate::cli::input::{InputArgs, LoadResult, load_objects};
use crate::cli::missing_permissions::{PermissionCheck, get_config_map};
use crate::cli::revisions::stored_revisions;
use crate::k8s::{KubeError, call};

/// What `explain` found out about a group of the cluster.
pub(super) struct LiveGroup {
    /// The merge and its diagnostics.
    pub result: LoadResult,
    /// What could not be read, and what that means.
    pub notes: Vec<String>,
}

/// Which cluster, and where in it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// How to reach the API server.
    pub connection: &'a ConnectionArgs,
    /// The namespace of the group.
    pub namespace: &'a NamespaceArgs,
    /// The namespace of the ConfigMap.
    pub config_namespace: &'a str,
}

/// The group that the arguments name, unless they name files. A path that exists is a file.
pub(super) fn requested_group(input: &InputArgs, place: Place<'_>) -> Option<GroupRef> {
    let [only] = input.files.as_slice() else { return None };
    let is_file = |path: &Path| {
        let ends = ["yaml", "yml", "json"];
        path.exists() || path == "-" || path.extension().is_some_and(|end| ends.iter().any(|known| end == *known))
    };
    let group: GroupRef = only.to_str()?.parse().ok()?;
    let names_cluster = place.connection.is_given() || place.namespace.namespace.is_some();
    let is_group = names_cluster || (input.config.is_none() && !is_file(only));
    is_group.then_some(group)
}

/// Reads a group, its Namespace and the active boundaries, and merges them.
///
/// # Errors
/// The group does not exist, the caller may not read it, or the API server did not answer.
pub(super) async fn read(place: Place<'_>, group: &GroupRef) -> anyhow::Result<LiveGroup> {
    let client = place.connection.connect().await?;
    let (namespace, name) = place.namespace.of_group(group)?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let stored = read_raw(&client, &namespace, &name).await.map_err(|error| group_error(error, &namespace, &name))?;
    let (mut permissions, mut notes) = (PermissionCheck::default(), Vec::new());
    let found = call("get", "namespaces", Api::<Namespace>::all(client.clone()).get_metadata(&namespace)).await;
    let found = permissions.allowed(found, Some(&namespace), None)?;
    let live = get_config_map(&client, &mut permissions, place.config_namespace, CONFIG_MAP).await?;
    let last = get_config_map(&client, &mut permissions, place.config_namespace, LAST_KNOWN_GOOD_CONFIG_MAP).await?;
    let had_boundaries = stored["status"]["configMD5"].as_str().is_some_and(|md5| !md5.is_empty());
    let mut objects = vec![stored.clone()];
    if let Some(found) = found {
        let annotations = found.metadata.annotations;
        objects.push(json!({"kind": "Namespace", "metadata": {"name": namespace, "annotations": annotations}}));
    }
    if let Some(missing) = permissions.missing() {
        notes.push(format!("what the admin sets is not shown, only what the group itself says: {missing}"));
        notes.extend(reported_values(&stored));
    } else {
        let (live, last) = (live.map(|map| map.data.unwrap_or_default()), last.and_then(|map| map.data));
        let (active, _) = select_active(live.as_ref(), last.as_ref(), had_boundaries);
        let data = match &active.source {
            BoundariesSource::Live => live,
            BoundariesSource::LastKnownGood(why) => {
                notes.push(format!("{why}; the last known good revision is active"));
                last
            }
            BoundariesSource::Unavailable(why) | BoundariesSource::RevisionMissing(why) => {
                notes.push(format!(
                    "{why}; the controller changes nothing in AWS, and only what the group itself says is shown"
                ));
                None
            }
            BoundariesSource::NotConfigured | BoundariesSource::Unknown => None,
        };
        let data = match own_revision(&client, place.config_namespace, &stored, &active.revision).await {
            // The status keeps the revision of the latest change that made a difference to the group.
            OwnRevision::Other { data: own, .. }
                if data.as_ref().is_some_and(|newest| has_same_effect(&objects, &own, newest)) =>
            {
                data
            }
            OwnRevision::Other { data: own, note } => {
                notes.push(note);
                Some(own)
            }
            OwnRevision::Newest => data,
            OwnRevision::Unknown(why) => {
                notes.push(why);
                data
            }
        };
        objects.extend(data.map(|data| config_map(&data)));
    }
    let mut result = load_objects(objects);
    for problem in &mut result.diagnostics {
        problem.location = format!("{namespace}/{name}");
    }
    Ok(LiveGroup { result, notes })
}

fn config_map(data: &ConfigMapData) -> Value {
    json!({"kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data})
}

/// Whether two contents of the boundaries make the same of a group. `objects` are the group and its Namespace.
fn has_same_effect(objects: &[Value], one: &ConfigMapData, other: &ConfigMapData) -> bool {
    let merged = |data: &ConfigMapData| {
        let found = load_objects(objects.iter().cloned().chain([config_map(data)]).collect());
        let merged = found.groups.into_iter().next().map(|group| group.merged);
        merged.map(|merged| (merged.spec.clone(), merged.annotations.clone()))
    };
    let made = merged(one);
    made.is_some() && made == merged(other)
}

/// Which content of the boundaries a group has.
enum OwnRevision {
    /// That of the ConfigMap.
    Newest,
    /// An older one: the newest has not reached the group yet, or was aborted.
    Other { data: ConfigMapData, note: String },
    /// Another one than the newest, which cannot be read.
    Unknown(String),
}

/// Reads the revision that the group's status names, if it is not the newest one.
async fn own_revision(client: &Client, config_namespace: &str, stored: &Value, newest: &str) -> OwnRevision {
    let hash = stored["status"]["boundariesRevision"].as_str().unwrap_or_default();
    if hash.is_empty() || hash == newest {
        return OwnRevision::Newest;
    }
    let shown = "what is shown is the newest content of the ConfigMap";
    let why = match stored_revisions(client, config_namespace).await {
        Ok(found) => match found.into_iter().flatten().rev().find(|revision| revision.spec.hash == hash) {
            Some(revision) => {
                let name = revision.metadata.name.unwrap_or_default();
                let conditions = stored["status"]["conditions"].as_array().into_iter().flatten();
                let mut pending =
                    conditions.filter(|found| found["type"] == condition::ROLLOUT_PENDING && found["status"] == "True");
                let why = pending.next().and_then(|found| found["message"].as_str());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let note =
                    format!("the group has {name} of the boundaries, and not the newest content of the ConfigMap{why}");
                return OwnRevision::Other { data: revision.spec.data, note };
            }
            None => "that revision is no longer stored".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    OwnRevision::Unknown(format!("the group was planned with another content of the boundaries ({why}); {shown}"))
}

/// The object as it is stored, also where it does not match its schema.
async fn read_raw(client: &Client, namespace: &str, name: &str) -> Result<Value, KubeError> {
    let resource = ApiResource::erase::<InstanceGroup>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = call("get", "instancegroups", api.get(name)).await?;
    Ok(serde_json::to_value(found).unwrap_or_default())
}

/// What the controller reported about the values in use, for a caller who may not read the boundaries.
fn reported_values(stored: &Value) -> Vec<String> {
    let conditions = stored["status"]["conditions"].as_array().into_iter().flatten();
    let applied = conditions.filter(|found| found["type"] == "BoundariesApplied");
    let message = applied.filter_map(|found| found["message"].as_str()).filter(|message| !message.is_empty());
    let effective = serde_json::from_value::<EffectiveValues>(stored["status"]["effective"].clone());
    let EffectiveValues { image, instance_types, subnets, zones, versions, .. } = effective.unwrap_or_default();
    let versions: Vec<_> = versions.iter().map(|(version, count)| format!("{version} ({count})")).collect();
    let values: Vec<_> = [
        ("image", image.unwrap_or_default()),
        ("instance types", instance_types.join(", ")),
        ("subnets", subnets.join(", ")),
        ("zones", zones.join(", ")),
        ("versions, with the instances of each", versions.join(", ")),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| format!("{name}: {value}"))
    .collect();
    let in_use = (!values.is_empty()).then(|| format!("in use, as the controller reported: {}", values.join("; ")));
    message.map(str::to_owned).chain(in_use).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[&str], namespace: Option<&str>) -> Option<(Option<String>, String)> {
        let input = InputArgs { files: files.iter().map(Into::into).collect(), ..InputArgs::default() };
        let namespace = NamespaceArgs { namespace: namespace.map(str::to_owned) };
        let connection = &ConnectionArgs::default();
        let place = Place { connection, namespace: &namespace, config_namespace: "im" };
        requested_group(&input, place).map(|group| (group.namespace, group.name))
    }

    #[test]
    fn files_and_groups_are_reported_apart() {
        assert_eq!(group(&["team/web"], None), Some((Some("team".into()), "web".into())));
        assert_eq!(group(&["web"], Some("team")), Some((None, "web".into())));
        assert_eq!(group(&["web"], None), Some((None, "web".into())), "in the kubeconfig's namespace");
        assert_eq!(group(&["team/web.yaml"], None), None, "a file that does not exist");
        assert_eq!(group(&["src/cli"], None), None, "a path that exists");
        assert_eq!(group(&["a.yaml", "team/web"], None), None);
        assert_eq!(group(&["-"], None), None);
    }

    /// Otherwise every change of another tenant's defaults would be reported as one that has not reached the group.
    #[test]
    fn contents_that_make_the_same_of_a_group_are_one() {
        let spec = json!({"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2}});
        let metadata = json!({"name": "web", "namespace": "team"});
        let api_version = "instancemgr.keikoproj.io/v1alpha1";
        let group = json!({"apiVersion": api_version, "kind": "InstanceGroup", "metadata": metadata, "spec": spec});
        let data = |image: &str, of_others: &str| -> ConfigMapData {
            let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
            let conditional = format!(
                "[{{annotationSelector: other, defaults: {{spec: {{eks: {{configuration: {{image: {of_others}}}}}}}}}}}]"
            );
            let boundaries = "restricted: [spec.eks.configuration.image]".to_owned();
            [("boundaries", boundaries), ("defaults", defaults), ("conditionals", conditional)]
                .map(|(key, text)| (key.to_owned(), text))
                .into()
        };
        let same =
            |other: &ConfigMapData| has_same_effect(std::slice::from_ref(&group), &data("ami-1", "ami-8"), other);
        assert!(same(&data("ami-1", "ami-9")) && !same(&data("ami-2", "ami-8")));
    }

    #[test]
    fn values_in_use_are_read_from_the_status() {
        let stored = json!({"status": {
            "conditions": [{"type": "BoundariesApplied", "message": "spec.eks.minSize 9 is replaced"}, {"type": "Ready"}],
            "effective": {"image": "ami-1", "zones": ["a", "b"], "versions": {"3": 2}, "instanceVersions": {"i-1": "3"}},
        }});
        let reported = reported_values(&stored);
        assert!(reported[0].contains("minSize 9") && reported.len() == 2, "{reported:?}");
        let in_words = "image: ami-1; zones: a, b; versions, with the instances of each: 3 (2)";
        assert!(reported[1].ends_with(in_words), "people read it, no program: {}", reported[1]);
        assert_eq!(reported_values(&json!({})), [""; 0]);
    }
}
