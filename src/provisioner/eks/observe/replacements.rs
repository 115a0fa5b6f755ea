//! Observes replacements that failed: instances that left while their nodes were not Ready, and launches that failed.

use jiff::{SignedDuration, Timestamp};

use super::super::observed::FailedLaunch;
use super::super::resolve::ResolvedGroup;
use crate::api::InstanceGroupStatus;
use crate::aws::{AwsErrorKind, InstanceState, ScalingActivity, ScalingGroup};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::Part;
use crate::rotation::NodeInstance;

/// Why Auto Scaling has launched nothing since the rotation took a node out of service. An autoscaler lowers the
/// desired capacity then, so that nothing seems to be missing.
pub(super) async fn failed_launch(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> ObserveResult<Option<FailedLaunch>> {
    if resolved.desired.crd_strategy.is_some() {
        return Ok(None);
    }
    let Some(removed_at) = last_node_removal(o, resolved, status, group).await? else { return Ok(None) };
    if o.now.duration_since(removed_at) >= o.launch_retry {
        return Ok(None);
    }
    let message = match o.inventory.recent_activities(&group.name, o.max_cache_age).await {
        Ok(activities) => failed_since(&activities, removed_at),
        // What is not known may have failed.
        Err(error) if error.kind == AwsErrorKind::Denied => Some(error.to_string()),
        Err(error) => return Err(ObserveError::Aws(error)),
    };
    Ok(message.map(|message| FailedLaunch { message, retry_at: removed_at + o.launch_retry }))
}

/// When the rotation last took a node out of service. A process that starts in the middle of a rotation reads from AWS
/// once. It waits for the replacement of the last terminated instance, no matter who terminated it.
async fn last_node_removal(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> ObserveResult<Option<Timestamp>> {
    let key = resolved.desired.id.key();
    let known = o.process_state.last_node_removal(&key);
    if known.is_queried() {
        return Ok(known.as_present().copied());
    }
    let mut removed_at = None;
    if status.nodes.as_ref().is_some_and(|nodes| nodes.outdated > 0) {
        removed_at = match o.inventory.recent_activities(&group.name, o.max_cache_age).await {
            Ok(activities) => last_termination(&activities),
            // The launches cannot be read either, so that nothing would ever be found.
            Err(error) if error.kind == AwsErrorKind::Denied => None,
            Err(error) => return Err(ObserveError::Aws(error)),
        };
    }
    o.process_state.record_node_removal(&key, removed_at);
    Ok(removed_at)
}

fn last_termination(activities: &[ScalingActivity]) -> Option<Timestamp> {
    activities.iter().filter(|activity| activity.is_termination()).filter_map(|activity| activity.started).max()
}

/// Why launches after this time failed; `None` when one succeeded, or none has failed. Auto Scaling tries other zones and types,
/// so one that succeeded is enough.
fn failed_since(activities: &[ScalingActivity], removed_at: Timestamp) -> Option<String> {
    let is_launch =
        |activity: &&ScalingActivity| activity.is_launch() && activity.started.is_some_and(|at| at > removed_at);
    let launches = || activities.iter().filter(is_launch);
    if launches().any(|activity| activity.is_finished() && !activity.has_failed()) {
        return None;
    }
    // An autoscaler that takes a request back cancels the launch, and AWS may not return the cause.
    let failed = launches().find(|activity| activity.has_failed())?;
    Some(if failed.message.is_empty() { failed.status.clone() } else { failed.message.clone() })
}

/// See [`super::ObservedState::failed_replacements`].
pub(super) fn failed(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    members: &[NodeInstance],
) -> Vec<String> {
    let join_timeout = resolved.desired.rolling_update.join_timeout;
    let since = |m: &NodeInstance| Some((m.instance.id.clone(), waiting_since(m, join_timeout, o.now)?));
    let waiting = members.iter().filter_map(since).collect();
    let hash = &resolved.fingerprint.hash;
    // A forecast plans with another revision. With a broken launch field, every instance would count as a replacement.
    let is_broken = resolved.broken.contains(Part::Launch);
    if is_broken || status.template.as_ref().and_then(|template| template.hash.as_ref()) != Some(hash) {
        return Vec::new();
    }
    let recorded = status.failed_replacements.as_ref().filter(|failed| failed.template == *hash);
    let recorded = recorded.map(|failed| failed.instances.as_slice()).unwrap_or_default();
    // A node joins within a minute or two, and the Cluster Autoscaler waits for 15. A Spot Instance may be reclaimed while it
    // boots. One that is reclaimed later leaves soon after its node has failed.
    let least = join_timeout.min(o.unready_limit) / 2;
    o.process_state.lost_instances(&resolved.desired.id.key(), |known| {
        known.observe_replacements(hash, waiting, recorded, least, o.now)
    })
}

/// Since when an instance of the desired version waits to be Ready: since it is in service, or since its node failed
/// within `join_timeout`. `None` for one that is Ready, and for one whose node failed later, which says nothing about
/// its version.
fn waiting_since(member: &NodeInstance, join_timeout: SignedDuration, now: Timestamp) -> Option<Timestamp> {
    let is_in_service = member.instance.state == InstanceState::InService;
    if !member.reasons.is_empty() || !is_in_service || member.lost_node.is_some() {
        return None;
    }
    if member.node.as_ref().is_none_or(|node| !node.was_ready) {
        return member.instance.in_service_since;
    }
    let (started, lost) = member.loss(now)?;
    (lost.duration_since(started) < join_timeout).then_some(lost)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;
    use crate::aws::Instance;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::{instance, scaling_activity, scaling_group};
    use crate::index::nodes::node_view;
    use crate::provisioner::observe::fake::FakeCluster;

    fn activity(description: &str, status: &str, seconds: i64) -> ScalingActivity {
        ScalingActivity {
            status: status.into(),
            started: Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)),
            ..scaling_activity(description)
        }
    }

    /// The process that terminated the node knew that no replacement had launched. After its restart it would terminate
    /// one more healthy node.
    #[tokio::test]
    async fn process_restarted_during_a_rotation_reads_when_the_last_node_was_terminated() {
        let resolved = crate::provisioner::eks::observe::tests::resolved();
        let group = scaling_group(&resolved.names.scaling_group);
        let aws = Arc::new(FakeAws::default());
        aws.update(|d| {
            d.activities = vec![
                activity("Launching a new EC2 instance", "Failed", -50),
                activity("Terminating EC2 instance: i-1", "Successful", -60),
                activity("Launching a new EC2 instance", "Successful", -70),
            ];
        });
        for (outdated, expected) in [(1, Some("Failed")), (0, None)] {
            let status = json!({ "nodes": { "outdated": outdated } });
            let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
            let cluster = FakeCluster::new(&aws);
            let failed = async || {
                let found = failed_launch(&cluster.observer(), &resolved, &status, &group).await;
                found.expect("an answer").map(|failed| failed.message)
            };
            assert_eq!(failed().await.as_deref(), expected, "{outdated} outdated");
            cluster.observer().process_state.record_node_removal(&resolved.desired.id.key(), None);
            assert_eq!(failed().await, None, "AWS is asked once");
        }
    }

    /// In service since the minute 0; its node was Ready until `lost`.
    fn failed_node(lost: i64) -> NodeInstance {
        let mut node = node_view(&Node::default());
        (node.was_ready, node.ready_changed_at) = (true, Some(minute(lost)));
        NodeInstance {
            instance: Instance { in_service_since: Some(minute(0)), ..instance("i-1") },
            node: Some(node),
            lost_node: None,
            is_recorded_standby: false,
            reasons: Vec::new(),
            in_place: None,
        }
    }

    fn minute(number: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(number)
    }

    /// It halts the rotation while it is there. The Cluster Autoscaler removes it and lowers the desired capacity, and
    /// the rotation would take the next healthy node for the same image.
    #[tokio::test]
    async fn replacement_that_failed_soon_after_it_was_ready_is_recorded_when_it_leaves() {
        let resolved = crate::provisioner::eks::observe::tests::resolved();
        let (key, aws) = (resolved.desired.id.key(), Arc::new(FakeAws::default()));
        let status = json!({ "template": { "hash": resolved.fingerprint.hash } });
        let status: InstanceGroupStatus = serde_json::from_value(status).expect("a status");
        for (what, lost, left, expected) in [
            ("it failed within joinTimeout", 5, 15, vec!["i-1"]),
            ("it was Ready for longer", 20, 30, vec![]),
            ("a Spot Instance is reclaimed", 5, 7, vec![]),
        ] {
            let cluster = FakeCluster::new(&aws);
            let pass = |members: &[NodeInstance], now: Timestamp| {
                let observer = Observer { now, ..cluster.observer() };
                let present = members.iter().map(|m| m.instance.id.clone()).collect();
                observer.process_state.lost_instances(&key, |known| known.observe(present, now));
                failed(&observer, &resolved, &status, members)
            };
            assert_eq!(pass(&[failed_node(lost)], minute(left - 1)), [""; 0], "{what}: it is still there");
            assert_eq!(pass(&[], minute(left)), expected, "{what}");
        }
    }

    /// An autoscaler lowers the desired capacity after a failed launch, so that nothing seems to be missing.
    #[test]
    fn launch_failure_after_a_termination_is_reported_until_a_launch_succeeds() {
        let removed_at = Timestamp::UNIX_EPOCH;
        let launch = |status: &str, seconds| activity("Launching a new EC2 instance", status, seconds);
        // With maxSurge, the rotation itself moves a node to standby before each launch.
        let standby = activity("Moving EC2 instance to Standby: i-1", "Successful", 20);
        for (activities, expected) in [
            (vec![], None),
            (vec![launch("Failed", 30)], Some("Failed")),
            (vec![launch("Cancelled", 30)], Some("Cancelled")),
            (vec![launch("Failed", -30)], None),
            (vec![launch("InProgress", 50), launch("Failed", 30)], Some("Failed")),
            (vec![launch("Failed", 30), standby.clone()], Some("Failed")),
            (vec![standby], None),
            (vec![launch("Failed", 50), launch("Successful", 30)], None),
        ] {
            assert_eq!(failed_since(&activities, removed_at).as_deref(), expected, "{activities:?}");
        }
    }
}
