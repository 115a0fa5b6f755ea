//! Looks at the resources of the strategy `crd`: at the one that is wanted, and at others only when that is not there.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::InstanceGroupStatus;
use crate::api::names::annotation;
use crate::k8s::ClusterError;
use crate::provisioner::eks::observed::{State, StrategyView};
use crate::provisioner::eks::resolve::Resolved;
use crate::provisioner::eks::rotation::crd_strategy::{asked, outdated, request};
use crate::provisioner::observe::{ObserveError, Observed, Observer};
use crate::rotation::Member;
use crate::rotation::crd::decide::{Elsewhere, Phase, Resource, elsewhere, last};
use crate::rotation::crd::resource::{Request, ResourceKind, fits};
use crate::rotation::crd::{CrdUpgrade, Words};

/// What there is, when somebody has a reason to ask.
pub async fn look(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    state: &State,
    members: &[Member],
) -> Observed<Option<StrategyView>> {
    let Some(group) = &state.group else { return Ok(None) };
    let Some(crd) = &resolved.wanted.crd else { return answer(left(o, &group.name, status).await) };
    if !asked(status, outdated(members)) {
        return Ok(None);
    }
    let request = match request(crd, resolved, state, status, group) {
        Ok(request) => request,
        Err(problem) => return Ok(Some(StrategyView::Refused(problem))),
    };
    answer(resources(o, crd, request, &group.name, status).await.map(Some))
}

fn answer(seen: Result<Option<StrategyView>, ClusterError>) -> Observed<Option<StrategyView>> {
    match seen {
        Ok(view) => Ok(view),
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
    let read = |object: &Value| {
        let name = object["metadata"]["name"].as_str();
        let remembered = name != Some(&request.name) && name == status.strategy_resource_name.as_deref();
        let recorded = recorded(status).filter(|_| remembered);
        resource(object, &kind, scaling_group, recorded.iter().chain([&crd.words]))
    };
    let mut resources: Vec<_> = found.iter().map(read).collect();
    if let Some(place) = elsewhere(status, &kind, &request.namespace) {
        let recorded = recorded(status);
        let words = recorded.iter().chain([&crd.words]);
        resources.extend(former(o, Some(&kind), &place, scaling_group, words).await?);
    }
    Ok(StrategyView::Seen { request, kind, resources })
}

/// What was submitted last, before another strategy was wanted; `None` when the status names nothing that has yet to end.
async fn left(
    o: &Observer<'_>,
    scaling_group: &str,
    status: &InstanceGroupStatus,
) -> Result<Option<StrategyView>, ClusterError> {
    let Some(place) = last(status).filter(|place| place.kind.is_some()) else { return Ok(None) };
    let found = former(o, None, &place, scaling_group, recorded(status).iter()).await?;
    Ok(Some(StrategyView::Left(found.filter(Resource::at_work))))
}

fn recorded(status: &InstanceGroupStatus) -> Option<Words> {
    Words::recorded(status.strategy_progress.as_ref()?)
}

/// What was submitted last, before the template said another kind or namespace, or the spec another strategy.
async fn former(
    o: &Observer<'_>,
    kind: Option<&ResourceKind>,
    place: &Elsewhere<'_>,
    scaling_group: &str,
    words: impl Iterator<Item = &Words>,
) -> Result<Option<Resource>, ClusterError> {
    let kind = match (place.kind, kind) {
        (None, None) => return Ok(None),
        (None, Some(kind)) => kind.clone(),
        (Some([group, version, name]), _) => {
            // Resources of a kind that is served no more are gone with it.
            let Some(served) = o.cluster.served(group, version, name).await? else { return Ok(None) };
            ResourceKind { group: group.into(), version: version.into(), kind: name.into(), plural: served.plural }
        }
    };
    let found = o.cluster.strategy_resource(&kind, place.namespace, place.name).await?;
    Ok(found.map(|object| resource(&object, &kind, scaling_group, words)))
}

fn resource<'w>(
    object: &Value,
    kind: &ResourceKind,
    scaling_group: &str,
    words: impl Iterator<Item = &'w Words>,
) -> Resource {
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
        phase: phase(object, words),
    }
}

/// What a resource says by any of the words that it may be read by: its end, or the last one's answer.
fn phase<'w>(object: &Value, words: impl Iterator<Item = &'w Words>) -> Phase {
    let nothing = Phase::Unreadable("nothing that is known");
    words.map(|words| words.phase(object)).fold(nothing, |found, next| if found.ended() { found } else { next })
}
