//! A stored InstanceGroup, decoded or not.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{InstanceGroup, InstanceGroupStatus};

/// An object as the API server holds it. One that does not decode is still one object: others go on, it can be answered
/// with a condition, and what its status names is not forgotten.
#[derive(Clone, Debug)]
pub struct GroupObject(pub Result<InstanceGroup, InvalidObject>);

/// What is known of an object that does not decode. The decoder's own words may quote values, and are not.
#[derive(Clone, Debug)]
pub struct InvalidObject {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its status, by itself; `None` when that does not decode either, which is not the same as none.
    pub status: Option<InstanceGroupStatus>,
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
        Ok(GroupObject(Err(InvalidObject { metadata, status })))
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
        self.0.as_ref().map_or_else(|broken| &broken.metadata, Resource::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|broken| &mut broken.metadata, Resource::meta_mut)
    }
}
