//! AWS Identity and Access Management (IAM).

use async_trait::async_trait;
use aws_sdk_iam::Client;
use aws_sdk_iam::types as sdk;

use super::convert::{timestamp, to_aws_error};
use crate::aws::error::none_if_not_found;
use crate::aws::{
    AwsError, AwsResult, Iam, InstanceProfile, NewRole, PolicyDecision, PolicyRole, PolicySimulation, Role, Tag,
};

const SERVICE: &str = "IAM";
/// Maximum page size.
const MAX_PAGE: i32 = 1000;

/// The IAM client, and the AWS STS client for GetCallerIdentity.
pub(super) struct IamSdk(pub Client, pub aws_sdk_sts::Client);

#[async_trait]
impl Iam for IamSdk {
    async fn list_profiles(&self) -> AwsResult<Vec<InstanceProfile>> {
        let request = self.0.list_instance_profiles().into_paginator().page_size(MAX_PAGE);
        let found = request.items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "ListInstanceProfiles"))?;
        Ok(found.iter().map(profile).collect())
    }

    async fn profiles_of_role(&self, role: &str) -> AwsResult<Vec<InstanceProfile>> {
        let request = self.0.list_instance_profiles_for_role().role_name(role).into_paginator().page_size(MAX_PAGE);
        let found: Result<Vec<_>, _> = request.items().send().try_collect().await;
        let found = found.map_err(to_aws_error(SERVICE, "ListInstanceProfilesForRole"));
        Ok(none_if_not_found(found)?.unwrap_or_default().iter().map(profile).collect())
    }

    async fn roles_with_policy(&self, policy_arn: &str) -> AwsResult<Vec<PolicyRole>> {
        let request = self.0.list_entities_for_policy().policy_arn(policy_arn);
        let mut pages = request.entity_filter(sdk::EntityType::Role).into_paginator().page_size(MAX_PAGE).send();
        let mut roles = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(to_aws_error(SERVICE, "ListEntitiesForPolicy"))?;
            roles.extend(page.policy_roles().iter().filter_map(policy_role));
        }
        Ok(roles)
    }

    async fn get_role(&self, name: &str) -> AwsResult<Option<Role>> {
        let response = self.0.get_role().role_name(name).send().await.map_err(to_aws_error(SERVICE, "GetRole"));
        Ok(none_if_not_found(response)?.and_then(|a| a.role().map(role)))
    }

    async fn get_profile(&self, name: &str) -> AwsResult<Option<InstanceProfile>> {
        let response = self.0.get_instance_profile().instance_profile_name(name).send().await;
        let response = none_if_not_found(response.map_err(to_aws_error(SERVICE, "GetInstanceProfile")))?;
        Ok(response.and_then(|a| a.instance_profile().map(profile)))
    }

    async fn attached_policies(&self, role: &str) -> AwsResult<Vec<String>> {
        let request = self.0.list_attached_role_policies().role_name(role).into_paginator().page_size(MAX_PAGE);
        let found = request.items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "ListAttachedRolePolicies"))?;
        Ok(found.iter().filter_map(|p| p.policy_arn()).map(str::to_owned).collect())
    }

    async fn inline_policies(&self, role: &str) -> AwsResult<Vec<String>> {
        let request = self.0.list_role_policies().role_name(role).into_paginator().page_size(MAX_PAGE);
        let found = request.items().send().try_collect().await;
        found.map_err(to_aws_error(SERVICE, "ListRolePolicies"))
    }

    async fn create_role(&self, input: &NewRole) -> AwsResult<Role> {
        let request = self
            .0
            .create_role()
            .role_name(&input.name)
            .assume_role_policy_document(&input.trust_policy)
            .set_tags(sdk_tags(&input.tags));
        let response = request.send().await.map_err(to_aws_error(SERVICE, "CreateRole"))?;
        let created = response.role().map(role).ok_or_else(|| empty_response("CreateRole"))?;
        Ok(Role { tags: input.tags.clone(), ..created })
    }

    async fn update_trust_policy(&self, role: &str, policy: &str) -> AwsResult<()> {
        let request = self.0.update_assume_role_policy().role_name(role).policy_document(policy);
        request.send().await.map_err(to_aws_error(SERVICE, "UpdateAssumeRolePolicy"))?;
        Ok(())
    }

    async fn attach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()> {
        let request = self.0.attach_role_policy().role_name(role).policy_arn(policy_arn);
        request.send().await.map_err(to_aws_error(SERVICE, "AttachRolePolicy"))?;
        Ok(())
    }

    async fn detach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()> {
        let request = self.0.detach_role_policy().role_name(role).policy_arn(policy_arn);
        request.send().await.map_err(to_aws_error(SERVICE, "DetachRolePolicy"))?;
        Ok(())
    }

    async fn create_profile(&self, name: &str, tags: &[Tag]) -> AwsResult<InstanceProfile> {
        let request = self.0.create_instance_profile().instance_profile_name(name).set_tags(sdk_tags(tags));
        let response = request.send().await.map_err(to_aws_error(SERVICE, "CreateInstanceProfile"))?;
        let created =
            response.instance_profile().map(profile).ok_or_else(|| empty_response("CreateInstanceProfile"))?;
        Ok(InstanceProfile { tags: tags.to_vec(), ..created })
    }

    async fn add_role_to_profile(&self, profile: &str, role: &str) -> AwsResult<()> {
        let request = self.0.add_role_to_instance_profile().instance_profile_name(profile).role_name(role);
        request.send().await.map_err(to_aws_error(SERVICE, "AddRoleToInstanceProfile"))?;
        Ok(())
    }

    async fn remove_role_from_profile(&self, profile: &str, role: &str) -> AwsResult<()> {
        let request = self.0.remove_role_from_instance_profile().instance_profile_name(profile).role_name(role);
        request.send().await.map_err(to_aws_error(SERVICE, "RemoveRoleFromInstanceProfile"))?;
        Ok(())
    }

    async fn delete_profile(&self, name: &str) -> AwsResult<()> {
        let request = self.0.delete_instance_profile().instance_profile_name(name);
        request.send().await.map_err(to_aws_error(SERVICE, "DeleteInstanceProfile"))?;
        Ok(())
    }

    async fn delete_role(&self, name: &str) -> AwsResult<()> {
        self.0.delete_role().role_name(name).send().await.map_err(to_aws_error(SERVICE, "DeleteRole"))?;
        Ok(())
    }

    async fn tag_role(&self, name: &str, tags: &[Tag]) -> AwsResult<()> {
        let request = self.0.tag_role().role_name(name).set_tags(sdk_tags(tags));
        request.send().await.map_err(to_aws_error(SERVICE, "TagRole"))?;
        Ok(())
    }

    async fn tag_profile(&self, name: &str, tags: &[Tag]) -> AwsResult<()> {
        let request = self.0.tag_instance_profile().instance_profile_name(name).set_tags(sdk_tags(tags));
        request.send().await.map_err(to_aws_error(SERVICE, "TagInstanceProfile"))?;
        Ok(())
    }

    async fn caller_arn(&self) -> AwsResult<String> {
        let response = self.1.get_caller_identity().send().await.map_err(to_aws_error("STS", "GetCallerIdentity"))?;
        response.arn().map(str::to_owned).ok_or_else(|| empty_response("GetCallerIdentity"))
    }

    async fn simulate_policy(
        &self,
        principal: &str,
        simulation: &PolicySimulation,
    ) -> AwsResult<Vec<(String, PolicyDecision)>> {
        let entry = |(key, value): &(String, String)| {
            let kind = sdk::ContextKeyTypeEnum::String;
            let entry = sdk::ContextEntry::builder().context_key_name(key).context_key_values(value);
            entry.context_key_type(kind).build()
        };
        let request = self.0.simulate_principal_policy().policy_source_arn(principal);
        let request = request
            .set_action_names(Some(simulation.actions.clone()))
            .set_resource_arns(simulation.resource.clone().map(|resource| vec![resource]))
            .set_context_entries(Some(simulation.context.iter().map(entry).collect()));
        let found = request.into_paginator().items().send().try_collect().await;
        let found: Vec<_> = found.map_err(to_aws_error(SERVICE, "SimulatePrincipalPolicy"))?;
        // If the request names a resource, the missing condition keys are in the result for that resource.
        let has_missing_keys = |result: &sdk::EvaluationResult| {
            let specific = result.resource_specific_results().iter().flat_map(|r| r.missing_context_values());
            result.missing_context_values().iter().chain(specific).next().is_some()
        };
        let decision = |result: &sdk::EvaluationResult| match result.eval_decision() {
            sdk::PolicyEvaluationDecisionType::Allowed => PolicyDecision::Allowed,
            _ if has_missing_keys(result) => PolicyDecision::Unclear,
            _ => PolicyDecision::Denied,
        };
        Ok(found.iter().map(|result| (result.eval_action_name().to_owned(), decision(result))).collect())
    }
}

fn empty_response(operation: &'static str) -> AwsError {
    AwsError::no_response(SERVICE, operation, "InvalidResponse", "the response is empty")
}

fn sdk_tags(tags: &[Tag]) -> Option<Vec<sdk::Tag>> {
    let sdk_tag = |t: &Tag| sdk::Tag::builder().key(&t.key).value(&t.value).build().expect("a key and a value are set");
    (!tags.is_empty()).then(|| tags.iter().map(sdk_tag).collect())
}

fn tags_from_sdk(tags: &[sdk::Tag]) -> Vec<Tag> {
    tags.iter().map(|t| Tag { key: t.key().to_owned(), value: t.value().to_owned() }).collect()
}

fn role(role: &sdk::Role) -> Role {
    Role {
        id: role.role_id().to_owned(),
        name: role.role_name().to_owned(),
        arn: role.arn().to_owned(),
        created: timestamp(Some(role.create_date())),
        tags: tags_from_sdk(role.tags()),
        last_used_region: role.role_last_used().and_then(|used| used.region()).map(str::to_owned),
        trust_policy: role.assume_role_policy_document().map(percent_decoded),
    }
}

fn policy_role(role: &sdk::PolicyRole) -> Option<PolicyRole> {
    Some(PolicyRole { name: role.role_name()?.to_owned(), id: role.role_id().map(str::to_owned) })
}

/// A policy document as JSON. IAM returns it URL-encoded as in RFC 3986 (IAM API reference, Role).
fn percent_decoded(text: &str) -> String {
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        let escape = (byte == b'%').then(|| tail.get(..2)).flatten();
        let value = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        decoded.push(value.unwrap_or(byte));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn profile(profile: &sdk::InstanceProfile) -> InstanceProfile {
    InstanceProfile {
        id: profile.instance_profile_id().to_owned(),
        name: profile.instance_profile_name().to_owned(),
        arn: profile.arn().to_owned(),
        created: timestamp(Some(profile.create_date())),
        role: profile.roles().first().map(role),
        tags: tags_from_sdk(profile.tags()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the ID, a role that a user deleted and created again looks like the old one.
    #[test]
    fn roles_with_a_policy_are_listed_with_their_id() {
        let listed = sdk::PolicyRole::builder().role_name("web").role_id("AROA-1").build();
        let expected = PolicyRole { name: "web".into(), id: Some("AROA-1".into()) };
        assert_eq!(policy_role(&listed), Some(expected));
    }

    #[test]
    fn policy_documents_are_decoded() {
        assert_eq!(percent_decoded("%7B%22a%22%3A%20%22b%2Fc%22%7D"), r#"{"a": "b/c"}"#);
        assert_eq!(percent_decoded(r#"{"a": "100%", "b": "%zz%4"}"#), r#"{"a": "100%", "b": "%zz%4"}"#);
    }
}
