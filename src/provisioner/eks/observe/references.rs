//! Reads the AWS objects that the merged spec refers to.

use std::collections::BTreeMap;

use crate::api::{DefaultVolume, InstanceGroupStatus};
use crate::aws::instance_type_catalog::family_key;
use crate::aws::{AwsError, AwsErrorKind, InstanceType};
use crate::provisioner::broken_fields::Part;
use crate::provisioner::eks::desired::{DesiredSpec, ImageSource};
use crate::provisioner::eks::launch_template::launch_checks::LaunchFacts;
use crate::provisioner::eks::launch_template::{default_volume, launch_checks};
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::references::References;
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::outdated;
use crate::provisioner::eks::user_data::{OsFamily, WindowsRelease};
use crate::provisioner::observe::network::network;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::util::lookup::Lookup;

/// Reads the references of a spec: cluster, network, image, instance types and the profile of an existing role.
pub(crate) async fn references(o: &Observer<'_>, wanted: &DesiredSpec) -> ObserveResult<References> {
    let aws = ObserveError::Aws;
    let Some(cluster) = o.inventory.cluster(&wanted.cluster).await.map_err(aws)? else {
        return Ok(References {
            cluster: None,
            in_other_vpcs: vec![],
            subnets: vec![],
            security_groups: vec![],
            image: None,
            instance_type: Lookup::NotQueried,
            existing_profile: None,
            mixed_types: BTreeMap::new(),
            catalog: None,
        });
    };
    let network = network(o, &cluster, &wanted.subnets, &wanted.security_groups).await?;
    let existing_profile = match &wanted.existing_role {
        Some(existing) => o.inventory.profile(&existing.profile, o.shared_max_cache_age).await.map_err(aws)?,
        None => None,
    };
    o.inventory.prefetch_types(&wanted.instance_type, || o.group_index.instance_types());
    // Read before the instance types, because the catalog contains types of the same line.
    let catalog = match wanted.mixed_instances.as_ref().is_some_and(|m| m.extend_with_similar) {
        true => Some(o.inventory.instance_type_catalog(&wanted.instance_type).await.map_err(aws)?),
        false => None,
    };
    let mut environment = References {
        cluster: None,
        in_other_vpcs: network.in_other_vpcs,
        subnets: network.subnets,
        security_groups: network.security_groups,
        image: None,
        instance_type: Lookup::NotQueried,
        existing_profile,
        mixed_types: mixed_instance_types(o, wanted).await?,
        catalog,
    };
    if wanted.needs_instance_type() && family_key(&wanted.instance_type).is_some() {
        environment.instance_type = o.inventory.instance_type(&wanted.instance_type).await.map_err(aws)?.into();
    }
    let architecture = environment.instance_type.as_present().and_then(|t| t.architecture());
    if let Some(parameter) = architecture.and_then(|a| image_parameter(wanted, a, &cluster.version)) {
        let image = o.inventory.ssm_image(&parameter, o.shared_max_cache_age).await.map_err(aws)?;
        environment.image = Some((parameter, image));
    }
    environment.cluster = Some(cluster);
    Ok(environment)
}

/// The instance types of a mixed group; each is read once and then cached.
async fn mixed_instance_types(
    o: &Observer<'_>,
    wanted: &DesiredSpec,
) -> ObserveResult<BTreeMap<String, Option<InstanceType>>> {
    let names = wanted.mixed_instances.iter().flat_map(|m| &m.overrides).map(|t| t.instance_type.clone());
    // EC2 would reject the whole call for what is no name of a type.
    let names = names.filter(|name| family_key(name).is_some());
    let ask = |name: String| async move { Ok((name.clone(), o.inventory.instance_type(&name).await?)) };
    let found = futures::future::try_join_all(names.map(ask)).await.map_err(ObserveError::Aws)?;
    Ok(found.into_iter().collect())
}

/// Reads image and instance type of a version that is about to be created; `None` for a group that is up to date.
pub(crate) async fn launch_facts(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<LaunchFacts>> {
    if !launch_checks::needs_launch_checks(resolved, state, status) {
        return Ok(None);
    }
    let (image, instance_type) = tokio::join!(
        o.inventory.image_by_id(&resolved.template_data.image_id),
        o.inventory.instance_type(&resolved.template_data.instance_type)
    );
    let is_launched_now =
        outdated::current_launch_data(state).is_some_and(|data| data.image_id == resolved.template_data.image_id);
    Ok(Some(LaunchFacts { image: allow_denied(image)?, instance_type: allow_denied(instance_type)?, is_launched_now }))
}

/// The default volume, if the group's image needs another one than the usual. The image is read only for a new version.
pub(crate) async fn default_volume(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<DefaultVolume>> {
    if resolved.broken.contains(Part::Launch) || default_volume::has_recorded_content(resolved, status) {
        return Ok(None);
    }
    if let Some(recorded) = default_volume::recorded(resolved, status) {
        return Ok(Some(recorded.clone()));
    }
    let image = allow_denied(o.inventory.image_by_id(&resolved.template_data.image_id).await)?;
    Ok(image.as_present().and_then(|image| default_volume::of_image(&resolved.desired, image)))
}

/// Without permission to read, the check is skipped and AWS reports the error at launch time.
fn allow_denied<T>(read: Result<Option<T>, AwsError>) -> ObserveResult<Lookup<T>> {
    match read {
        Ok(found) => Ok(found.into()),
        Err(error) if error.kind == AwsErrorKind::Denied => Ok(Lookup::NotQueried),
        Err(error) => Err(ObserveError::Aws(error)),
    }
}

/// The SSM parameter where AWS publishes an image; `None` for an AMI id, or when AWS publishes no such image.
fn image_parameter(wanted: &DesiredSpec, architecture: &str, version: &str) -> Option<String> {
    let id = |latest: &str| match &wanted.image {
        ImageSource::Ssm(id) => id.clone(),
        ImageSource::Latest | ImageSource::Id(_) => latest.to_owned(),
    };
    if matches!(wanted.image, ImageSource::Id(_)) {
        return None;
    }
    let arm = architecture == "arm64";
    Some(match wanted.os_family {
        OsFamily::AmazonLinux2 => format!(
            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2{}/{}/image_id",
            if arm { "-arm64" } else { "" },
            id("recommended")
        ),
        OsFamily::AmazonLinux2023 => format!(
            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/standard/{}/image_id",
            id("recommended")
        ),
        OsFamily::Bottlerocket => {
            format!("/aws/service/bottlerocket/aws-k8s-{version}/{architecture}/{}/image_id", id("latest"))
        }
        OsFamily::Windows if arm => return None,
        OsFamily::Windows => {
            let release = match &wanted.image {
                ImageSource::Ssm(release) => WindowsRelease::parse(release).unwrap_or_default(),
                ImageSource::Latest | ImageSource::Id(_) => WindowsRelease::default(),
            };
            format!("/aws/service/ami-windows-latest/Windows_Server-{release}-EKS_Optimized-{version}/image_id")
        }
    })
}
