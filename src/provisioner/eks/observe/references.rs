//! Looks up what the merged spec names: the first half of observing.

use std::collections::BTreeMap;

use futures::future::try_join_all;

use crate::api::InstanceGroupStatus;
use crate::aws::{AwsError, AwsErrorKind, InstanceType, NetworkObject};
use crate::provisioner::eks::desired::{Image, Wanted};
use crate::provisioner::eks::launch_template::launch_checks;
use crate::provisioner::eks::launch_template::launch_checks::Looked;
use crate::provisioner::eks::observed::State;
use crate::provisioner::eks::resolve::{Environment, Resolved};
use crate::provisioner::eks::rotation::outdated;
use crate::provisioner::eks::user_data::OsFamily;
use crate::provisioner::observe::{ObserveError, Observed, Observer};

/// What names mean: cluster, network, image, a given role's profile.
pub async fn environment(o: &Observer<'_>, wanted: &Wanted) -> Observed<Environment> {
    let aws = ObserveError::Aws;
    let Some(cluster) = o.inventory.cluster(&wanted.cluster).await.map_err(aws)? else {
        return Ok(Environment {
            cluster: None,
            elsewhere: vec![],
            subnets: vec![],
            security_groups: vec![],
            image: None,
            instance_type: None,
            given_profile: None,
            types: BTreeMap::new(),
            catalogue: None,
        });
    };
    let (subnets, security_groups) =
        tokio::try_join!(o.inventory.subnets(&cluster.vpc), o.inventory.security_groups(&cluster.vpc)).map_err(aws)?;
    let given_profile = match &wanted.given_role {
        Some(given) => o.inventory.profile(&given.profile, o.resync).await.map_err(aws)?,
        None => None,
    };
    let unknown = !all_known(&wanted.subnets, &subnets) || !all_known(&wanted.security_groups, &security_groups);
    let (subnets, security_groups) = if unknown {
        o.inventory.refresh_network(&cluster.vpc).await.map_err(aws)?
    } else {
        (subnets, security_groups)
    };
    let elsewhere = elsewhere(o, wanted, &subnets, &security_groups).await?;
    o.inventory.expect_types(&wanted.instance_type, || o.groups.instance_types());
    // Before the types: it knows those of its line.
    let catalogue = match wanted.mixed.as_ref().is_some_and(|m| m.pool) {
        true => Some(o.inventory.catalogue(&wanted.instance_type).await.map_err(aws)?),
        false => None,
    };
    let mut environment = Environment {
        cluster: None,
        elsewhere,
        subnets: subnets.to_vec(),
        security_groups: security_groups.to_vec(),
        image: None,
        instance_type: None,
        given_profile,
        types: types(o, wanted).await?,
        catalogue,
    };
    if wanted.needs_type() {
        environment.instance_type = Some(o.inventory.instance_type(&wanted.instance_type).await.map_err(aws)?);
    }
    let architecture = environment.instance_type.as_ref().and_then(|t| t.as_ref()?.architecture());
    if let Some(parameter) = architecture.and_then(|a| image_parameter(wanted, a, &cluster.version)) {
        let image = o.inventory.image(&parameter, o.resync).await.map_err(aws)?;
        environment.image = Some((parameter, image));
    }
    environment.cluster = Some(cluster);
    Ok(environment)
}

/// The instance types of a mixed group; AWS is asked once for each.
async fn types(o: &Observer<'_>, wanted: &Wanted) -> Observed<BTreeMap<String, Option<InstanceType>>> {
    let names = wanted.mixed.iter().flat_map(|m| &m.types).map(|t| t.instance_type.clone());
    let ask = |name: String| async move { Ok((name.clone(), o.inventory.instance_type(&name).await?)) };
    let found = futures::future::try_join_all(names.map(ask)).await.map_err(ObserveError::Aws)?;
    Ok(found.into_iter().collect())
}

/// Whether every id or Name tag is found; what was made a minute ago is not in an older list.
fn all_known(wanted: &[String], known: &[NetworkObject]) -> bool {
    let found = |name: &String, o: &NetworkObject| {
        o.id == *name || o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name))
    };
    wanted.iter().all(|name| known.iter().any(|o| found(name, o)))
}

/// What is named by an id and is not in the cluster's VPC, so that a message can tell where it is.
async fn elsewhere(
    o: &Observer<'_>,
    wanted: &Wanted,
    subnets: &[NetworkObject],
    security_groups: &[NetworkObject],
) -> Observed<Vec<NetworkObject>> {
    let ids = |wanted: &[String], prefix: &'static str, known: &[NetworkObject]| -> Vec<String> {
        let unknown = wanted.iter().filter(|id| id.starts_with(prefix) && known.iter().all(|o| o.id != **id));
        unknown.cloned().collect()
    };
    let mut asked = ids(&wanted.subnets, "subnet-", subnets);
    asked.extend(ids(&wanted.security_groups, "sg-", security_groups));
    let found = try_join_all(asked.iter().map(|id| o.inventory.network_object(id))).await.map_err(ObserveError::Aws)?;
    Ok(found.into_iter().flatten().collect())
}

/// What a version that is to be made names; nothing is asked for a group that stands as it is wanted.
pub async fn looked(
    o: &Observer<'_>,
    resolved: &Resolved,
    state: &State,
    status: &InstanceGroupStatus,
) -> Observed<Option<Looked>> {
    if !launch_checks::due(resolved, state, status) {
        return Ok(None);
    }
    let (image, instance_type) =
        tokio::join!(o.inventory.ami(&resolved.data.image_id), o.inventory.instance_type(&resolved.data.instance_type));
    let launched = outdated::launched(state).is_some_and(|data| data.image_id == resolved.data.image_id);
    Ok(Some(Looked { image: told(image)?, instance_type: told(instance_type)?, launched }))
}

/// Who may not look before learns it from AWS's refusal after.
fn told<T>(answer: Result<T, AwsError>) -> Observed<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == AwsErrorKind::Denied => Ok(None),
        Err(error) => Err(ObserveError::Aws(error)),
    }
}

/// Where AWS publishes an image; `None` for one that is given by its id, or that AWS does not have.
fn image_parameter(wanted: &Wanted, architecture: &str, version: &str) -> Option<String> {
    let id = |latest: &str| match &wanted.image {
        Image::Ssm(id) => id.clone(),
        Image::Latest | Image::Id(_) => latest.to_owned(),
    };
    if matches!(wanted.image, Image::Id(_)) {
        return None;
    }
    let arm = architecture == "arm64";
    Some(match wanted.family {
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
            let id = id("latest");
            format!("/aws/service/ami-windows-{id}/Windows_Server-2019-English-Core-EKS_Optimized-{version}/image_id")
        }
    })
}
