//! Reads the AWS objects that the merged spec refers to.

use std::collections::BTreeMap;

use crate::api::{DefaultVolume, InstanceGroupStatus};
use crate::aws::instance_type_catalog::family_key;
use crate::aws::{Accelerator, AwsError, AwsErrorKind, InstanceType};
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
use crate::provisioner::rejected_fields::Part;
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
            standard_image: None,
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
        standard_image: None,
        instance_type: Lookup::NotQueried,
        existing_profile,
        mixed_types: mixed_instance_types(o, wanted).await?,
        catalog,
    };
    if wanted.needs_instance_type() && family_key(&wanted.instance_type).is_some() {
        environment.instance_type = o.inventory.instance_type(&wanted.instance_type).await.map_err(aws)?.into();
    }
    let found = environment.instance_type.as_present();
    if let Some((architecture, accelerator)) = found.and_then(|t| Some((t.architecture()?.to_owned(), t.accelerator))) {
        let parameter = |accelerator, version: &str| image_parameter(wanted, &architecture, accelerator, version);
        // The alias has no version: an upgrade of the control plane changes its image, as a new image does.
        let alias = |accelerator| parameter(accelerator, ANY_VERSION).map(|parameter| image_alias(&parameter));
        let both = |accelerator| parameter(accelerator, &cluster.version).zip(alias(accelerator));
        environment.image = image(o, both(accelerator)).await?;
        if accelerator.is_some() && wanted.image == ImageSource::Latest {
            environment.standard_image = image(o, both(None)).await?;
        }
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
    // EC2 would reject the whole call for a name that is not an instance type.
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
    let data = &resolved.template_data;
    // A value that cannot be right is not looked up; the other one is, so that both are reported at once.
    let image = async {
        match resolved.broken.has_error_at(launch_checks::IMAGE) || data.image_id.is_empty() {
            true => Ok(Lookup::NotQueried),
            false => allow_denied(o.inventory.image_by_id(&data.image_id).await),
        }
    };
    let instance_type = async {
        match resolved.broken.has_error_at(launch_checks::INSTANCE_TYPE) {
            true => Ok(Lookup::NotQueried),
            false => allow_denied(o.inventory.instance_type(&data.instance_type).await),
        }
    };
    let (image, instance_type) = tokio::join!(image, instance_type);
    let is_launched_now = outdated::current_launch_data(state).is_some_and(|now| now.image_id == data.image_id);
    Ok(Some(LaunchFacts { image: image?, instance_type: instance_type?, is_launched_now }))
}

/// The default volume, if the group's image needs another one than the usual; not queried while the controller may not
/// read an image that may need one. The image is read only for a new version.
pub(crate) async fn default_volume(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<Lookup<DefaultVolume>> {
    if resolved.broken.contains(Part::Launch) || default_volume::has_recorded_content(resolved, status) {
        return Ok(Lookup::Absent);
    }
    if let Some(recorded) = default_volume::recorded(resolved, status) {
        return Ok(Lookup::Present(recorded.clone()));
    }
    let desired = &resolved.desired;
    let image = allow_denied(o.inventory.image_by_id(&resolved.template_data.image_id).await)?;
    let boots_from_usual_device = matches!(desired.os_family, OsFamily::AmazonLinux2 | OsFamily::AmazonLinux2023);
    if !image.is_queried() && !boots_from_usual_device {
        return Ok(Lookup::NotQueried);
    }
    Ok(image.as_present().and_then(|image| default_volume::of_image(desired, image)).into())
}

/// Without permission to read, the check is skipped and AWS reports the error at launch time.
fn allow_denied<T>(read: Result<Option<T>, AwsError>) -> ObserveResult<Lookup<T>> {
    match read {
        Ok(found) => Ok(found.into()),
        Err(error) if error.kind == AwsErrorKind::Denied => Ok(Lookup::NotQueried),
        Err(error) => Err(ObserveError::Aws(error)),
    }
}

/// Stands in an image alias for the version of the control plane.
const ANY_VERSION: &str = "*";

/// What users read of a parameter: the same for every version of the control plane.
fn image_alias(parameter: &str) -> String {
    let path = parameter.strip_prefix("/aws/service/").unwrap_or(parameter);
    let path = path.strip_prefix("eks/optimized-ami/").unwrap_or(path);
    path.strip_suffix("/image_id").unwrap_or(path).replace("*/", "").replace("-*", "")
}

/// The value of a public parameter, or the image that the group's revision records for the alias.
async fn image(
    o: &Observer<'_>,
    parameter_and_alias: Option<(String, String)>,
) -> ObserveResult<Option<(String, Option<String>)>> {
    let Some((parameter, alias)) = parameter_and_alias else { return Ok(None) };
    let known = o.images.and_then(|images| images.get(&alias));
    if let Some(image) = known {
        o.process_state.image_aliases.note(&alias, &parameter);
        return Ok(Some((parameter, Some(image.clone()))));
    }
    let found = o.inventory.ssm_image(&parameter, o.shared_max_cache_age).await.map_err(ObserveError::Aws)?;
    let first_resolved = |image| o.process_state.image_aliases.first_resolved(&alias, &parameter, image);
    let found = if o.images.is_some() { found.map(first_resolved) } else { found };
    Ok(Some((parameter, found)))
}

/// The SSM parameter where AWS publishes an image; `None` for an AMI id, or when AWS publishes no such image.
///
/// `latest` selects the variant with the drivers of the type's accelerator (Amazon EKS User Guide, "Retrieve recommended
/// Amazon Linux AMI IDs" and "Retrieve recommended Bottlerocket AMI IDs"; Karpenter's amifamily has the same names). One
/// image of Amazon Linux 2 serves both kinds. Bottlerocket has the drivers of Neuron in its standard image. AWS publishes
/// no Windows image with drivers.
fn image_parameter(
    wanted: &DesiredSpec,
    architecture: &str,
    accelerator: Option<Accelerator>,
    version: &str,
) -> Option<String> {
    let id = |latest: &str| match &wanted.image {
        ImageSource::Ssm(id) => id.clone(),
        ImageSource::Latest | ImageSource::Id(_) => latest.to_owned(),
    };
    if matches!(wanted.image, ImageSource::Id(_)) {
        return None;
    }
    let arm = architecture == "arm64";
    let accelerator = accelerator.filter(|_| wanted.image == ImageSource::Latest);
    Some(match wanted.os_family {
        OsFamily::AmazonLinux2 if accelerator.is_some() => {
            if arm {
                return None;
            }
            format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2-gpu/{}/image_id", id("recommended"))
        }
        OsFamily::AmazonLinux2 => format!(
            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2{}/{}/image_id",
            if arm { "-arm64" } else { "" },
            id("recommended")
        ),
        OsFamily::AmazonLinux2023 => format!(
            "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/{}/{}/image_id",
            match accelerator {
                Some(Accelerator::Nvidia) => "nvidia",
                Some(Accelerator::Neuron) => "neuron",
                None => "standard",
            },
            id("recommended")
        ),
        OsFamily::Bottlerocket => {
            let variant = if accelerator == Some(Accelerator::Nvidia) { "-nvidia" } else { "" };
            format!("/aws/service/bottlerocket/aws-k8s-{version}{variant}/{architecture}/{}/image_id", id("latest"))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::boundaries::{Boundaries, merge};
    use crate::provisioner::eks::desired::parse_with_errors;
    use crate::provisioner::observe::fake::FakeCluster;

    fn parameter(family: &str, image: &str, architecture: &str, accelerator: Option<Accelerator>) -> Option<String> {
        let annotations = serde_json::json!({"instancemgr.keikoproj.io/os-family": family});
        let raw = serde_json::json!({"metadata": {"annotations": annotations},
            "spec": {"eks": {"configuration": {"image": image}}}});
        let merged = merge(&Boundaries::default(), &raw, true).expect("a merged spec");
        let spec = crate::api::decode_spec(&merged.spec).expect("a spec");
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let (desired, _) = parse_with_errors(&id, &merged.annotations, &spec);
        let found = image_parameter(&desired, architecture, accelerator, "1.33")?;
        let found = found.strip_prefix("/aws/service/").unwrap_or(&found);
        Some(found.strip_suffix("/image_id").unwrap_or(found).to_owned())
    }

    #[test]
    fn latest_selects_the_variant_with_the_drivers_of_the_accelerator() {
        let (nvidia, neuron) = (Some(Accelerator::Nvidia), Some(Accelerator::Neuron));
        let linux = "eks/optimized-ami/1.33/amazon-linux-2";
        for (family, architecture, accelerator, expected) in [
            ("amazonlinux2023", "x86_64", None, format!("{linux}023/x86_64/standard/recommended")),
            ("amazonlinux2023", "x86_64", nvidia, format!("{linux}023/x86_64/nvidia/recommended")),
            ("amazonlinux2023", "arm64", nvidia, format!("{linux}023/arm64/nvidia/recommended")),
            ("amazonlinux2023", "x86_64", neuron, format!("{linux}023/x86_64/neuron/recommended")),
            ("amazonlinux2", "x86_64", None, format!("{linux}/recommended")),
            ("amazonlinux2", "x86_64", nvidia, format!("{linux}-gpu/recommended")),
            ("amazonlinux2", "x86_64", neuron, format!("{linux}-gpu/recommended")),
            ("bottlerocket", "arm64", nvidia, "bottlerocket/aws-k8s-1.33-nvidia/arm64/latest".into()),
            ("bottlerocket", "x86_64", neuron, "bottlerocket/aws-k8s-1.33/x86_64/latest".into()),
        ] {
            let found = parameter(family, "latest", architecture, accelerator);
            assert_eq!(found, Some(expected), "{family} {architecture} {accelerator:?}");
        }
        assert_eq!(parameter("amazonlinux2", "latest", "arm64", nvidia), None, "AWS publishes none");
        let release = parameter("amazonlinux2023", "ssm://release-1", "x86_64", nvidia).expect("a parameter");
        assert!(release.ends_with("/standard/release-1"), "a release names its own variant: {release}");
    }

    /// An upgrade of the control plane must not look like another alias: its groups would leave their revision's image.
    #[test]
    fn alias_is_the_same_for_every_version_of_the_control_plane() {
        for (parameter, alias) in [
            (
                "/aws/service/eks/optimized-ami/*/amazon-linux-2023/arm64/nvidia/recommended/image_id",
                "amazon-linux-2023/arm64/nvidia/recommended",
            ),
            ("/aws/service/eks/optimized-ami/*/amazon-linux-2/recommended/image_id", "amazon-linux-2/recommended"),
            (
                "/aws/service/bottlerocket/aws-k8s-*-nvidia/arm64/latest/image_id",
                "bottlerocket/aws-k8s-nvidia/arm64/latest",
            ),
            (
                "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-*/image_id",
                "ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized",
            ),
        ] {
            assert_eq!(image_alias(parameter), alias);
        }
    }

    /// What a revision records is not read from AWS. What no revision records is the same for all groups until one
    /// does.
    #[tokio::test]
    async fn alias_resolves_to_the_image_of_the_revision() {
        let aws = Arc::new(FakeAws::default());
        aws.update(|state| _ = state.parameters.insert("/p".into(), "ami-2".into()));
        let cluster = FakeCluster::new(&aws);
        let read = async |images: Option<&BTreeMap<String, String>>| {
            let observer = Observer { images, ..cluster.observer() };
            image(&observer, Some(("/p".into(), "alias".into()))).await.expect("an answer").expect("an image").1
        };
        let pinned = BTreeMap::from([("alias".to_owned(), "ami-1".to_owned())]);
        assert_eq!(read(Some(&pinned)).await.as_deref(), Some("ami-1"));
        assert_eq!(read(Some(&BTreeMap::new())).await.as_deref(), Some("ami-2"), "it is met first");
        aws.update(|state| _ = state.parameters.insert("/p".into(), "ami-3".into()));
        assert_eq!(read(Some(&BTreeMap::new())).await.as_deref(), Some("ami-2"));
        assert_eq!(read(None).await.as_deref(), Some("ami-3"), "without a policy AWS decides");
    }
}
