//! The cluster of the resources that a deletion deletes. Pure.
//!
//! The ownership tags contain the cluster, and after a change of the spec only the status says which one it was. But a
//! group of the same namespace and name in another cluster carries the same other tags, so the status alone is no proof.

use crate::api::{GroupId, InstanceGroupStatus};
use crate::boundaries::MergedSpec;
use crate::plan::{Plan, Reason, blocked_plan};
use crate::provisioner::Provisioner;
use crate::settings::Settings;

/// The cluster that a merged spec names; `None` without one.
pub(crate) fn desired<'a>(merged: &'a MergedSpec, provisioner: &dyn Provisioner) -> Option<&'a str> {
    let keys = provisioner.cluster_field().split('.').skip(1);
    keys.fold(&merged.spec, |value, key| &value[key]).as_str().filter(|cluster| !cluster.is_empty())
}

/// The plan of a deletion that the recorded cluster blocks. The recorded cluster differs from that of `--cluster-name`,
/// or without that flag, from that of the spec.
pub(crate) fn blocked_deletion(
    id: &GroupId,
    status: &InstanceGroupStatus,
    merged: Option<&MergedSpec>,
    provisioner: &dyn Provisioner,
    settings: &Settings,
) -> Option<Plan> {
    let recorded = provisioner.recorded_cluster(id, status)?;
    let path = provisioner.cluster_field();
    let (expected, reason, remedy) = match (&settings.cluster_name, merged) {
        (Some(pinned), _) => {
            (pinned.as_str(), Reason::PolicyViolation, "use the controller of that cluster".to_owned())
        }
        (None, Some(merged)) => (
            desired(merged, provisioner)?,
            Reason::InvalidSpec,
            format!("set {path} to {recorded}, and the deletion continues"),
        ),
        (None, None) => return None,
    };
    let message = format!(
        "the status names resources in the cluster {recorded}, but this group is in {expected}; to delete them, {remedy}; to keep them, remove the finalizer"
    );
    (expected != recorded).then(|| blocked_plan(id, reason, message))
}
