//! Permission checks of the controller's own account (SelfSubjectAccessReview).

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::KubeError;
use super::error::call;

/// The API groups of resources that a rotation uses, apart from the core group.
const GROUPS: [(&str, &str); 2] = [("poddisruptionbudgets", "policy"), ("volumeattachments", "storage.k8s.io")];

pub(super) async fn is_allowed(
    client: &Client,
    verb: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool, KubeError> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let group = GROUPS.iter().find(|(named, _)| *named == resource).map_or("", |(_, group)| *group);
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(verb.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let (params, what) = (PostParams::default(), "selfsubjectaccessreviews");
    let answer = call("create", what, api.create(&params, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn review_names_group_subresource_and_namespace() {
        let client = crate::k8s::fake::client(|call| {
            assert_eq!(call.route(), ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"));
            let asked = call.body["spec"]["resourceAttributes"].clone();
            let is_eviction =
                asked["subresource"] == "eviction" && asked["namespace"] == "team" && asked["group"] == "";
            let is_attachment = asked["resource"] == "volumeattachments" && asked["group"] == "storage.k8s.io";
            (201, json!({"spec": call.body["spec"], "status": {"allowed": is_eviction || is_attachment}}))
        });
        assert!(is_allowed(&client, "create", "pods/eviction", Some("team")).await.unwrap());
        assert!(!is_allowed(&client, "create", "pods/eviction", Some("other")).await.unwrap());
        assert!(is_allowed(&client, "list", "volumeattachments", None).await.unwrap());
    }
}
