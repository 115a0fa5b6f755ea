//! Pods that can run in one zone only, because a volume of theirs is there.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, Pod, Volume};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use super::lists::list_pages;
use super::{KubeError, PodInfo, pods};

/// Keys by which a volume names its zone: the well-known label, its older name, and that of the EBS CSI driver.
const ZONE_KEYS: [&str; 3] =
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"];

/// A pod with a volume that only the nodes of some zones can attach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ZoneBoundPod {
    /// The node that it runs on.
    pub node: String,
    /// `namespace/name` of the pod.
    pub pod: String,
    /// Name of the PersistentVolumeClaim.
    pub claim: String,
    /// The zones of the volume; usually one.
    pub zones: Vec<String>,
}

/// Claims by namespace and name, with the zones of their volumes.
type ClaimZones = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The pods on these nodes whose volumes are bound to zones. Pods are read only in namespaces with such a volume.
pub(super) async fn read(client: &Client, nodes: &BTreeSet<String>) -> Result<Vec<ZoneBoundPod>, KubeError> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let bound = list_pages("persistentvolumes", &volumes, ListParams::default(), |volume| claim_of(&volume)).await?;
    let mut claims = ClaimZones::new();
    for (namespace, claim, zones) in bound {
        claims.entry(namespace).or_default().insert(claim, zones);
    }
    let mut found = Vec::new();
    for (namespace, claims) in &claims {
        let pods = pods::list(&Api::namespaced(client.clone(), namespace), pods::RUNNING).await?;
        found.extend(pods.iter().filter_map(|pod| bound_pod(pod, claims, nodes)));
    }
    found.sort();
    Ok(found)
}

/// Namespace and name of the claim that a volume is bound to, and the zones that it is in; `None` for one that every zone
/// can attach.
fn claim_of(volume: &PersistentVolume) -> Option<(String, String, Vec<String>)> {
    let spec = volume.spec.as_ref()?;
    let claim = spec.claim_ref.as_ref()?;
    let terms = &spec.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    let zones_of_term = |term: &NodeSelectorTerm| {
        let of_zone = |e: &&NodeSelectorRequirement| ZONE_KEYS.contains(&e.key.as_str()) && e.operator == "In";
        term.match_expressions.iter().flatten().find(of_zone).and_then(|e| e.values.clone())
    };
    // One matching term is enough for a node, so a term without a zone allows all zones.
    let zones: Option<Vec<Vec<String>>> = terms.iter().map(zones_of_term).collect();
    let zones: BTreeSet<String> = zones?.into_iter().flatten().collect();
    (!zones.is_empty()).then_some((claim.namespace.clone()?, claim.name.clone()?, zones.into_iter().collect()))
}

/// A pod on one of the nodes that uses one of the claims of its namespace, with the first one.
fn bound_pod(pod: &Pod, claims: &BTreeMap<String, Vec<String>>, nodes: &BTreeSet<String>) -> Option<ZoneBoundPod> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_ref().filter(|node| nodes.contains(*node))?;
    if !PodInfo::from(pod).must_be_evicted() {
        return None;
    }
    let claim_name = |volume: &Volume| {
        let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        // The claim of a generic ephemeral volume has the names of the pod and of the volume.
        named.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name)))
    };
    let used = spec.volumes.iter().flatten().filter_map(claim_name);
    let (claim, zones) = used.into_iter().find_map(|name| claims.get(&name).map(|zones| (name, zones.clone())))?;
    let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    Some(ZoneBoundPod { node: node.clone(), pod, claim, zones })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::k8s::fake;

    fn volume(claim: &str, key: &str, zones: Value) -> Value {
        let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": zones}]}]);
        json!({
            "metadata": {"name": format!("pv-{claim}")},
            "spec": {
                "claimRef": {"namespace": "team", "name": claim},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        })
    }

    fn pod(name: &str, node: &str, volume: Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"nodeName": node, "containers": [], "volumes": [volume]}, "status": {"phase": "Running"},
        })
    }

    fn claimed(claim: &str) -> Value {
        json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
    }

    /// A database whose new node starts in another zone stays Pending. The command `plan` must show this before the
    /// change.
    #[tokio::test]
    async fn pods_whose_volume_is_in_one_zone_are_found_on_the_nodes_that_are_replaced() {
        let client = fake::client(|call| {
            let items = match call.path.as_str() {
                "/api/v1/persistentvolumes" => json!([
                    volume("data-db-0", "topology.ebs.csi.aws.com/zone", json!(["us-west-2a"])),
                    volume("cache-0-scratch", "topology.kubernetes.io/zone", json!(["us-west-2b"])),
                    volume("shared", "kubernetes.io/os", json!(["linux"])),
                ]),
                "/api/v1/namespaces/team/pods" => json!([
                    pod("db-0", "n1", claimed("data-db-0")),
                    pod("db-1", "other", claimed("data-db-0")),
                    pod("cache-0", "n1", json!({"name": "scratch", "ephemeral": {}})),
                    pod("web-0", "n1", claimed("shared")),
                    pod("new-0", "n1", json!({"name": "tmp", "emptyDir": {}})),
                ]),
                path => panic!("{path} is not needed"),
            };
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
        });
        let found = read(&client, &["n1".to_owned()].into()).await.expect("an answer");
        let named: Vec<_> = found.iter().map(|p| (p.pod.as_str(), p.claim.as_str(), p.zones.join(","))).collect();
        let expected = [("team/cache-0", "cache-0-scratch", "us-west-2b"), ("team/db-0", "data-db-0", "us-west-2a")];
        assert_eq!(named, expected.map(|(pod, claim, zone)| (pod, claim, zone.to_owned())));
    }
}
