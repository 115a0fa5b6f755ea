//! A fake AWS for tests of the inventory. It counts reads, and can delay them or let them fail.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::aws::nodegroup::*;
use crate::aws::*;

/// The fake of all services.
#[derive(Default)]
pub(crate) struct FakeAws {
    pub data: Mutex<FakeState>,
}

/// The resources that exist in the fake, and how it behaves.
#[derive(Default)]
pub(crate) struct FakeState {
    pub clusters: BTreeMap<String, Cluster>,
    pub groups: BTreeMap<String, ScalingGroup>,
    pub templates: BTreeMap<String, LaunchTemplate>,
    pub versions: Vec<TemplateVersion>,
    pub launch_configurations: Vec<LaunchConfiguration>,
    pub profiles: BTreeMap<String, InstanceProfile>,
    pub roles: BTreeMap<String, Role>,
    pub policies: HashMap<String, Vec<String>>,
    pub parameters: HashMap<String, String>,
    pub nodegroups: HashMap<String, Nodegroup>,
    pub access_entries: Vec<AccessEntry>,
    /// IDs of instances, with the ARNs of their instance profiles.
    pub instances: Vec<(String, String)>,
    /// IDs of launch templates, with the scaling groups that have instances from them.
    pub template_users: Vec<(String, String)>,
    pub fargate: BTreeMap<String, fargate::FargateProfile>,
    pub subnets: Vec<NetworkObject>,
    pub security_groups: Vec<NetworkObject>,
    /// Instance types besides those of m5.
    pub instance_types: Vec<InstanceType>,
    pub images: Vec<Image>,
    /// The instances of every warm pool.
    pub warm_instances: Vec<WarmInstance>,
    /// The scaling activities of every group.
    pub activities: Vec<ScalingActivity>,
    /// Instances and the tags that were set on them, by call.
    pub instance_tags: Vec<(Vec<String>, Vec<Tag>)>,
    /// Instances and the tags that were removed from them, by call.
    pub removed_instance_tags: Vec<(Vec<String>, Vec<Tag>)>,
    /// Instances that were terminated, in order.
    pub terminated: Vec<String>,
    /// Instances that were set unhealthy, in order.
    pub unhealthy: Vec<String>,
    /// A read that contains this name fails with a validation error.
    pub rejected_name: Option<String>,
    /// The error of every read.
    pub failure: Option<AwsError>,
    /// The label of the reads that AWS denies.
    pub denied: Option<&'static str>,
    /// Reads determine their result, then wait for a permit before they return it.
    pub read_permits: Option<Arc<Semaphore>>,
    /// Number of calls by label.
    pub calls: BTreeMap<&'static str, usize>,
}

impl FakeAws {
    pub(crate) fn aws(self: &Arc<Self>) -> Aws {
        let fake = self.clone();
        Aws {
            region: "us-west-2".into(),
            autoscaling: fake.clone(),
            ec2: fake.clone(),
            iam: fake.clone(),
            eks: fake.clone(),
            fargate: fake.clone(),
            nodegroups: fake.clone(),
            ssm: fake,
        }
    }

    /// The number of calls with a label, failed ones included.
    pub(crate) fn calls(&self, label: &str) -> usize {
        self.data.lock().unwrap().calls.get(label).copied().unwrap_or_default()
    }

    pub(crate) fn update(&self, edit: impl FnOnce(&mut FakeState)) {
        edit(&mut self.data.lock().unwrap());
    }

    async fn read<T>(
        &self,
        label: &'static str,
        names: &[String],
        result: impl FnOnce(&FakeState) -> T,
    ) -> AwsResult<T> {
        let (result, permits) = {
            let mut data = self.data.lock().unwrap();
            *data.calls.entry(label).or_default() += 1;
            if let Some(error) = &data.failure {
                return Err(error.clone());
            }
            if data.denied == Some(label) {
                return Err(AwsError::from_response("AWS", "Describe", "AccessDenied", "no", 403));
            }
            if data.rejected_name.as_ref().is_some_and(|rejected| names.contains(rejected)) {
                return Err(AwsError::from_response("SSM", "GetParameters", "ValidationException", "bad name", 400));
            }
            (result(&data), data.read_permits.clone())
        };
        if let Some(permits) = permits {
            permits.acquire().await.unwrap().forget();
        }
        Ok(result)
    }
}

fn matching(all: &[NetworkObject], query: &NetworkQuery) -> Vec<NetworkObject> {
    let matches = |object: &&NetworkObject| match query {
        NetworkQuery::Vpc(vpc) => object.vpc == *vpc,
        NetworkQuery::Ids(ids) => ids.contains(&object.id),
    };
    all.iter().filter(matches).cloned().collect()
}

#[async_trait]
impl AutoScaling for FakeAws {
    async fn describe_groups(&self, names: &[String]) -> AwsResult<Vec<ScalingGroup>> {
        assert!(names.len() <= 100);
        self.read("groups", names, |d| names.iter().filter_map(|n| d.groups.get(n).cloned()).collect()).await
    }
    async fn describe_hooks(&self, _: &str) -> AwsResult<Vec<LifecycleHook>> {
        self.read("hooks", &[], |_| Vec::new()).await
    }
    async fn scaling_activities(&self, _: &str, _: i32) -> AwsResult<Vec<ScalingActivity>> {
        self.read("activities", &[], |d| d.activities.clone()).await
    }
    async fn has_active_refresh(&self, _: &str) -> AwsResult<bool> {
        self.read("refreshes", &[], |_| false).await
    }
    async fn describe_warm_pool(&self, _: &str) -> AwsResult<Vec<WarmInstance>> {
        self.read("warm pools", &[], |d| d.warm_instances.clone()).await
    }
    async fn put_warm_pool(&self, _: &str, _: &WarmSizes, _: Option<&str>, _: Option<bool>) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_warm_pool(&self, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn set_unhealthy(&self, instance: &str) -> AwsResult<()> {
        self.update(|d| d.unhealthy.push(instance.to_owned()));
        Ok(())
    }
    async fn all_groups(&self) -> AwsResult<Vec<ScalingGroup>> {
        self.read("all groups", &[], |d| d.groups.values().cloned().collect()).await
    }
    async fn all_launch_configurations(&self) -> AwsResult<Vec<LaunchConfiguration>> {
        self.read("all launch configurations", &[], |d| d.launch_configurations.clone()).await
    }
    async fn describe_launch_configurations(&self, names: &[String]) -> AwsResult<Vec<LaunchConfiguration>> {
        let configuration = |name: &String| LaunchConfiguration { name: name.clone(), data: TemplateData::default() };
        self.read("launch configurations", names, |_| names.iter().map(configuration).collect()).await
    }
    async fn delete_launch_configuration(&self, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn create_group(&self, group: &NewScalingGroup) -> AwsResult<()> {
        let NewScalingGroup { name, min, max, template, .. } = group.clone();
        let created = ScalingGroup { min, max, template: Some(template), ..samples::scaling_group(&name) };
        self.update(|state| _ = state.groups.insert(name, created));
        Ok(())
    }
    async fn update_group(&self, name: &str, change: &ScalingGroupChange, _: Option<&TemplatePin>) -> AwsResult<()> {
        let mut state = self.data.lock().unwrap();
        state.failure.clone().map_or(Ok(()), Err)?;
        let Some(group) = state.groups.get_mut(name) else {
            let (service, operation, message) =
                ("AutoScaling", "UpdateAutoScalingGroup", "AutoScalingGroup name not found");
            return Err(AwsError::from_response(service, operation, "ValidationError", message, 400));
        };
        (group.min, group.max) = (change.min.unwrap_or(group.min), change.max.unwrap_or(group.max));
        Ok(())
    }
    async fn delete_group(&self, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn put_tags(&self, _: &str, _: &[Tag]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_tags(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn suspend_processes(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn resume_processes(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn enable_metrics(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn disable_metrics(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn put_hook(&self, _: &str, _: &LifecycleHook) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_hook(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn enter_standby(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn terminate_instance(&self, instance: &str, _: bool) -> AwsResult<()> {
        let mut data = self.data.lock().unwrap();
        data.terminated.push(instance.to_owned());
        data.failure.clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Ec2 for FakeAws {
    async fn describe_templates(&self, names: &[String]) -> AwsResult<Vec<LaunchTemplate>> {
        assert!(names.len() <= 200);
        let fits = |name: &str, pattern: &String| {
            let is_any = |(found, pattern): (u8, u8)| pattern == b'?' || found == pattern;
            name.len() == pattern.len() && name.bytes().zip(pattern.bytes()).all(is_any)
        };
        let is_requested = |t: &&LaunchTemplate| names.iter().any(|pattern| fits(&t.name, pattern));
        self.read("templates", names, |d| d.templates.values().filter(is_requested).cloned().collect()).await
    }
    async fn template_by_id(&self, id: &str) -> AwsResult<Option<LaunchTemplate>> {
        self.read("template", &[], |d| d.templates.values().find(|t| t.id == id).cloned()).await
    }
    async fn describe_versions(&self, id: &str, numbers: &[i64]) -> AwsResult<Vec<TemplateVersion>> {
        let of_template =
            |d: &FakeState| d.versions.iter().filter(|v| v.template_id == id).cloned().collect::<Vec<_>>();
        let all = self.read("versions", &[], of_template).await?;
        if numbers.iter().any(|n| all.iter().all(|v| v.number != *n)) {
            let code = "InvalidLaunchTemplateId.VersionNotFound";
            return Err(AwsError::from_response("EC2", "DescribeLaunchTemplateVersions", code, "", 400));
        }
        Ok(all.into_iter().filter(|v| numbers.is_empty() || numbers.contains(&v.number)).collect())
    }
    async fn default_versions(&self) -> AwsResult<Vec<TemplateVersion>> {
        self.read("default versions", &[], |d| d.versions.iter().filter(|v| v.number == 1).cloned().collect()).await
    }
    async fn latest_versions(&self) -> AwsResult<Vec<TemplateVersion>> {
        let latest = |d: &FakeState| {
            let newest = |v: &TemplateVersion| {
                d.versions.iter().all(|other| other.template_id != v.template_id || other.number <= v.number)
            };
            d.versions.iter().filter(|v| newest(v)).cloned().collect()
        };
        self.read("latest versions", &[], latest).await
    }
    async fn create_template(&self, _: &NewTemplate) -> AwsResult<TemplateVersion> {
        unimplemented!()
    }
    async fn create_version(&self, template: &str, new: &NewVersion) -> AwsResult<TemplateVersion> {
        let mut data = self.data.lock().unwrap();
        let numbers = data.versions.iter().filter(|version| version.template_id == template).map(|v| v.number);
        let version = TemplateVersion {
            template_id: template.to_owned(),
            number: numbers.max().unwrap_or_default() + 1,
            description: Some(new.description.clone()),
            data: new.data.clone(),
        };
        data.versions.push(version.clone());
        Ok(version)
    }
    async fn delete_versions(&self, _: &str, _: &[i64]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_template(&self, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn tag_instances(&self, ids: &[String], tags: &[Tag]) -> AwsResult<()> {
        self.update(|d| d.instance_tags.push((ids.to_vec(), tags.to_vec())));
        Ok(())
    }
    async fn untag_instances(&self, ids: &[String], tags: &[Tag]) -> AwsResult<()> {
        self.update(|d| d.removed_instance_tags.push((ids.to_vec(), tags.to_vec())));
        Ok(())
    }
    async fn create_tags(&self, _: &str, _: &[Tag]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn describe_subnets(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>> {
        self.read("subnets", &[], |d| matching(&d.subnets, query)).await
    }
    async fn describe_route_tables(&self, _: &str) -> AwsResult<Vec<fargate::RouteTable>> {
        self.read("route tables", &[], |_| Vec::new()).await
    }
    async fn describe_security_groups(&self, query: &NetworkQuery) -> AwsResult<Vec<NetworkObject>> {
        self.read("security groups", &[], |d| matching(&d.security_groups, query)).await
    }
    async fn instance_types(&self, names: &[String]) -> AwsResult<Vec<InstanceType>> {
        assert!(names.len() <= 100);
        let existing = names.iter().filter(|n| n.starts_with("m5."));
        let types = existing.map(|n| InstanceType { name: n.clone(), ..InstanceType::default() });
        let others =
            |d: &FakeState| d.instance_types.iter().filter(|t| names.contains(&t.name)).cloned().collect::<Vec<_>>();
        self.read("instance types", names, |d| types.chain(others(d)).collect()).await
    }
    async fn instance_types_in_families(&self, prefixes: &[String]) -> AwsResult<Vec<InstanceType>> {
        let instance_type = |name: &str| InstanceType {
            name: name.into(),
            architectures: vec!["x86_64".into()],
            vcpus: Some(2),
            memory_mib: Some(8192),
            ..InstanceType::default()
        };
        let existing = ["c6.large", "c6a.large", "m5.large", "m5a.large"].into_iter();
        let matching = existing.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        let types = matching.map(instance_type).collect();
        self.read("families", prefixes, |_| types).await
    }
    async fn instance_type_offerings(&self, prefixes: &[String]) -> AwsResult<Vec<(String, String)>> {
        self.read("offerings", prefixes, |_| vec![("m5a.large".into(), "a".into())]).await
    }
    async fn images(&self, ids: &[String]) -> AwsResult<Vec<Image>> {
        assert!(ids.len() <= 100);
        let image = |d: &FakeState, id: &String| {
            let known = d.images.iter().find(|image| image.id == *id).cloned();
            known.unwrap_or_else(|| Image { id: id.clone(), ..Image::default() })
        };
        self.read("images", ids, |d| ids.iter().map(|id| image(d, id)).collect()).await
    }
    async fn dry_run(&self, _: DryRun, _: Option<&LaunchTemplate>, _: &[Tag]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn private_dns_names(&self, ids: &[String]) -> AwsResult<Vec<(String, String)>> {
        Ok(ids.iter().map(|id| (id.clone(), format!("ip-of-{id}"))).collect())
    }
    async fn scaling_groups_of(&self, ids: &[String]) -> AwsResult<Vec<(String, String)>> {
        self.read("scaling groups of", ids, |d| {
            let members = d.groups.values().flat_map(|group| group.instances.iter().map(|i| (&i.id, &group.name)));
            members.filter(|(id, _)| ids.contains(id)).map(|(id, name)| (id.clone(), name.clone())).collect()
        })
        .await
    }
    async fn running_instances(&self, ids: &[String]) -> AwsResult<Vec<String>> {
        self.read("running instances", ids, |d| {
            d.instances.iter().map(|(id, _)| id).filter(|id| ids.contains(id)).cloned().collect()
        })
        .await
    }
    async fn instances_with_profiles(&self, arns: &[String]) -> AwsResult<Vec<String>> {
        self.read("instances with profiles", arns, |d| {
            d.instances.iter().filter(|(_, profile)| arns.contains(profile)).map(|(id, _)| id.clone()).collect()
        })
        .await
    }
    async fn scaling_groups_of_template(&self, template_id: &str) -> AwsResult<BTreeSet<String>> {
        let launched = |(template, group): &(String, String)| (template == template_id).then(|| group.clone());
        self.read("scaling groups of a template", &[], |d| d.template_users.iter().filter_map(launched).collect()).await
    }
    async fn state_reasons(&self, _: &[String]) -> AwsResult<Vec<(String, StateReason)>> {
        Ok(Vec::new())
    }
    async fn launches(&self, ids: &[String]) -> AwsResult<Vec<(String, InstanceLaunch)>> {
        let launch = InstanceLaunch { time: Timestamp::UNIX_EPOCH, subnet: "subnet-1".into() };
        self.read("launches", &[], |_| ids.iter().map(|id| (id.clone(), launch.clone())).collect()).await
    }
}

#[async_trait]
impl Iam for FakeAws {
    async fn list_profiles(&self) -> AwsResult<Vec<InstanceProfile>> {
        self.read("profiles", &[], |d| d.profiles.values().cloned().collect()).await
    }
    async fn profiles_of_role(&self, role: &str) -> AwsResult<Vec<InstanceProfile>> {
        let holds = |profile: &&InstanceProfile| profile.role.as_ref().is_some_and(|held| held.name == role);
        self.read("profiles of a role", &[], |d| d.profiles.values().filter(holds).cloned().collect()).await
    }
    async fn roles_with_policy(&self, arn: &str) -> AwsResult<Vec<PolicyRole>> {
        let listed = |d: &FakeState, name: &String| {
            let id = d.roles.get(name).map(|role| role.id.clone());
            PolicyRole { name: name.clone(), id }
        };
        self.read("policies", &[], |d| d.policies.get(arn).into_iter().flatten().map(|name| listed(d, name)).collect())
            .await
    }
    async fn get_role(&self, name: &str) -> AwsResult<Option<Role>> {
        self.read("role", &[], |d| d.roles.get(name).cloned()).await
    }
    async fn get_profile(&self, name: &str) -> AwsResult<Option<InstanceProfile>> {
        self.read("profile", &[], |d| d.profiles.get(name).cloned()).await
    }
    async fn attached_policies(&self, role: &str) -> AwsResult<Vec<String>> {
        let has_role = |(_, roles): &(&String, &Vec<String>)| roles.iter().any(|name| name == role);
        self.read("policies of a role", &[], |d| {
            d.policies.iter().filter(has_role).map(|(arn, _)| arn.clone()).collect()
        })
        .await
    }
    async fn inline_policies(&self, _: &str) -> AwsResult<Vec<String>> {
        self.read("inline policies", &[], |_| Vec::new()).await
    }
    async fn create_role(&self, _: &NewRole) -> AwsResult<Role> {
        unimplemented!()
    }
    async fn update_trust_policy(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn attach_policy(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn detach_policy(&self, role: &str, policy_arn: &str) -> AwsResult<()> {
        let mut state = self.data.lock().expect("lock is not poisoned");
        let roles = state.policies.entry(policy_arn.to_owned()).or_default();
        let before = roles.len();
        roles.retain(|name| name != role);
        match roles.len() < before {
            true => Ok(()),
            false => Err(AwsError::from_response("IAM", "DetachRolePolicy", "NoSuchEntity", "not attached", 404)),
        }
    }
    async fn create_profile(&self, _: &str, _: &[Tag]) -> AwsResult<InstanceProfile> {
        unimplemented!()
    }
    async fn add_role_to_profile(&self, profile: &str, role: &str) -> AwsResult<()> {
        let mut state = self.data.lock().expect("lock is not poisoned");
        let role = Role { name: role.to_owned(), ..Role::default() };
        match &mut state.profiles.get_mut(profile).expect("a profile").role {
            Some(_) => {
                let message = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1";
                Err(AwsError::from_response("IAM", "AddRoleToInstanceProfile", "LimitExceeded", message, 409))
            }
            empty => {
                *empty = Some(role);
                Ok(())
            }
        }
    }
    async fn remove_role_from_profile(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_profile(&self, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_role(&self, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn tag_role(&self, _: &str, _: &[Tag]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn tag_profile(&self, _: &str, _: &[Tag]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn caller_arn(&self) -> AwsResult<String> {
        Ok("arn:aws:sts::42:assumed-role/instance-manager/eks-blue".into())
    }
    async fn simulate_policy(&self, _: &str, _: &PolicySimulation) -> AwsResult<Vec<(String, PolicyDecision)>> {
        unimplemented!()
    }
}

#[async_trait]
impl Eks for FakeAws {
    async fn describe_cluster(&self, name: &str) -> AwsResult<Option<Cluster>> {
        self.read("clusters", &[], |d| d.clusters.get(name).cloned()).await
    }
    async fn list_access_entries(&self, _: &str) -> AwsResult<Vec<String>> {
        self.read("access entries", &[], |d| d.access_entries.iter().map(|e| e.principal.clone()).collect()).await
    }
    async fn describe_access_entry(&self, _: &str, principal: &str) -> AwsResult<Option<AccessEntry>> {
        self.read("access entry", &[], |d| d.access_entries.iter().find(|e| e.principal == principal).cloned()).await
    }
    async fn create_access_entry(&self, _: &NewAccessEntry, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn delete_access_entry(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
}

#[async_trait]
impl NodegroupApi for FakeAws {
    async fn describe_nodegroup(&self, name: &NodegroupName) -> AwsResult<Option<Nodegroup>> {
        self.read("node group", &[], |d| d.nodegroups.get(&name.to_string()).cloned()).await
    }
    async fn list_nodegroups(&self, cluster: &str) -> AwsResult<Vec<String>> {
        let names = |d: &FakeState| {
            let all = d.nodegroups.values().filter(|n| n.name.cluster == cluster);
            all.map(|n| n.name.nodegroup.clone()).collect()
        };
        self.read("node group names", &[], names).await
    }
    async fn create_nodegroup(&self, _: &NewNodegroup, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn update_nodegroup_config(&self, _: &NodegroupName, _: &NodegroupChange, _: &str) -> AwsResult<String> {
        unimplemented!()
    }
    async fn update_nodegroup_version(&self, _: &NodegroupName, _: &NodegroupVersion, _: &str) -> AwsResult<String> {
        unimplemented!()
    }
    async fn describe_update(&self, _: &NodegroupName, _: &str) -> AwsResult<Option<NodegroupUpdate>> {
        self.read("update", &[], |_| None).await
    }
    async fn delete_nodegroup(&self, _: &NodegroupName) -> AwsResult<()> {
        unimplemented!()
    }
    async fn tag_nodegroup(&self, _: &str, _: &BTreeMap<String, String>) -> AwsResult<()> {
        self.read("tags of a node group", &[], |_| ()).await
    }
    async fn untag_nodegroup(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
}

#[async_trait]
impl fargate::FargateApi for FakeAws {
    async fn list_fargate_profiles(&self, _: &str) -> AwsResult<Vec<String>> {
        self.read("Fargate profile names", &[], |d| d.fargate.keys().cloned().collect()).await
    }
    async fn describe_fargate_profile(&self, _: &str, name: &str) -> AwsResult<Option<fargate::FargateProfile>> {
        self.read("Fargate profile", &[], |d| d.fargate.get(name).cloned()).await
    }
    async fn create_fargate_profile(&self, _: &fargate::NewFargateProfile) -> AwsResult<fargate::FargateProfile> {
        unimplemented!()
    }
    async fn delete_fargate_profile(&self, _: &str, _: &str) -> AwsResult<()> {
        unimplemented!()
    }
    async fn tag_fargate_profile(&self, _: &str, _: &[Tag]) -> AwsResult<()> {
        unimplemented!()
    }
    async fn untag_fargate_profile(&self, _: &str, _: &[String]) -> AwsResult<()> {
        unimplemented!()
    }
}

#[async_trait]
impl Ssm for FakeAws {
    async fn parameters(&self, names: &[String]) -> AwsResult<Vec<(String, String)>> {
        assert!(names.len() <= 10);
        let value = |d: &FakeState, name: &String| Some((name.clone(), d.parameters.get(name)?.clone()));
        self.read("parameters", names, |d| names.iter().filter_map(|n| value(d, n)).collect()).await
    }
}
