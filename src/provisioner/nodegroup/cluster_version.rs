//! Whether EKS accepts a Kubernetes version for the nodes: only that of the cluster, and the one that the nodes have.

use super::input::PlanInput;
use crate::aws::nodegroup::Nodegroup;
use crate::plan::{Outcome, Phase, Recheck, StalledReason};

/// The outcome while EKS would refuse the version that the spec asks for. One that the cluster does not have yet waits for
/// it: whoever updates the cluster may have set it first. `None` if EKS accepts the version, or if that is not known.
pub(crate) fn refusal(input: &PlanInput, found: &Nodegroup) -> Option<Outcome> {
    let desired = &input.resolved.desired;
    let (own, cluster) = (&found.version, input.observed.cluster_version.as_ref()?);
    let wanted =
        desired.kubernetes_version(Some(&found.ami_type)).filter(|wanted| wanted != own && wanted != cluster)?;
    let is_newer = minor(&wanted)? > minor(cluster)?;
    let field = if desired.version.is_some() { "version" } else { "releaseVersion" };
    let problem = format!(
        "spec.eks-managed.configuration.{field} asks for Kubernetes {wanted}; EKS accepts only the version of the cluster ({cluster}) and that of the nodes ({own})"
    );
    Some(match is_newer {
        true => Outcome::Progressing {
            phase: Phase::Modifying,
            message: format!("{problem}; the nodes are replaced once the cluster has {wanted}"),
            recheck: Recheck::After(input.timing.retry_delay),
        },
        false => Outcome::Blocked {
            reason: StalledReason::InvalidSpec,
            message: format!("{problem}; set one of these"),
            is_deleting: false,
        },
    })
}

/// The numbers of a version such as `1.33`; `None` for another form, which EKS itself refuses.
fn minor(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
