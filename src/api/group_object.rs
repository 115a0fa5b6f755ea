//! A stored InstanceGroup that may or may not decode, like kube-rs's `DeserializeGuard`.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{InstanceGroup, InstanceGroupStatus, NodeDemand, used_nodes};

/// An InstanceGroup as the API server stores it. One that cannot be decoded does not stop the watch. The controller
/// reports a condition on it, and still uses the names recorded in its status. kube's `DeserializeGuard` would lose
/// that status.
#[derive(Clone, Debug)]
pub(crate) struct GroupObject(pub Result<InstanceGroup, InvalidObject>);

/// The parts of an InstanceGroup whose spec cannot be decoded. The decoder's message is dropped, because it may quote
/// values.
#[derive(Clone, Debug)]
pub(crate) struct InvalidObject {
    /// Metadata of the object.
    pub metadata: ObjectMeta,
    /// Status of the object; empty when the object has none, `None` when the status cannot be decoded either.
    pub status: Option<InstanceGroupStatus>,
    /// What the spec requests, as far as it can be read.
    pub demand: NodeDemand,
    /// The nodes that the group has under a quota.
    pub used_nodes: u64,
}

impl GroupObject {
    /// Whether the group may have been made with boundaries. A status that cannot be decoded may say so.
    pub(crate) fn may_have_had_boundaries(&self) -> bool {
        let status = match &self.0 {
            Ok(group) => group.status.as_ref(),
            Err(InvalidObject { status: Some(status), .. }) => Some(status),
            Err(InvalidObject { status: None, .. }) => return true,
        };
        status.and_then(|status| status.config_md5.as_ref()).is_some_and(|hash| !hash.is_empty())
    }
}

impl<'de> Deserialize<'de> for GroupObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        if let Ok(group) = InstanceGroup::deserialize(&object) {
            return Ok(GroupObject(Ok(group)));
        }
        let metadata = ObjectMeta::deserialize(&object["metadata"]).map_err(D::Error::custom)?;
        let status = match &object["status"] {
            Value::Null => Some(InstanceGroupStatus::default()),
            status => InstanceGroupStatus::deserialize(status).ok(),
        };
        let spec = &object["spec"];
        let (demand, used_nodes) =
            (NodeDemand::from_spec(spec), status.as_ref().map_or(0, |status| used_nodes(status, spec)));
        let invalid = InvalidObject { metadata, status, demand, used_nodes };
        Ok(GroupObject(Err(invalid)))
    }
}

impl Resource for GroupObject {
    type DynamicType = <InstanceGroup as Resource>::DynamicType;
    type Scope = <InstanceGroup as Resource>::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        InstanceGroup::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        InstanceGroup::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        InstanceGroup::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        InstanceGroup::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, Resource::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, Resource::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The ConfigMap and the last known good content are gone. A tenant's broken object must not make the controller
    /// assume that the cluster never had boundaries, and plan every group without them.
    #[test]
    fn group_that_cannot_be_decoded_may_have_had_boundaries() {
        let had = |spec: Value, status: Value| {
            let object = json!({
                "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
                "metadata": {"name": "web", "namespace": "team"}, "spec": spec, "status": status,
            });
            serde_json::from_value::<GroupObject>(object).expect("an object").may_have_had_boundaries()
        };
        for spec in [json!({}), json!(7)] {
            assert!(had(spec.clone(), json!({"configMD5": "one"})), "{spec}");
            assert!(!had(spec.clone(), json!({"configMD5": ""})) && !had(spec, json!(null)));
        }
        assert!(had(json!({}), json!(7)), "what cannot be read is not known");
    }
}
