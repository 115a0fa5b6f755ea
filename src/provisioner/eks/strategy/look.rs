//! Looks at the resources of the strategy `crd`: at the one that is wanted, and at others only when that is not there.

use jiff::Timestamp;
use serde_json::Value;

use super::{StrategyView, asked, outdated, request};
use crate::api::InstanceGroupStatus;
use crate::api::names::annotation;
use crate::cluster::ClusterError;
use crate::observe::{ObserveError, Observed, Observer};
use crate::provisioner::eks::resolve::Resolved;
use crate::provisioner::eks::state::State;
use crate::upgrade::Member;
use crate::upgrade::crd::CrdUpgrade;
use crate::upgrade::crd::decide::{Elsewhere, Phase, Resource, elsewhere};
use crate::upgrade::crd::resource::{Request, ResourceKind, fits};

/// What there is, when somebody has a reason to ask.
pub async fn look(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    state: &State,
    members: &[Member],
) -> Observed<Option<StrategyView>> {
    let (Some(crd), Some(group)) = (&resolved.wanted.crd, &state.group) else { return Ok(None) };
    if !asked(status, outdated(members)) {
        return Ok(None);
    }
    let request = match request(crd, resolved, state, status, group) {
        Ok(request) => request,
        Err(problem) => return Ok(Some(StrategyView::Refused(problem))),
    };
    match resources(o, crd, request, &group.name, status).await {
        Ok(view) => Ok(Some(view)),
        Err(error @ ClusterError::Forbidden { .. }) => Ok(Some(StrategyView::Forbidden(error.to_string()))),
        Err(error) => Err(ObserveError::Cluster(error)),
    }
}

async fn resources(
    o: &Observer<'_>,
    crd: &CrdUpgrade,
    request: Request,
    scaling_group: &str,
    status: &InstanceGroupStatus,
) -> Result<StrategyView, ClusterError> {
    let Some(served) = o.cluster.served(&request.group, &request.version, &request.kind).await? else {
        return Ok(StrategyView::Missing(request));
    };
    let kind = match fits(&request, &served, &crd.crd_name) {
        Ok(kind) => kind,
        Err(problem) => return Ok(StrategyView::Refused(problem)),
    };
    let found = match o.cluster.strategy_resource(&kind, &request.namespace, &request.name).await? {
        Some(wanted) => vec![wanted],
        None => o.cluster.strategy_resources(&kind, &request.namespace, scaling_group).await?,
    };
    let mut resources: Vec<_> = found.iter().map(|object| resource(object, &kind, crd, scaling_group)).collect();
    if let Some(place) = elsewhere(status, &kind, &request.namespace) {
        resources.extend(former(o, crd, &kind, &place, scaling_group).await?);
    }
    Ok(StrategyView::Seen { request, kind, resources })
}

/// What was submitted last, before the template said another kind or namespace.
async fn former(
    o: &Observer<'_>,
    crd: &CrdUpgrade,
    kind: &ResourceKind,
    place: &Elsewhere<'_>,
    scaling_group: &str,
) -> Result<Option<Resource>, ClusterError> {
    let kind = match place.kind {
        None => kind.clone(),
        Some([group, version, name]) => {
            // Resources of a kind that is served no more are gone with it.
            let Some(served) = o.cluster.served(group, version, name).await? else { return Ok(None) };
            ResourceKind { group: group.into(), version: version.into(), kind: name.into(), plural: served.plural }
        }
    };
    let found = o.cluster.strategy_resource(&kind, place.namespace, place.name).await?;
    Ok(found.map(|object| resource(&object, &kind, crd, scaling_group)))
}

fn resource(object: &Value, kind: &ResourceKind, crd: &CrdUpgrade, scaling_group: &str) -> Resource {
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    let note = |name: &str| metadata["annotations"][name].as_str();
    Resource {
        kind: kind.clone(),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        created: text("creationTimestamp").parse::<Timestamp>().ok(),
        ours: note(annotation::MANAGED_BY) == Some(annotation::MANAGED_BY_VALUE)
            && note(annotation::UPGRADE_SCOPE) == Some(scaling_group),
        deleting: metadata["deletionTimestamp"].is_string(),
        phase: phase(object, crd),
    }
}

fn phase(object: &Value, crd: &CrdUpgrade) -> Phase {
    match crd.path.read(object) {
        Err(what) => Phase::Unreadable(what),
        Ok(word) if word.eq_ignore_ascii_case(&crd.success) => Phase::Succeeded,
        Ok(word) if word.eq_ignore_ascii_case(&crd.failure) => Phase::Failed,
        Ok(word) => Phase::Active(word),
    }
}
