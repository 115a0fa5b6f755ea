//! Finds what another provisioner than the spec's created, while the status records neither: a user removed the status, and
//! the spec changed before the next reconcile. Both provisioners would have nodes then, and a deletion would leave those of
//! the first one.

use super::Planner;
use super::policy_checks::{provisioner_kind, recorded_provisioner, records_resources};
use crate::api::spec_error::SpecError;
use crate::api::{GroupId, InstanceGroupStatus, ProvisionerKind};
use crate::aws::AwsErrorKind;
use crate::boundaries::MergedSpec;
use crate::controller::recorded_cluster;
use crate::plan::{Plan, StalledReason, blocked_plan};
use crate::provisioner::dispatch;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};

/// What another provisioner than the spec's created for a group, by its tags.
pub(super) struct OtherProvisioner {
    /// The provisioner in the spec.
    desired: ProvisionerKind,
    /// The one that created the resource.
    creator: ProvisionerKind,
    /// The resource, for messages.
    resource: String,
    /// Its cluster.
    cluster: String,
}

impl OtherProvisioner {
    /// The error of a spec that names another provisioner.
    pub(super) fn spec_error(&self) -> SpecError {
        let OtherProvisioner { desired, creator, resource, .. } = self;
        let rule = format!("cannot replace {creator}, which created {resource} of this group");
        let remedy = format!("restore {creator}, or delete the group and create a new one");
        SpecError::invalid("spec.provisioner", desired, rule, remedy)
    }

    /// The plan of a deletion: the provisioner in the spec would not delete the resource.
    pub(super) fn blocked_deletion(&self, id: &GroupId) -> Plan {
        let OtherProvisioner { desired, creator, resource, cluster } = self;
        let cluster_field = dispatch::for_kind(*creator).cluster_field();
        let message = format!(
            "spec.provisioner is {desired}, but {creator} created {resource} of this group, and the status does not record it; set spec.provisioner to {creator} and {cluster_field} to {cluster}, and the deletion continues; to keep the resources, remove the finalizer"
        );
        blocked_plan(id, StalledReason::InvalidSpec, message)
    }
}

impl Planner {
    /// What another provisioner than that of the merged spec created, if the status records no provisioner and no resource,
    /// and that of the spec has none.
    /// The finalizer is set before anything is created, so nothing is read without it.
    ///
    /// # Errors
    /// AWS did not answer. A controller that may not read a kind of resource did not create any.
    pub(super) async fn other_provisioner(
        &self,
        id: &GroupId,
        status: &InstanceGroupStatus,
        merged: &MergedSpec,
        observer: &Observer<'_>,
    ) -> ObserveResult<Option<OtherProvisioner>> {
        let is_recorded = recorded_provisioner(status).is_some() || records_resources(status);
        let Some(desired) = provisioner_kind(&merged.spec).filter(|_| id.has_finalizer && !is_recorded) else {
            return Ok(None);
        };
        let named = recorded_cluster::desired(merged, dispatch::for_kind(desired));
        let Some(cluster) = self.settings.cluster_name.as_deref().or(named) else { return Ok(None) };
        let others = ProvisionerKind::ALL.iter().copied().filter(|kind| *kind != desired);
        for creator in std::iter::once(desired).chain(others) {
            match dispatch::for_kind(creator).tagged_resource(observer, id, cluster).await {
                // It continues with it, whatever else there is.
                Ok(Some(_)) if creator == desired => return Ok(None),
                Ok(Some(resource)) => {
                    return Ok(Some(OtherProvisioner { desired, creator, resource, cluster: cluster.to_owned() }));
                }
                Ok(None) => {}
                Err(ObserveError::Aws(error)) if error.kind == AwsErrorKind::Denied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::FINALIZER;
    use crate::api::{InstanceGroup, group_id};
    use crate::aws::ScalingGroup;
    use crate::aws::fargate::{FargateProfile, ProfileStatus};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::nodegroup::{Nodegroup, NodegroupName};
    use crate::aws::samples::{self, cluster, scaling_group};
    use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
    use crate::controller::fake;
    use crate::controller::planner::GroupContext;
    use crate::index::nodes::NodeIndex;
    use crate::ownership::ownership_tags;
    use crate::plan::{ObjectStep, Outcome, Step};
    use crate::provisioner::{fargate, nodegroup};

    const NODEGROUP: &str = "eks-managed";

    /// A group with the finalizer and this provisioner, whose status a user removed.
    fn group(provisioner: &str, changes: &Value) -> InstanceGroup {
        let mut object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": "web", "namespace": "team", "uid": "own", "finalizers": [FINALIZER]},
            "spec": {
                "provisioner": provisioner,
                "eks": {"configuration": {"clusterName": "demo"}},
                "eks-managed": {"configuration": {"clusterName": "demo"}},
                "eks-fargate": {"clusterName": "demo"},
            },
        });
        crate::api::apply_merge_patch(&mut object, changes);
        serde_json::from_value(object).expect("a group")
    }

    /// An AWS with what a provisioner created for the group `owner`, under the names of `team/web`.
    fn aws_with(creator: &str, owner: &str) -> Arc<FakeAws> {
        let id = group_id(&group(creator, &json!({})));
        let tags = ownership_tags("demo", &GroupId { name: owner.into(), ..id.clone() });
        let aws = Arc::new(FakeAws::default());
        aws.update(|d| {
            d.clusters.insert("demo".into(), cluster("demo"));
            match creator {
                "eks" => {
                    let found = ScalingGroup { tags, ..scaling_group("demo-team-web") };
                    d.groups.insert(found.name.clone(), found);
                }
                NODEGROUP => {
                    let prefix = nodegroup::names::name_prefix("demo", &id);
                    let name = NodegroupName::new("demo", format!("{prefix}-00000000"));
                    let tags = tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
                    d.nodegroups.insert(name.to_string(), Nodegroup { tags, ..samples::nodegroup(name) });
                }
                _ => {
                    let name = fargate::names::ProfileNames::all("demo", &id, "us-west-2")[0].first_profile.clone();
                    let found = FargateProfile {
                        name: name.clone(),
                        arn: "arn:profile".into(),
                        role_arn: "arn:aws:iam::1:role/pods".into(),
                        subnets: vec![],
                        selectors: vec![],
                        status: ProfileStatus::Active,
                        issues: vec![],
                        tags,
                    };
                    d.fargate.insert(name, found);
                }
            }
        });
        aws
    }

    async fn plan(aws: &Arc<FakeAws>, group: &InstanceGroup) -> Plan {
        let client = crate::k8s::fake::client(|call| panic!("unexpected call: {call:?}"));
        let planner = fake::planner(aws, client, NodeIndex::default());
        let active_boundaries =
            ActiveBoundaries { source: BoundariesSource::NotConfigured, ..Default::default() }.into();
        let namespace_annotations = Some(Default::default());
        let context = GroupContext { active_boundaries, namespace_annotations, ..GroupContext::default() };
        planner.plan(group, &context, Duration::ZERO, Timestamp::UNIX_EPOCH).await.expect("a plan").plan
    }

    fn message(plan: &Plan) -> String {
        match &plan.outcome {
            Outcome::Blocked { message, .. } => message.clone(),
            other => format!("{other:?}"),
        }
    }

    /// The nodes of the first provisioner would run beside those of the second one, and a deletion would leave them.
    #[tokio::test]
    async fn provisioner_of_existing_resources_is_not_replaced_after_the_status_was_removed() {
        let deleted = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
        for (creator, desired) in
            [("eks", NODEGROUP), ("eks", "eks-fargate"), (NODEGROUP, "eks"), ("eks-fargate", "eks")]
        {
            let aws = aws_with(creator, "web");
            let active = plan(&aws, &group(desired, &json!({}))).await;
            let text = message(&active);
            assert!(text.contains(&format!("restore {creator}")), "{creator} to {desired}: {text}");
            assert!(active.steps.is_empty(), "{creator} to {desired}: {:?}", active.steps);
            let deletion = plan(&aws, &group(desired, &deleted)).await;
            let text = message(&deletion);
            assert!(text.contains(&format!("set spec.provisioner to {creator}")), "{creator} to {desired}: {text}");
            assert!(deletion.steps.is_empty(), "{creator} to {desired}: {:?}", deletion.steps);
        }
    }

    /// A name is no proof, and a controller that may not read such resources has none of them.
    #[tokio::test]
    async fn resource_of_another_owner_does_not_hold_a_deletion() {
        let deleted = json!({"metadata": {"deletionTimestamp": "1969-12-31T23:59:00Z"}});
        let removes_finalizer =
            |plan: &Plan| plan.steps.iter().any(|planned| planned.step == Step::Object(ObjectStep::RemoveFinalizer));
        for creator in ["eks-fargate", NODEGROUP] {
            let plan = plan(&aws_with(creator, "other"), &group("eks", &deleted)).await;
            assert!(removes_finalizer(&plan), "{creator}: {plan:?}");
        }
        let aws = aws_with("eks-fargate", "web");
        aws.update(|d| d.denied = Some("Fargate profile names"));
        let plan = plan(&aws, &group("eks", &deleted)).await;
        assert!(removes_finalizer(&plan), "{plan:?}");
    }
}
