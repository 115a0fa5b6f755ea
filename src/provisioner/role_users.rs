//! Who uses a role that a spec names, besides InstanceGroups: nodes of eksctl, Terraform or a user.
//!
//! They may have joined through an entry that the controller created, so it is removed only when no other user of the role is found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::try_join_all;

use super::observe::{ObserveError, ObserveResult, Observer};
use crate::aws::inventory::versions_of_template;
use crate::aws::{Aws, AwsResult, InstanceProfile, TemplateVersion};
use crate::plan::{Event, EventReason};
use crate::provisioner::eks::launch_template::fingerprint::Fingerprint;

/// A join entry that the controller created and leaves to another user of its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEntry {
    /// ARN of the role.
    pub role_arn: String,
    /// Who uses the role, for example `the instance i-1`.
    pub user: String,
}

impl KeptEntry {
    /// Says that the entry stays, and why.
    pub(crate) fn message(&self) -> String {
        let KeptEntry { role_arn, user } = self;
        format!(
            "keeping the join entry of {role_arn}: {user} uses the role; remove the entry manually once nothing uses it"
        )
    }

    /// The event of a group that changed its role.
    pub(crate) fn event(&self) -> Event {
        Event::warning(EventReason::JoinEntryRetained, self.message())
    }
}

/// Tag that Karpenter gives to the instance profile of an EC2NodeClass with a role.
const KARPENTER_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";

/// The instance profiles that hold a role of the controller, without the one of the same name. Their tags are not included.
pub(crate) async fn other_profiles(o: &Observer<'_>, role: &str) -> ObserveResult<Vec<InstanceProfile>> {
    let mut profiles = o.inventory.aws().iam.profiles_of_role(role).await.map_err(ObserveError::Aws)?;
    profiles.retain(|profile| profile.name != role);
    Ok(profiles)
}

/// What launches or ran nodes with a role: an instance, a launch configuration, a version of a launch template other than
/// `own_template` that is the default, the latest or a scaling group's, or a Karpenter node class. `None` when there is none.
/// Always read from AWS, because an entry is removed for it.
pub(crate) async fn node_user(
    o: &Observer<'_>,
    role_arn: &str,
    own_template: Option<&str>,
) -> ObserveResult<Option<String>> {
    let (aws, failed) = (o.inventory.aws(), ObserveError::Aws);
    let role = role_arn.rsplit('/').next().unwrap_or(role_arn);
    let mut profiles = aws.iam.profiles_of_role(role).await.map_err(failed)?;
    // The name of a role is unique in its account only.
    profiles.retain(|profile| profile.role.as_ref().is_some_and(|role| role.arn == role_arn));
    if profiles.is_empty() {
        return Ok(None);
    }
    let arns: Vec<_> = profiles.iter().map(|profile| profile.arn.clone()).collect();
    if let Some(instance) = aws.ec2.instances_with_profiles(&arns).await.map_err(failed)?.first() {
        return Ok(Some(format!("the instance {instance}")));
    }
    for profile in &profiles {
        let found = aws.iam.get_profile(&profile.name).await.map_err(failed)?;
        let class = found.and_then(|p| p.tags.into_iter().find(|tag| tag.key == KARPENTER_NODE_CLASS));
        if let Some(class) = class {
            return Ok(Some(format!("Karpenter's EC2NodeClass {}", class.value)));
        }
    }
    let names = |named: &str| profiles.iter().any(|profile| profile.arn == named || profile.name == named);
    let configurations = aws.autoscaling.all_launch_configurations().await.map_err(failed)?;
    if let Some(found) = configurations.iter().find(|c| names(&c.data.profile_arn)) {
        return Ok(Some(format!("the launch configuration {}", found.name)));
    }
    let versions = launchable_versions(aws, own_template).await.map_err(failed)?;
    let user = versions.iter().find(|version| names(&version.data.profile_arn));
    Ok(user.map(|version| format!("the launch template {}", version.template_id)))
}

/// The versions of launch templates that something launches by: default and latest ones, and those that scaling groups pin
/// by number. A version that the controller made counts only if a scaling group refers to it: each InstanceGroup pins a
/// number, and its template's default version stays the first one.
async fn launchable_versions(aws: &Aws, own_template: Option<&str>) -> AwsResult<Vec<TemplateVersion>> {
    let mut versions = aws.ec2.default_versions().await?;
    versions.extend(aws.ec2.latest_versions().await?);
    let mut pinned = BTreeMap::<String, BTreeSet<i64>>::new();
    let mut floating = BTreeSet::new();
    for pin in aws.autoscaling.all_groups().await?.into_iter().filter_map(|group| group.template) {
        match pin.version_number() {
            Some(number) => _ = pinned.entry(pin.id).or_default().insert(number),
            None => _ = floating.insert(pin.id),
        }
    }
    versions.retain(|version| {
        let is_pinned = || pinned.get(&version.template_id).is_some_and(|numbers| numbers.contains(&version.number));
        Fingerprint::parse(version.description.as_deref()).is_none()
            || floating.contains(&version.template_id)
            || is_pinned()
    });
    for (template, mut numbers) in pinned {
        numbers.retain(|number| !versions.iter().any(|v| v.template_id == template && v.number == *number));
        if !numbers.is_empty() && Some(template.as_str()) != own_template {
            let numbers: Vec<_> = numbers.into_iter().collect();
            // A scaling group may pin a version that another client deleted: it launches nothing.
            versions.extend(versions_of_template(aws.ec2.clone(), template, numbers).await?);
        }
    }
    versions.retain(|version| Some(version.template_id.as_str()) != own_template);
    Ok(versions)
}

/// The Fargate profile of a cluster that uses a role; `None` when there is none. Always read from AWS.
pub(crate) async fn profile_user(o: &Observer<'_>, cluster: &str, role_arn: &str) -> ObserveResult<Option<String>> {
    let failed = ObserveError::Aws;
    let names = o.inventory.fargate_profile_names(cluster, Duration::ZERO).await.map_err(failed)?;
    let profiles = names.iter().map(|name| o.inventory.fargate_profile(cluster, name, Duration::ZERO));
    let found = try_join_all(profiles).await.map_err(failed)?;
    let user = found.into_iter().flatten().find(|profile| profile.role_arn == role_arn);
    Ok(user.map(|profile| format!("the Fargate profile {}", profile.name)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    use crate::aws::inventory::fake_aws::FakeAws;

    use crate::aws::samples::scaling_group;
    use crate::aws::{LaunchConfiguration, Role, ScalingGroup, Tag, TemplateData, TemplatePin};

    use crate::provisioner::observe::fake::FakeCluster;

    const GIVEN: &str = "arn:aws:iam::1:role/given";

    async fn user_of(fake_aws: &Arc<FakeAws>, role_arn: &str) -> Option<String> {
        let cluster = FakeCluster::new(fake_aws);
        let observer = cluster.observer();
        node_user(&observer, role_arn, Some("lt-own")).await.expect("answers")
    }

    /// A role in an instance profile of another name, as Terraform creates them.
    fn given_role() -> Arc<FakeAws> {
        let fake_aws = Arc::new(FakeAws::default());
        let role = Role { id: "AROA-1".into(), name: "given".into(), arn: GIVEN.into(), ..Role::default() };
        let profile = InstanceProfile {
            id: "AIPA-1".into(),
            name: "nodes".into(),
            arn: "arn:aws:iam::1:instance-profile/nodes".into(),
            created: None,
            role: Some(role),
            tags: Vec::new(),
        };
        fake_aws.update(|d| _ = d.profiles.insert("nodes".into(), profile));
        fake_aws
    }

    fn version(template: &str, profile: &str) -> TemplateVersion {
        TemplateVersion {
            template_id: template.into(),
            number: 1,
            description: None,
            data: TemplateData { profile_arn: profile.into(), ..TemplateData::default() },
        }
    }

    #[tokio::test]
    async fn instances_and_launch_templates_use_a_role() {
        let unused = given_role();
        assert_eq!(user_of(&unused, GIVEN).await, None);
        unused.update(|d| d.versions.push(version("lt-own", "nodes")));
        assert_eq!(user_of(&unused, GIVEN).await, None, "the template of the deleted group");
        let running = given_role();
        running.update(|d| d.instances.push(("i-1".into(), "arn:aws:iam::1:instance-profile/nodes".into())));
        assert_eq!(user_of(&running, GIVEN).await.as_deref(), Some("the instance i-1"));
        assert_eq!(user_of(&running, "arn:aws:iam::1:role/other").await, None);
        for named in ["nodes", "arn:aws:iam::1:instance-profile/nodes"] {
            let scaled_to_zero = given_role();
            scaled_to_zero.update(|d| d.versions.push(version("lt-1", named)));
            assert_eq!(user_of(&scaled_to_zero, GIVEN).await.as_deref(), Some("the launch template lt-1"));
        }
    }

    fn numbered(number: i64, profile: &str) -> TemplateVersion {
        TemplateVersion { number, ..version("lt-1", profile) }
    }

    fn group_pinned_to(number: &str) -> ScalingGroup {
        let template = Some(TemplatePin { id: "lt-1".into(), version: number.into() });
        ScalingGroup { min: 0, max: 5, desired: 0, template, ..scaling_group("nodes") }
    }

    /// A scaling group at zero launches by none of them now, and does so later.
    #[tokio::test]
    async fn other_versions_configurations_and_karpenter_use_a_role() {
        let user = Some("the launch template lt-1".to_owned());
        let latest = given_role();
        latest.update(|d| d.versions = vec![numbered(1, "other"), numbered(2, "nodes")]);
        assert_eq!(user_of(&latest, GIVEN).await, user);
        let older = given_role();
        older.update(|d| d.versions = vec![numbered(1, "other"), numbered(2, "nodes"), numbered(3, "other")]);
        assert_eq!(user_of(&older, GIVEN).await, None, "nothing launches by version 2");
        older.update(|d| _ = d.groups.insert("nodes".into(), group_pinned_to("2")));
        assert_eq!(user_of(&older, GIVEN).await, user);
        let configured = given_role();
        let data = TemplateData { profile_arn: "nodes".into(), ..TemplateData::default() };
        configured.update(|d| d.launch_configurations.push(LaunchConfiguration { name: "lc-1".into(), data }));
        assert_eq!(user_of(&configured, GIVEN).await.as_deref(), Some("the launch configuration lc-1"));
        let karpenter = given_role();
        karpenter.update(|d| {
            let tag = Tag { key: KARPENTER_NODE_CLASS.into(), value: "default".into() };
            d.profiles.get_mut("nodes").expect("a profile").tags.push(tag);
        });
        assert_eq!(user_of(&karpenter, GIVEN).await.as_deref(), Some("Karpenter's EC2NodeClass default"));
    }

    /// EC2 lets users delete what a scaling group refers to, and Terraform and eksctl share the account.
    #[tokio::test]
    async fn foreign_scaling_group_without_its_template_uses_no_role() {
        let broken = given_role();
        broken.update(|d| {
            d.versions = vec![numbered(1, "other")];
            d.groups.insert("nodes".into(), group_pinned_to("7"));
        });
        assert_eq!(user_of(&broken, GIVEN).await, None);
    }

    /// The default version of a group's template stays the first one. The group may have changed its role since.
    #[tokio::test]
    async fn version_of_an_instance_group_counts_while_a_scaling_group_refers_to_it() {
        let of_group = |number, profile| {
            let description = Some(format!("instance-manager sha256:{}", "0".repeat(64)));
            TemplateVersion { description, ..numbered(number, profile) }
        };
        for (pin, user) in [
            (Some("2"), None),
            (None, None),
            (Some("1"), Some("the launch template lt-1")),
            (Some("$Default"), Some("the launch template lt-1")),
        ] {
            let aws = given_role();
            aws.update(|d| {
                d.versions = vec![of_group(1, "nodes"), of_group(2, "other")];
                d.groups.extend(pin.map(|pin| ("nodes".to_owned(), group_pinned_to(pin))));
            });
            assert_eq!(user_of(&aws, GIVEN).await.as_deref(), user, "{pin:?}");
        }
    }
}
