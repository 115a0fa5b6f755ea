//! Reads the resources of the strategy `crd`: the desired one, and the one that the status records as unfinished. All
//! others only when the desired one does not exist.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::InstanceGroupStatus;
use crate::api::names::{annotation, condition};
use crate::aws::ScalingGroup;
use crate::k8s::KubeError;
use crate::provisioner::eks::launch_configuration;
use crate::provisioner::eks::observed::{ObservedState, StrategyState, version_number};
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::rotation::crd_strategy::{build_request, needs_observation, outdated_count};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::Part;
use crate::rotation::NodeInstance;
use crate::rotation::crd::decide::{
    PreviousResource, ResourcePhase, StrategyResource, last_submitted, previous_resource,
};
use crate::rotation::crd::resource::{RenderedResource, ResourceKind, resolve_kind};
use crate::rotation::crd::{CrdUpgrade, StatusMatcher};

/// Reads the strategy's resources; `None` when no decision depends on them.
pub(crate) async fn observe(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &ObservedState,
    members: &[NodeInstance],
) -> ObserveResult<Option<StrategyState>> {
    let Some(group) = &state.scaling_group else { return Ok(None) };
    if resolved.broken.contains(Part::Rotation) {
        return Ok(None);
    }
    let Some(crd) = &resolved.desired.crd_strategy else {
        return map_forbidden(superseded(o, &group.name, status).await);
    };
    let is_needed = needs_observation(status, outdated_count(members));
    if !is_needed && !can_check_early(state, status, group) {
        return Ok(None);
    }
    let request = match build_request(crd, resolved, state, status, group) {
        Ok(request) => request,
        Err(problem) => return Ok(Some(StrategyState::Refused(problem))),
    };
    if is_needed {
        return map_forbidden(resources(o, crd, request, &group.name, status).await.map(Some));
    }
    if was_checked(resolved, status) {
        return Ok(None);
    }
    map_forbidden(submission_problem(o, crd, request).await)
}

/// Whether the object of a submission can be computed although nothing is outdated: a template may read any field of
/// the status.
fn can_check_early(state: &ObservedState, status: &InstanceGroupStatus, group: &ScalingGroup) -> bool {
    let version = group.template.as_ref().and_then(|pin| version_number(pin, state.template.as_ref()));
    status.nodes.is_some() && (version.is_some() || launch_configuration::current_name(group).is_some())
}

/// Whether an earlier pass read the kind of the resource, and nothing has changed since. A group with a problem reads
/// it again, so that the end of the problem is noticed.
fn was_checked(resolved: &ResolvedGroup, status: &InstanceGroupStatus) -> bool {
    let is_true = |kind: &str| status.conditions.iter().any(|c| c.r#type == kind && c.is_true());
    status.observed_generation == Some(resolved.desired.id.generation)
        && is_true(condition::READY)
        && !is_true(condition::FIELDS_REJECTED)
}

/// What would prevent a submission: the API server does not serve the kind, or does not let the controller read it.
async fn submission_problem(
    o: &Observer<'_>,
    crd: &CrdUpgrade,
    request: RenderedResource,
) -> Result<Option<StrategyState>, KubeError> {
    let Some(served) = o.kube.discover_kind(&request.group, &request.version, &request.kind).await? else {
        return Ok(Some(StrategyState::Missing(request)));
    };
    let kind = match resolve_kind(&request, &served, &crd.crd_name) {
        Ok(kind) => kind,
        Err(problem) => return Ok(Some(StrategyState::Refused(problem))),
    };
    o.kube.strategy_resource(&kind, &request.namespace, &request.name).await.map(|_| None)
}

fn map_forbidden(result: Result<Option<StrategyState>, KubeError>) -> ObserveResult<Option<StrategyState>> {
    match result {
        Ok(view) => Ok(view),
        Err(error @ KubeError::Forbidden { .. }) => Ok(Some(StrategyState::Forbidden(error.to_string()))),
        Err(error) => Err(ObserveError::Kube(error)),
    }
}

async fn resources(
    o: &Observer<'_>,
    crd: &CrdUpgrade,
    request: RenderedResource,
    scaling_group: &str,
    status: &InstanceGroupStatus,
) -> Result<StrategyState, KubeError> {
    let Some(served) = o.kube.discover_kind(&request.group, &request.version, &request.kind).await? else {
        return Ok(StrategyState::Missing(request));
    };
    let kind = match resolve_kind(&request, &served, &crd.crd_name) {
        Ok(kind) => kind,
        Err(problem) => return Ok(StrategyState::Refused(problem)),
    };
    let (request, desired) = with_free_name(o, &kind, request, scaling_group, status).await?;
    let found = match desired {
        Some(resource) => vec![resource],
        None => o.kube.strategy_resources(&kind, &request.namespace, scaling_group).await?,
    };
    let parse = |object: &Value| {
        let name = object["metadata"]["name"].as_str();
        let was_submitted_last = name != Some(&request.name) && name == status.strategy_resource_name.as_deref();
        let recorded = recorded_matcher(status).filter(|_| was_submitted_last);
        to_resource(object, &kind, scaling_group, recorded.iter().chain([&crd.status_matcher]))
    };
    let mut resources: Vec<_> = found.iter().map(parse).collect();
    let is_read = |p: &PreviousResource| {
        p.kind.is_none() && resources.iter().any(|r| (r.namespace.as_str(), r.name.as_str()) == (p.namespace, p.name))
    };
    let previous = previous_resource(status, &kind, &request.namespace, &request.name);
    if let Some(previous) = previous.filter(|previous| !is_read(previous)) {
        let recorded = recorded_matcher(status);
        let matchers = recorded.iter().chain([&crd.status_matcher]);
        resources.extend(read_previous_resource(o, Some(&kind), &previous, scaling_group, matchers).await?);
    }
    Ok(StrategyState::Seen { request, kind, resources })
}

/// The request, and the resource of its name. The request gets a name of its own once another group has a resource of the
/// template's name, and keeps it.
async fn with_free_name(
    o: &Observer<'_>,
    kind: &ResourceKind,
    request: RenderedResource,
    scaling_group: &str,
    status: &InstanceGroupStatus,
) -> Result<(RenderedResource, Option<Value>), KubeError> {
    let own = request.with_own_name(scaling_group);
    if status.strategy_resource_name.as_ref() != Some(&own.name) {
        let found = o.kube.strategy_resource(kind, &request.namespace, &request.name).await?;
        let is_of_other = |object: &Value| {
            let annotations = &object["metadata"]["annotations"];
            annotations[annotation::MANAGED_BY] == annotation::MANAGED_BY_VALUE
                && annotations[annotation::UPGRADE_SCOPE].as_str().is_some_and(|scope| scope != scaling_group)
        };
        if !found.as_ref().is_some_and(is_of_other) {
            return Ok((request, found));
        }
    }
    let found = o.kube.strategy_resource(kind, &own.namespace, &own.name).await?;
    Ok((own, found))
}

/// The resource that was submitted last before the spec named another strategy; `None` when the status names no
/// unfinished resource.
async fn superseded(
    o: &Observer<'_>,
    scaling_group: &str,
    status: &InstanceGroupStatus,
) -> Result<Option<StrategyState>, KubeError> {
    let Some(previous) = last_submitted(status).filter(|previous| previous.kind.is_some()) else { return Ok(None) };
    let found = read_previous_resource(o, None, &previous, scaling_group, recorded_matcher(status).iter()).await?;
    Ok(Some(StrategyState::Left(found.filter(StrategyResource::is_active))))
}

fn recorded_matcher(status: &InstanceGroupStatus) -> Option<StatusMatcher> {
    StatusMatcher::from_progress(status.strategy_progress.as_ref()?)
}

/// The resource that was submitted last, before the template named another kind or namespace, or the spec another
/// strategy.
async fn read_previous_resource(
    o: &Observer<'_>,
    kind: Option<&ResourceKind>,
    previous: &PreviousResource<'_>,
    scaling_group: &str,
    matchers: impl Iterator<Item = &StatusMatcher>,
) -> Result<Option<StrategyResource>, KubeError> {
    let kind = match (previous.kind, kind) {
        (None, None) => return Ok(None),
        (None, Some(kind)) => kind.clone(),
        (Some([group, version, name]), _) => {
            // The API server removes the resources of a kind that it no longer serves.
            let Some(served) = o.kube.discover_kind(group, version, name).await? else { return Ok(None) };
            ResourceKind { group: group.into(), version: version.into(), kind: name.into(), plural: served.plural }
        }
    };
    let found = o.kube.strategy_resource(&kind, previous.namespace, previous.name).await?;
    Ok(found.map(|object| to_resource(&object, &kind, scaling_group, matchers)))
}

fn to_resource<'w>(
    object: &Value,
    kind: &ResourceKind,
    scaling_group: &str,
    matchers: impl Iterator<Item = &'w StatusMatcher>,
) -> StrategyResource {
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    let annotation_value = |name: &str| metadata["annotations"][name].as_str();
    StrategyResource {
        kind: kind.clone(),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        created_at: text("creationTimestamp").parse::<Timestamp>().ok(),
        is_owned: annotation_value(annotation::MANAGED_BY) == Some(annotation::MANAGED_BY_VALUE)
            && annotation_value(annotation::UPGRADE_SCOPE) == Some(scaling_group),
        is_deleting: metadata["deletionTimestamp"].is_string(),
        phase: phase(object, kind, matchers),
    }
}

/// The phase of a resource by any of the status matchers: a finished phase wins, else the last matcher decides.
fn phase<'w>(object: &Value, kind: &ResourceKind, matchers: impl Iterator<Item = &'w StatusMatcher>) -> ResourcePhase {
    let nothing = ResourcePhase::Unreadable("an unknown value");
    matchers
        .map(|matcher| matcher.phase(object, kind))
        .fold(nothing, |found, next| if found.is_finished() { found } else { next })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, decode_spec, group_id};
    use crate::aws::TemplatePin;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::samples::scaling_group;
    use crate::k8s::fake;
    use crate::provisioner::eks::desired;
    use crate::provisioner::eks::observe::tests::resolved;
    use crate::provisioner::observe::fake::FakeCluster;
    use crate::util::redact::Redacted;

    fn with_strategy(kind: &str) -> ResolvedGroup {
        let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
        group.metadata.namespace = Some("team".into());
        let template = format!(
            "{{apiVersion: upgrademgr.keikoproj.io/v1, kind: {kind}, metadata: {{name: a, namespace: team}}, spec: {{asgName: web}}}}"
        );
        let crd = json!({"crdName": "rollingupgrades", "spec": template, "statusJSONPath": ".status.phase",
            "statusSuccessString": "ok", "statusFailureString": "bad"});
        let spec = json!({"strategy": {"type": "crd", "crd": crd}});
        let spec = decode_spec(&spec).expect("a spec");
        let (desired, _) = desired::parse_with_errors(&group_id(&group), &Default::default(), &spec);
        let mut resolved = resolved();
        resolved.desired.crd_strategy = desired.crd_strategy;
        resolved
    }

    /// What API discovery returns for RollingUpgrades.
    fn served_kind() -> (u16, Value) {
        let one = json!({"name": "rollingupgrades", "singularName": "", "namespaced": true, "kind": "RollingUpgrade", "verbs": []});
        (
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "upgrademgr.keikoproj.io/v1", "resources": [one]}),
        )
    }

    /// After a revert, the resource of the older version exists as well as the one that runs.
    #[tokio::test]
    async fn recorded_resource_is_read_beside_the_desired_one() {
        let client = fake::client(|call| {
            let of = |name: &str, phase: &str| {
                let metadata = json!({"name": name, "namespace": "team", "uid": name});
                (
                    200,
                    json!({"apiVersion": "upgrademgr.keikoproj.io/v1", "kind": "RollingUpgrade", "metadata": metadata, "status": {"phase": phase}}),
                )
            };
            match call.path.as_str() {
                "/apis/upgrademgr.keikoproj.io/v1" => served_kind(),
                "/apis/upgrademgr.keikoproj.io/v1/namespaces/team/rollingupgrades/a-2" => of("a-2", "ok"),
                "/apis/upgrademgr.keikoproj.io/v1/namespaces/team/rollingupgrades/a-3" => of("a-3", "running"),
                _ => fake::failure(500, "InternalError", "no"),
            }
        });
        let cluster = FakeCluster::new(&Arc::new(FakeAws::default())).with_client(client);
        let resolved = with_strategy("RollingUpgrade");
        let crd = resolved.desired.crd_strategy.as_ref().expect("a strategy");
        let text = |text: &str| text.to_owned();
        let (group, version, kind) = (text("upgrademgr.keikoproj.io"), text("v1"), text("RollingUpgrade"));
        let object = Redacted::new(json!({}));
        let request = RenderedResource { group, version, kind, namespace: text("team"), name: text("a-2"), object };
        let status = json!({"strategyResourceName": "a-3", "strategyResourceNamespace": "team",
            "strategyProgress": {"state": "Submitted", "uid": "a-3"}});
        let status = serde_json::from_value(status).expect("a status");
        let seen = resources(&cluster.observer(), crd, request, "web", &status).await.expect("an answer");
        let StrategyState::Seen { resources, .. } = &seen else { panic!("{seen:?}") };
        assert_eq!(resources.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["a-2", "a-3"]);
    }

    /// Two groups that were created in the same second, with a template that names its resource alike for every group: the
    /// second one would never be upgraded. A resource that nobody marked is not another group's.
    #[tokio::test]
    async fn name_that_another_groups_resource_has_is_not_used() {
        let seen = async |scope: Option<&'static str>, status: Value| {
            let client = fake::client(move |call| {
                let annotations = scope.map_or(json!({}), |scope| {
                    json!({annotation::MANAGED_BY: annotation::MANAGED_BY_VALUE, annotation::UPGRADE_SCOPE: scope})
                });
                let metadata = json!({"name": "a-2", "namespace": "team", "annotations": annotations});
                let resource =
                    json!({"apiVersion": "upgrademgr.keikoproj.io/v1", "kind": "RollingUpgrade", "metadata": metadata});
                match call.path.strip_prefix("/apis/upgrademgr.keikoproj.io/v1").expect("a path") {
                    "" => served_kind(),
                    "/namespaces/team/rollingupgrades/a-2" => (200, resource),
                    "/namespaces/team/rollingupgrades" => (
                        200,
                        json!({"kind": "RollingUpgradeList", "apiVersion": "upgrademgr.keikoproj.io/v1", "metadata": {}, "items": []}),
                    ),
                    _ => fake::failure(404, "NotFound", "there is none"),
                }
            });
            let cluster = FakeCluster::new(&Arc::new(FakeAws::default())).with_client(client);
            let resolved = with_strategy("RollingUpgrade");
            let crd = resolved.desired.crd_strategy.as_ref().expect("a strategy");
            let [group, version, kind] = ["upgrademgr.keikoproj.io", "v1", "RollingUpgrade"].map(str::to_owned);
            let object = Redacted::new(json!({"metadata": {"name": "a-2"}}));
            let request =
                RenderedResource { group, version, kind, namespace: "team".into(), name: "a-2".into(), object };
            let status = serde_json::from_value(status).expect("a status");
            let seen = resources(&cluster.observer(), crd, request, "web", &status).await.expect("an answer");
            let StrategyState::Seen { request, .. } = seen else { panic!("{seen:?}") };
            assert_eq!(request.object.expose()["metadata"]["name"], json!(request.name));
            request.name
        };
        let own = seen(Some("other"), json!({})).await;
        assert!(own.starts_with("a-2-") && own.len() == "a-2-".len() + 8, "{own}");
        assert_eq!(seen(Some("web"), json!({})).await, "a-2", "it is the group's own");
        assert_eq!(seen(None, json!({})).await, "a-2");
        assert_eq!(seen(Some("web"), json!({"strategyResourceName": own.clone()})).await, own, "it is in progress");
    }

    /// A user learns of a missing permission when the group is created or changed, and not in the middle of the first
    /// rotation. A group that is Ready costs the API server nothing.
    #[tokio::test]
    async fn what_prevents_a_submission_is_found_before_nodes_are_outdated() {
        let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
        let ready = json!({"observedGeneration": 0, "nodes": {}, "conditions": [{"type": "Ready", "status": "True"}]});
        let changed =
            json!({"observedGeneration": -1, "nodes": {}, "conditions": [{"type": "Ready", "status": "True"}]});
        let served = json!({"observedGeneration": 0, "nodes": {}, "conditions": [{"type": "Ready", "status": "True"},
            {"type": "FieldsRejected", "status": "True"}]});
        let found = async |kind: &str, status: &Value| {
            let status = serde_json::from_value(status.clone()).expect("a status");
            let client = fake::client(|call| match call.path.as_str() {
                "/apis/upgrademgr.keikoproj.io/v1" => served_kind(),
                _ => fake::failure(403, "Forbidden", "no"),
            });
            let cluster = FakeCluster::new(&Arc::new(FakeAws::default())).with_client(client);
            let (observer, resolved) = (cluster.observer(), with_strategy(kind));
            let mut state =
                crate::provisioner::eks::observe::observe(&observer, &resolved, &status).await.expect("a state");
            state.scaling_group = Some(ScalingGroup { template: Some(pin.clone()), ..scaling_group("web") });
            observe(&observer, &resolved, &status, &state, &[]).await.expect("an answer")
        };
        assert!(matches!(found("RollingUpgrade", &changed).await, Some(StrategyState::Forbidden(_))));
        assert!(
            matches!(found("RollingUpgrade", &served).await, Some(StrategyState::Forbidden(_))),
            "until it has ended"
        );
        assert!(found("RollingUpgrade", &ready).await.is_none());
        assert!(matches!(found("Job", &ready).await, Some(StrategyState::Refused(_))), "the policy needs no read");
        let first_pass = json!({"observedGeneration": -1});
        assert!(found("Job", &first_pass).await.is_none(), "a template may read what the status has yet to say");
    }
}
