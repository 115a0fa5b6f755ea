//! Tests of the whole plan of a group, from the reads to the steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::launch_template::default_volume;
use super::references::References;
use super::resolve::ResolvedGroup;
use super::{Eks, desired, resolve};
use crate::api::{DefaultVolume, decode_spec, group_id};
use crate::api::{GroupId, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus};
use crate::aws::inventory::fake_aws::{FakeAws, FakeState};
use crate::aws::samples::{cluster, network_object, scaling_group};
use crate::aws::{
    Accelerator, Image, InstanceProfile, InstanceType, LaunchTemplate, Role, ScalingGroup, TemplatePin, TemplateVersion,
};
use crate::boundaries::{Boundaries, MergedSpec, merge};
use crate::index::spot::Recommendations;
use crate::plan::{EventReason, PersistentFailure, Plan};
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::Observer;
use crate::provisioner::observe::fake::FakeCluster;
use crate::provisioner::rejected_fields::ValueSources;
use crate::provisioner::{PlanRequest, PlanResult, Provisioner};
use crate::rotation::crd::TemplateAuthor;
use crate::settings::Settings;
use crate::util::lookup::Lookup;

const STANDARD: &str = "ami-0000000000000000a";
const NVIDIA: &str = "ami-0000000000000000b";

/// A group of GPU nodes whose image is `latest`.
struct GpuGroup {
    id: GroupId,
    merged: MergedSpec,
}

impl GpuGroup {
    fn new(family: &str) -> Self {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        let annotations = json!({"instancemgr.keikoproj.io/os-family": family});
        let configuration = json!({
            "clusterName": "demo", "image": "latest", "instanceType": "g5.xlarge", "subnets": ["subnet-1"],
            "securityGroups": ["sg-1"], "roleName": "nodes", "instanceProfileName": "nodes",
        });
        let spec = json!({"eks": {"minSize": 0, "maxSize": 1, "configuration": configuration}});
        let raw = json!({"metadata": {"annotations": annotations}, "spec": spec});
        GpuGroup { id: group_id(&group), merged: merge(&Boundaries::default(), &raw, true).expect("a merged spec") }
    }

    fn spec(&self) -> InstanceGroupSpec {
        decode_spec(&self.merged.spec).expect("a spec")
    }

    /// The group as it would be resolved for an image and a default volume.
    fn resolved(&self, image: &str, volume: Option<&str>) -> ResolvedGroup {
        let mut desired = desired::parse(&self.id, &self.merged.annotations, &self.spec()).expect("a group");
        if let Some(device) = volume {
            default_volume::set(&mut desired, &DefaultVolume { image: image.into(), device: device.into(), size: 32 });
        }
        let references = References {
            cluster: Some(cluster("demo")),
            subnets: vec![network_object("subnet-1")],
            security_groups: vec![network_object("sg-1")],
            image: Some(("parameter".into(), Some(image.into()))),
            instance_type: Lookup::Present(gpu_type()),
            existing_profile: Some(profile()),
            ..References::default()
        };
        resolve::resolve(desired, &references, NameForm::Plain).expect("a resolved group")
    }

    /// AWS, where the group launches the version with this content.
    fn aws(&self, current: &ResolvedGroup) -> Arc<FakeAws> {
        let fake = Arc::new(FakeAws::default());
        let (id, version) = ("lt-1".to_owned(), "1".to_owned());
        let template = LaunchTemplate {
            id: id.clone(),
            name: current.names.template.clone(),
            default_version: 1,
            latest_version: 1,
            tags: current.ownership_tags.clone(),
        };
        let group = ScalingGroup {
            min: 0,
            max: 1,
            desired: 0,
            subnets: vec!["subnet-1".into()],
            template: Some(TemplatePin { id: id.clone(), version }),
            tags: current.tags.clone(),
            ..scaling_group(&current.names.scaling_group)
        };
        let version = TemplateVersion {
            template_id: id,
            number: 1,
            description: Some(current.fingerprint.to_description()),
            data: current.template_data.clone(),
        };
        fake.update(|d| {
            publish_images(d);
            d.clusters.insert("demo".into(), cluster("demo"));
            (d.subnets, d.security_groups) = (vec![network_object("subnet-1")], vec![network_object("sg-1")]);
            d.instance_types = vec![gpu_type()];
            d.profiles.insert("nodes".into(), profile());
            d.templates.insert(template.name.clone(), template);
            d.groups.insert(group.name.clone(), group);
            d.versions.push(version);
        });
        fake
    }

    /// The steps of the plan.
    async fn plan(&self, fake: &Arc<FakeAws>, status: &InstanceGroupStatus) -> String {
        steps_of(&self.result(fake, status).await)
    }

    async fn result(&self, fake: &Arc<FakeAws>, status: &InstanceGroupStatus) -> PlanResult {
        self.result_of(&FakeCluster::new(fake).observer(), status).await
    }

    async fn result_of(&self, observer: &Observer<'_>, status: &InstanceGroupStatus) -> PlanResult {
        let settings = Settings::default();
        let request = PlanRequest {
            id: &self.id,
            is_new: false,
            annotations: &self.merged.annotations,
            spec: self.spec(),
            errors: vec![],
            exceeded_quotas: vec![],
            sources: &ValueSources::default(),
            status,
            lock: None,
            rollout_block: None,
            allowance: None,
            recommendations: &Recommendations::default(),
            policy: None,
            template_author: TemplateAuthor::default(),
            settings: &settings,
            ineffective_writes: &BTreeSet::new(),
            persistent_failure: &PersistentFailure::default(),
            is_requested: false,
        };
        Eks.plan(observer, request).await.expect("a result")
    }
}

fn steps_of(result: &PlanResult) -> String {
    match result {
        PlanResult::Planned(plan, _) => format!("{:?} {:?}", plan.steps, plan.outcome),
        PlanResult::Rejected(errors) => format!("rejected: {errors:?}"),
    }
}

fn gpu_type() -> InstanceType {
    InstanceType {
        name: "g5.xlarge".into(),
        architectures: vec!["x86_64".into()],
        accelerator: Some(Accelerator::Nvidia),
        ..InstanceType::default()
    }
}

fn profile() -> InstanceProfile {
    let role =
        Role { id: "AROA-1".into(), name: "nodes".into(), arn: "arn:aws:iam::1:role/nodes".into(), ..Role::default() };
    InstanceProfile {
        id: "AIPA-1".into(),
        name: "nodes".into(),
        arn: "arn:aws:iam::1:instance-profile/nodes".into(),
        created: None,
        role: Some(role),
        tags: vec![],
    }
}

/// The images with and without drivers. Bottlerocket has two volumes.
fn publish_images(d: &mut FakeState) {
    for (path, image) in [
        ("eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended", STANDARD),
        ("eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended", NVIDIA),
        ("bottlerocket/aws-k8s-1.33/x86_64/latest", STANDARD),
        ("bottlerocket/aws-k8s-1.33-nvidia/x86_64/latest", NVIDIA),
    ] {
        d.parameters.insert(format!("/aws/service/{path}/image_id"), image.into());
    }
    d.images = [STANDARD, NVIDIA]
        .map(|id| Image {
            id: id.into(),
            architecture: "x86_64".into(),
            root_device: "/dev/xvda".into(),
            device_names: vec!["/dev/xvda".into(), "/dev/xvdb".into()],
            ..Image::default()
        })
        .into();
}

fn status_of(template: Value) -> InstanceGroupStatus {
    serde_json::from_value(json!({ "template": template })).expect("a status")
}

/// What a group launches decides, and not what this release would choose: a lost status must not replace its nodes.
#[tokio::test]
async fn current_image_and_default_volume_are_kept_without_a_status() {
    for (family, volume) in [("amazonlinux2023", None), ("bottlerocket", None), ("bottlerocket", Some("/dev/xvdb"))] {
        let group = GpuGroup::new(family);
        for image in [STANDARD, NVIDIA] {
            let current = group.resolved(image, volume);
            let steps = group.plan(&group.aws(&current), &InstanceGroupStatus::default()).await;
            assert!(!steps.contains("PutTemplateVersion"), "{family} {volume:?} {image}: {steps}");
            let recorded = status_of(json!({"hash": current.fingerprint.hash}));
            let steps = group.plan(&group.aws(&current), &recorded).await;
            assert!(!steps.contains("PutTemplateVersion"), "{family} {volume:?} {image}: {steps}");
        }
    }
}

/// Another content needs a version anyway, and that one has the image with drivers and the volume of the image.
#[tokio::test]
async fn next_version_has_the_image_with_drivers() {
    let group = GpuGroup::new("bottlerocket");
    let other = ResolvedGroup {
        fingerprint: GpuGroup::new("amazonlinux2023").resolved(STANDARD, None).fingerprint,
        ..group.resolved(STANDARD, None)
    };
    for status in [InstanceGroupStatus::default(), status_of(json!({"hash": other.fingerprint.hash}))] {
        let steps = group.plan(&group.aws(&other), &status).await;
        assert!(
            steps.contains("PutTemplateVersion") && steps.contains(NVIDIA) && steps.contains("/dev/xvdb"),
            "{steps}"
        );
    }
}

/// Bottlerocket does not keep its data on the usual device, and a version with the usual volume keeps it.
#[tokio::test]
async fn no_version_is_created_while_its_default_volume_is_not_known() {
    let (bottlerocket, linux) = (GpuGroup::new("bottlerocket"), GpuGroup::new("amazonlinux2023"));
    let with_content_of = |group: &GpuGroup, other: &GpuGroup| ResolvedGroup {
        fingerprint: other.resolved(STANDARD, None).fingerprint,
        ..group.resolved(STANDARD, None)
    };
    let status = InstanceGroupStatus::default();
    let outdated = with_content_of(&bottlerocket, &linux);
    for status in [status.clone(), status_of(json!({"hash": outdated.fingerprint.hash}))] {
        let fake = bottlerocket.aws(&outdated);
        fake.update(|d| d.denied = Some("images"));
        let steps = bottlerocket.plan(&fake, &status).await;
        assert!(!steps.contains("PutTemplateVersion"), "{steps}");
        fake.update(|d| d.denied = None);
        let steps = bottlerocket.plan(&fake, &status).await;
        assert!(steps.contains("PutTemplateVersion") && steps.contains("/dev/xvdb"), "{steps}");
    }
    let denied = |fake: Arc<FakeAws>, has_group: bool| {
        fake.update(|d| {
            d.denied = Some("images");
            d.groups.retain(|_, _| has_group);
        });
        fake
    };
    let steps = bottlerocket.plan(&denied(bottlerocket.aws(&outdated), false), &status).await;
    assert!(steps.starts_with("rejected") && steps.contains("MissingPermission"), "{steps}");
    let current = bottlerocket.resolved(STANDARD, None);
    let steps = bottlerocket.plan(&denied(bottlerocket.aws(&current), true), &status).await;
    assert!(!steps.contains("DescribeImages"), "the group keeps what it launches: {steps}");
    let steps = linux.plan(&denied(linux.aws(&with_content_of(&linux, &bottlerocket)), true), &status).await;
    assert!(steps.contains("PutTemplateVersion"), "Amazon Linux boots from the usual device: {steps}");
}

/// The standard image has no drivers, so it cannot replace an image that AWS does not publish.
#[tokio::test]
async fn missing_image_with_drivers_is_an_error_and_keeps_what_runs() {
    let group = GpuGroup::new("amazonlinux2023");
    let without_nvidia = |current: &ResolvedGroup| {
        let fake = group.aws(current);
        fake.update(|d| d.parameters.retain(|name, _| !name.contains("nvidia")));
        fake
    };
    let status = InstanceGroupStatus::default();
    let standard = group.resolved(STANDARD, None);
    let steps = group.plan(&without_nvidia(&standard), &status).await;
    assert!(!steps.contains("PutTemplateVersion") && !steps.contains("amazon-linux-2023"), "{steps}");
    let fake = without_nvidia(&standard);
    fake.update(|d| d.groups.clear());
    let steps = group.plan(&fake, &status).await;
    assert!(steps.starts_with("rejected") && steps.contains("amazon-linux-2023/x86_64/nvidia/recommended"), "{steps}");
}

/// The read that returns who launches from a template.
const TEMPLATE_USERS: &str = "scaling groups of a template";

/// EC2 deletes a version that a scaling group refers to, and a user's scaling group would launch nothing any more.
#[tokio::test]
async fn versions_stay_while_others_launch_from_the_template() {
    let (group, status) = (GpuGroup::new("bottlerocket"), InstanceGroupStatus::default());
    let other = ResolvedGroup {
        fingerprint: GpuGroup::new("amazonlinux2023").resolved(STANDARD, None).fingerprint,
        ..group.resolved(STANDARD, None)
    };
    let aws = |latest: i64, users: &[&str]| {
        let fake = group.aws(&other);
        fake.update(|d| {
            let first = d.versions[0].clone();
            d.versions.extend((2..=latest).map(|number| TemplateVersion { number, ..first.clone() }));
            d.templates.values_mut().for_each(|template| template.latest_version = latest);
            d.template_users = users.iter().map(|user| ("lt-1".into(), (*user).to_owned())).collect();
        });
        fake
    };
    let denied = aws(6, &[]);
    denied.update(|d| d.denied = Some(TEMPLATE_USERS));
    for (fake, deletes, asked, case) in [
        (aws(6, &[&other.names.scaling_group]), true, 1, "its own instances are no use by others"),
        (aws(6, &[&other.names.scaling_group, "of-a-person"]), false, 1, "a person's scaling group may pin one"),
        (denied, false, 1, "no answer is not that there is none, and the image changes all the same"),
        (aws(4, &["of-a-person"]), false, 0, "nothing is asked while nothing would be deleted"),
    ] {
        let steps = group.plan(&fake, &status).await;
        assert!(steps.contains("PutTemplateVersion"), "{case}: {steps}");
        assert_eq!(steps.contains("DeleteTemplateVersions"), deletes, "{case}: {steps}");
        assert_eq!(fake.calls(TEMPLATE_USERS), asked, "{case}");
    }
    let settled = group.aws(&group.resolved(STANDARD, None));
    group.plan(&settled, &status).await;
    assert_eq!(settled.calls(TEMPLATE_USERS), 0, "a settled group costs no call");
}

/// A template of names that belong to another group is deleted, but a user may have made a scaling group from it.
#[tokio::test]
async fn orphaned_template_stays_while_others_launch_from_it() {
    let group = GpuGroup::new("bottlerocket");
    let status = serde_json::from_value(json!({"activeLaunchTemplateName": "taken"})).expect("a status");
    let plan = async |users: &[&str]| {
        let fake = group.aws(&group.resolved(STANDARD, None));
        fake.update(|d| {
            d.groups.clear();
            d.versions.clear();
            let (_, template) = d.templates.pop_first().expect("a template");
            d.templates.insert("taken".into(), LaunchTemplate { name: "taken".into(), ..template });
            d.template_users = users.iter().map(|user| ("lt-1".into(), (*user).to_owned())).collect();
        });
        match group.result(&fake, &status).await {
            PlanResult::Planned(plan, _) => *plan,
            PlanResult::Rejected(errors) => panic!("{errors:?}"),
        }
    };
    let deletes = |plan: &Plan| plan.steps.iter().any(|planned| planned.step.name() == "DeleteTemplate");
    assert!(deletes(&plan(&[]).await));
    let kept = plan(&["of-a-person"]).await;
    assert!(!deletes(&kept), "{:?}", kept.steps);
    let retained = kept.events.iter().find(|event| event.has_reason(EventReason::TemplateRetained)).expect("an event");
    assert!(["taken", "of-a-person"].iter().all(|word| retained.message.contains(word)), "{}", retained.message);
}

/// A user deleted the scaling group, and another one of that name existed for a while. Under other names, nothing would look
/// for the role of the group any more.
#[tokio::test]
async fn role_of_the_group_keeps_its_name_after_a_conflict_of_the_scaling_group() {
    let mut group = GpuGroup::new("amazonlinux2023");
    let configuration = group.merged.spec["eks"]["configuration"].as_object_mut().expect("a configuration");
    configuration.retain(|field, _| field != "roleName" && field != "instanceProfileName");
    let current = group.resolved(STANDARD, None);
    let name = current.names.role.clone();
    let status: InstanceGroupStatus = serde_json::from_value(json!({"managed": {}})).expect("a status");
    let hashed = format!("CreateRole(NewRole {{ name: \"{name}-");
    for (tags, is_kept) in [(current.iam_tags(), true), (vec![], false)] {
        let role = Role { name: name.clone(), arn: current.role_arn.clone(), tags, ..Role::default() };
        let fake = group.aws(&current);
        fake.update(|d| {
            d.groups.clear();
            d.roles.insert(name.clone(), role);
        });
        let cluster = FakeCluster::new(&fake);
        let observer = cluster.observer();
        observer.process_state.set_name_conflict(&group.id.key(), &name);
        let steps = steps_of(&group.result_of(&observer, &status).await);
        assert_eq!(steps.contains(&format!("CreateProfile {{ profile: \"{name}\"")), is_kept, "{steps}");
        assert_eq!(steps.contains(&hashed), !is_kept, "{steps}");
    }
}
