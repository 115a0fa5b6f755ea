//! Plans for the strategy `crd`: a resource is submitted and awaited; the controller counts outdated nodes itself.

use instance_manager::api::Condition;
use instance_manager::api::spec_error::SpecError;
use instance_manager::apply::Applied;
use instance_manager::plan::{EventKind, Step, StrategyStep};
use instance_manager::provisioner::eks::observed::StrategyState;
use instance_manager::provisioner::eks::rotation::crd_strategy::{build_request, needs_observation};
use instance_manager::rotation::crd::decide::{ResourcePhase, StrategyResource};
use instance_manager::rotation::crd::{RenderedResource, ResourceKind};

use super::*;

pub(super) const CRD: &str = "{strategy: {type: crd, crd: {crdName: rollingupgrades, statusJSONPath: .status.currentStatus, statusSuccessString: completed, statusFailureString: error, maxRetries: 1, spec: \"{apiVersion: upgrademgr.keikoproj.io/v1alpha1, kind: RollingUpgrade, metadata: {name: '{{ .InstanceGroup.GetName }}', namespace: '{{ .InstanceGroup.GetNamespace }}'}, spec: {asgName: '{{ .InstanceGroup.Status.ActiveScalingGroupName }}'}}\"}}, eks: {configuration: {image: ami-00000002}}}";

/// A new version is pinned, the nodes run the old one, and the strategy's resources have not been read.
fn with_outdated_nodes() -> Scenario {
    converged()
        .with_spec(CRD)
        .with(add_desired_version)
        .with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into())
}

fn rendered(s: &Scenario) -> RenderedResource {
    let crd = s.resolved.desired.crd_strategy.as_ref().expect("the strategy crd");
    build_request(crd, &s.resolved, &s.state, &s.status, s.state.scaling_group.as_ref().expect("a group"))
        .expect("a rendered resource")
}

/// Outdated nodes, and the resource of the desired name in a phase, or no resource.
fn with_resource_phase(phase: Option<ResourcePhase>) -> Scenario {
    with_outdated_nodes().with(|s| {
        let request = rendered(s);
        let kind = ResourceKind {
            group: request.group.clone(),
            version: request.version.clone(),
            kind: request.kind.clone(),
            plural: "rollingupgrades".into(),
        };
        let resources = phase.into_iter().map(|phase| StrategyResource {
            kind: kind.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            uid: "uid-9".into(),
            created_at: Some(timestamp(LONG_AGO)),
            is_owned: true,
            is_deleting: false,
            phase,
        });
        s.state.strategy_state = Some(StrategyState::Seen { resources: resources.collect(), request, kind });
    })
}

/// The status records that the resource was submitted and observed.
fn with_records(scenario: Scenario) -> Scenario {
    scenario.with(|s| {
        let request = rendered(s);
        s.status.current_state = Some("InitUpgrade".into());
        s.status.strategy_resource_name = Some(request.name);
        s.status.strategy_resource_namespace = Some(request.namespace);
        s.status.strategy_progress =
            serde_json::from_value(json!({"state": "Submitted", "uid": "uid-9"})).expect("progress");
    })
}

fn with_all_nodes_updated(scenario: Scenario) -> Scenario {
    scenario.with_scaling_group(|g| {
        g.instances.iter_mut().for_each(|i| i.template.as_mut().expect("a pin").version = "2".into())
    })
}

fn active() -> Option<ResourcePhase> {
    Some(ResourcePhase::Active("running".into()))
}

#[test]
fn plans_match_golden_files() {
    let missing = with_outdated_nodes().with(|s| s.state.strategy_state = Some(StrategyState::Missing(rendered(s))));
    let forbidden = with_outdated_nodes().with(|s| {
        let message = "not allowed to get rollingupgrades.upgrademgr.keikoproj.io: no";
        s.state.strategy_state = Some(StrategyState::Forbidden(message.into()));
    });
    let with_own_drain = with_resource_phase(None).with(|s| {
        s.state.nodes.get_mut("i-1").expect("a node").disruption = Some(disruption_record("2"));
    });
    let scenarios = [
        ("crd_strategy/submitted", with_resource_phase(None)),
        ("crd_strategy/in-progress", with_records(with_resource_phase(active()))),
        ("crd_strategy/retried-after-failure", with_records(with_resource_phase(Some(ResourcePhase::Failed)))),
        (
            "crd_strategy/succeeded",
            with_records(with_all_nodes_updated(with_resource_phase(Some(ResourcePhase::Succeeded)))),
        ),
        (
            "crd_strategy/in-progress-after-last-node",
            with_records(with_all_nodes_updated(with_resource_phase(active()))),
        ),
        ("crd_strategy/locked", with_resource_phase(None).with(|s| s.lock = Some("the annotation lock-upgrades"))),
        (
            "crd_strategy/blocked-by-suspended-launch",
            with_resource_phase(None).with_scaling_group(|g| g.suspended_processes = vec!["Launch".into()]),
        ),
        ("crd_strategy/not-installed", missing),
        ("crd_strategy/access-denied", forbidden),
        ("crd_strategy/simulated", with_outdated_nodes()),
        ("crd_strategy/uncordons-own-drains", with_own_drain),
    ];
    for (name, scenario) in scenarios {
        assert_golden(name, &scenario.plan());
    }
}

/// The group was created or changed a while ago, and its first rotation may be months away.
#[test]
fn what_prevents_the_next_upgrade_is_reported_while_no_node_is_outdated() {
    let missing = with_outdated_nodes();
    let request = rendered(&missing);
    let refused = SpecError::invalid("spec.strategy.crd.spec", "Job.batch", "is not an allowed kind", "use another")
        .with_reason(StalledReason::PolicyViolation);
    for (state, reason, part) in [
        (StrategyState::Missing(request), "StrategyKindNotFound", "RollingUpgrade"),
        (StrategyState::Forbidden("not allowed to get it".into()), "MissingPermission", "not allowed to get it"),
        (StrategyState::Refused(refused), "PolicyViolation", "Job.batch"),
    ] {
        let ready =
            with_all_nodes_updated(with_outdated_nodes()).with(|s| s.state.strategy_state = Some(state.clone()));
        let plan = ready.plan();
        assert_eq!(plan.outcome, Outcome::Converged, "its nodes are as they should be");
        let found = plan.condition_updates.iter().find(|update| update.condition_type == "FieldsRejected");
        let found = found.expect("a condition");
        assert!(found.status && found.reason == reason && found.message.contains(part), "{found:?}");
        let rotating = with_outdated_nodes().with(|s| s.state.strategy_state = Some(state));
        let plan = rotating.plan();
        assert!(matches!(plan.outcome, Outcome::Blocked { .. }), "{:?}", plan.outcome);
        assert!(
            plan.condition_updates.iter().all(|update| update.condition_type != "FieldsRejected"),
            "once is enough"
        );
    }
}

/// After a later change to `rollingUpdate`, the controller would cordon nodes beside a resource whose name it does not
/// know. A restore may have lost the status, and a change may have been reverted.
#[test]
fn active_resource_is_recorded_with_its_name() {
    let lost = with_resource_phase(active());
    let other = with_records(with_resource_phase(active()));
    let other = other.with(|s| s.status.strategy_resource_name = Some("web-1".into()));
    for scenario in [lost, other] {
        let fields = scenario.plan().status_update.fields;
        assert_eq!(fields["strategyProgress"]["uid"], "uid-9");
        assert_eq!(fields["strategyResourceName"], rendered(&scenario).name);
    }
}

/// A submission that waits for the budget of a rollout is recorded already. If it counted, it would wait for itself forever.
#[test]
fn only_a_resource_that_exists_uses_the_budget() {
    let of = |scenario: Scenario| scenario.plan().node_usage.expect("a usage");
    let uses = |scenario| of(scenario).unavailable;
    assert_eq!(uses(with_resource_phase(active())), 2);
    assert_eq!(uses(with_records(with_resource_phase(active()))), 2);
    let waiting = of(with_records(with_resource_phase(None)));
    assert_eq!((waiting.unavailable, waiting.batch), (0, Some(2)), "it was recorded, and not submitted");
    assert_eq!(uses(with_records(with_resource_phase(Some(ResourcePhase::Failed)))), 0, "it has ended");
    let unread = with_records(with_outdated_nodes())
        .with(|s| s.state.strategy_state = Some(StrategyState::Forbidden("not allowed to get it".into())));
    assert_eq!(uses(unread), 2, "what cannot be read may replace nodes");
}

/// A removed subnet returns and is removed again: the second upgrade has the resource name of the first. With `maxRetries: 0`,
/// it would fail without a submission.
#[test]
fn upgrade_that_ended_is_no_attempt_of_a_later_one_of_its_name() {
    let no_retries = CRD.replace("maxRetries: 1", "maxRetries: 0");
    let recorded = |scenario: Scenario, progress: Value| {
        with_records(scenario)
            .with_spec(&no_retries)
            .with(|s| s.status.strategy_progress = serde_json::from_value(progress).expect("progress"))
    };
    let succeeded = || json!({"state": "Succeeded", "uid": "uid-9"});
    let seen = || with_resource_phase(Some(ResourcePhase::Succeeded));
    for ended in [
        recorded(with_all_nodes_updated(with_outdated_nodes()), succeeded()),
        recorded(with_all_nodes_updated(seen()), json!({"state": "Submitted", "uid": "uid-9"})),
    ] {
        assert_eq!(ended.plan().status_update.fields["strategyProgress"], json!({}), "the record is cleared");
    }
    let idle = recorded(with_all_nodes_updated(with_outdated_nodes()), json!({}));
    assert!(!needs_observation(&idle.status, 0));
    assert!(!idle.plan().status_update.fields.contains_key("strategyProgress"), "once is enough");
    let again = recorded(seen(), json!({})).plan();
    let names: Vec<_> = again.steps.iter().map(|s| s.step.name()).collect();
    assert_eq!(names, ["UpdateStatus", "DeleteStrategyResource"], "{:?}", again.outcome);
}

/// With `maxRetries: 0`, the same upgrade would be submitted again without anybody's request.
#[test]
fn upgrade_is_not_forgotten_while_a_rejected_field_hides_which_nodes_are_outdated() {
    let recorded = |is_hidden: bool| {
        with_records(with_all_nodes_updated(with_resource_phase(Some(ResourcePhase::Succeeded)))).with(|s| {
            let progress = json!({"state": "Failed", "uid": "uid-9"});
            s.status.strategy_progress = serde_json::from_value(progress).expect("progress");
            s.status.strategy_retry_count = Some(1);
            if is_hidden {
                let error = SpecError::invalid("spec.eks.configuration.image", "x", "is wrong", "correct it");
                s.resolved.broken.push(&[Part::Launch], error);
            }
        })
    };
    let changes = |scenario: Scenario| scenario.plan().status_update.fields;
    assert_eq!(changes(recorded(false))["strategyProgress"], json!({}), "it has ended");
    let hidden = changes(recorded(true));
    assert!(!hidden.contains_key("strategyProgress") && !hidden.contains_key("strategyRetryCount"), "{hidden:?}");
}

/// The spec names `rollingUpdate` again; `view` is how the controller observes the resource that it submitted before.
fn switched_to_rolling_update(view: impl FnOnce(StrategyResource) -> StrategyState) -> Scenario {
    with_records(with_resource_phase(active())).with(|s| {
        let Some(StrategyState::Seen { resources, .. }) = s.state.strategy_state.take() else { panic!("a resource") };
        s.state.strategy_state = Some(view(resources.into_iter().next().expect("a resource")));
        s.resolved.desired.crd_strategy = None;
    })
}

/// Other groups would begin beside the resource, which replaces nodes until it ends.
#[test]
fn active_resource_uses_the_budget_after_the_strategy_changed() {
    let uses = |scenario: Scenario| {
        let usage = scenario.plan().node_usage.expect("a usage");
        assert_eq!(usage.batch, None, "no resource is submitted");
        (usage.unavailable, usage.in_progress.contains("batch"))
    };
    assert_eq!(uses(switched_to_rolling_update(|resource| StrategyState::Left(Some(resource)))), (2, true));
    assert_eq!(uses(switched_to_rolling_update(|_| StrategyState::Left(None))), (0, false), "it has ended");
    assert_eq!(uses(switched_to_rolling_update(|_| StrategyState::Forbidden("no".into()))), (2, true));
    let without_reads = |is_broken: bool| {
        switched_to_rolling_update(|_| StrategyState::Left(None)).with(|s| {
            s.state.strategy_state = None;
            if is_broken {
                let error = SpecError::invalid("spec.strategy.crd.statusJSONPath", "x", "is wrong", "correct it");
                s.resolved.broken.push(&[Part::Rotation], error);
            }
        })
    };
    assert_eq!(uses(without_reads(true)), (2, true), "what is not read may replace nodes");
    assert_eq!(uses(without_reads(false)), (0, false), "the status names no resource");
}

/// Otherwise two controllers would drain nodes of one group at the same time.
#[test]
fn strategy_change_waits_for_active_resource() {
    let cordons = |plan: &Plan| plan.steps.iter().any(|s| s.step.name() == "CordonNode");
    let active_resource = switched_to_rolling_update(|resource| StrategyState::Left(Some(resource)));
    let waiting = active_resource.plan();
    assert!(waiting.steps.is_empty(), "{waiting:?}");
    let Outcome::Progressing { message, .. } = &waiting.outcome else { panic!("{:?}", waiting.outcome) };
    let name = active_resource.status.strategy_resource_name.clone().expect("a name");
    assert!(message.contains("says `running`") && message.contains("2 nodes are outdated"), "{message}");
    let command = format!("kubectl delete rollingupgrades.upgrademgr.keikoproj.io -n team {name}");
    assert!(message.contains(&command), "{message}");
    assert!(!waiting.status_update.fields.contains_key("strategyProgress"), "the resource stays recorded");
    let blocked = switched_to_rolling_update(|_| StrategyState::Forbidden("not allowed to get it".into())).plan();
    assert!(
        matches!(blocked.outcome, Outcome::Blocked { reason: StalledReason::MissingPermission, .. }),
        "{blocked:?}"
    );
    assert!(!cordons(&blocked), "an unreadable resource may still be active");
    let finished = switched_to_rolling_update(|_| StrategyState::Left(None)).plan();
    assert!(cordons(&finished), "{finished:?}");
    assert_eq!(finished.status_update.fields["strategyProgress"], json!({}), "the record is cleared");
}

/// A resource that never reports its end must not keep a group from being Ready.
#[test]
fn group_without_outdated_nodes_is_not_blocked() {
    let seen = [active(), Some(ResourcePhase::Failed), Some(ResourcePhase::Unreadable("an object"))]
        .map(|phase| with_records(with_resource_phase(phase)));
    let views: [fn(&Scenario) -> StrategyState; 2] =
        [|s| StrategyState::Missing(rendered(s)), |_| StrategyState::Forbidden("no".into())];
    let unread =
        views.map(|view| with_records(with_resource_phase(None)).with(|s| s.state.strategy_state = Some(view(s))));
    let left = switched_to_rolling_update(|resource| StrategyState::Left(Some(resource)));
    let unreadable = switched_to_rolling_update(|_| StrategyState::Forbidden("no".into()));
    for scenario in seen.into_iter().chain(unread).chain([left, unreadable]) {
        let plan = with_all_nodes_updated(scenario).plan();
        assert_eq!((plan.outcome, plan.steps), (Outcome::Converged, vec![]));
    }
}

#[test]
fn lock_does_not_stop_active_resource() {
    let plan =
        with_records(with_resource_phase(active())).with(|s| s.lock = Some("the annotation lock-upgrades")).plan();
    assert!(matches!(plan.outcome, Outcome::Progressing { .. }), "{:?}", plan.outcome);
    assert!(plan.steps.is_empty());
}

#[test]
fn scale_in_is_drained_by_the_controller() {
    let plan = with_resource_phase(None)
        .with_scaling_group(|g| (g.desired, g.max) = (2, 2))
        .with(|s| s.resolved.desired.max_size = 1)
        .plan();
    let names: Vec<_> = plan.steps.iter().map(|s| s.step.name()).collect();
    assert!(names.contains(&"CordonNode") && !names.contains(&"CreateStrategyResource"), "{names:?}");
}

/// A resync of an idle group must not read resources. A group that is adopted during an upgrade is observed until its end.
#[test]
fn resources_are_read_only_when_needed() {
    let of = |status: serde_json::Value| serde_json::from_value::<InstanceGroupStatus>(status).expect("a status");
    let ready =
        json!({"currentState": "Ready", "strategyResourceName": "web-1", "strategyProgress": {"state": "Succeeded"}});
    assert!(!needs_observation(&of(json!({})), 0));
    assert!(!needs_observation(&of(ready.clone()), 0));
    assert!(!needs_observation(&of(json!({"currentState": "Ready", "strategyResourceName": "web-1"})), 0));
    assert!(needs_observation(&of(ready), 1));
    assert!(needs_observation(&of(json!({"currentState": "InitUpgrade", "strategyResourceName": "web-1"})), 0));
    assert!(needs_observation(&of(json!({"strategyProgress": {"state": "Submitted"}})), 0));
}

/// The status names the new version only after the reconcile that submits. A Workflow would upgrade nodes to the version
/// before, and a name with the version would be submitted twice.
#[test]
fn template_reads_the_version_that_is_pinned_now() {
    let named = CRD.replace("{{ .InstanceGroup.GetName }}", "web-{{ .InstanceGroup.Status.LatestTemplateVersion }}");
    let names = ["1", "2"].map(|recorded| {
        let scenario = with_outdated_nodes().with_spec(&named);
        rendered(&scenario.with(|s| s.status.latest_template_version = Some(recorded.into()))).name
    });
    assert!(names[0] == names[1] && names[0].starts_with("web-2-"), "{names:?}");
}

#[test]
fn plan_omits_rendered_resource() {
    let plan = with_resource_phase(None).plan();
    assert!(plan.steps.iter().any(|s| matches!(s.step, Step::Strategy(StrategyStep::CreateStrategyResource { .. }))));
    let (text, value) = (format!("{plan:?}"), serde_json::to_string(&plan).expect("JSON"));
    assert!(!text.contains("asgName") && !value.contains("asgName"), "{text}");
}

/// Dashboards of the previous controller rely on this event name.
#[test]
fn failed_upgrade_keeps_its_event_name() {
    let scenario = with_records(with_resource_phase(Some(ResourcePhase::Failed)))
        .with(|s| s.status.strategy_retry_count = Some(1));
    let plan = scenario.plan();
    let Outcome::Blocked { reason: StalledReason::StrategyFailed, message, .. } = &plan.outcome else {
        panic!("{:?}", plan.outcome)
    };
    assert!(message.contains("failed (after 1 retries)") && message.contains("delete it"), "{message}");
    let old = InstanceGroupStatus {
        conditions: vec![Condition::new("Stalled", false, "Rotating", "")],
        ..InstanceGroupStatus::default()
    };
    let steps_done = plan.steps.len();
    let applied = Applied { steps_done, ..Applied::new(plan) };
    let report = instance_manager::controller::report::report(&old, &applied, None, NOW);
    assert!(
        report
            .transition_events
            .iter()
            .any(|e| e.kind == EventKind::Warning && e.reason == "InstanceGroupUpgradeFailed"),
        "{:?}",
        report.transition_events
    );
}
