//! The strategy `crd`: a resource is submitted, waited for and believed only so far.

use instance_manager::api::Condition;
use instance_manager::plan::{Step, StrategyStep};
use instance_manager::provisioner::eks::observed::StrategyView;
use instance_manager::provisioner::eks::rotation::crd_strategy::{asked, request};
use instance_manager::rotation::crd::decide::{Phase, Resource};
use instance_manager::rotation::crd::{Request, ResourceKind};

use super::*;

const CRD: &str = "{strategy: {type: crd, crd: {crdName: rollingupgrades, statusJSONPath: .status.currentStatus, statusSuccessString: completed, statusFailureString: error, maxRetries: 1, spec: \"{apiVersion: upgrademgr.keikoproj.io/v1alpha1, kind: RollingUpgrade, metadata: {name: '{{ .InstanceGroup.GetName }}', namespace: '{{ .InstanceGroup.GetNamespace }}'}, spec: {asgName: '{{ .InstanceGroup.Status.ActiveScalingGroupName }}'}}\"}}, eks: {configuration: {image: ami-00000002}}}";

/// A new version is pinned, the nodes run the old one, and nobody has looked at resources yet.
fn changed() -> World {
    plain()
        .wants(CRD)
        .with(|w| {
            let newer =
                Version { fingerprint: Some(w.resolved.fingerprint.clone()), data: Some(w.resolved.data.clone()) };
            w.state.versions.insert(2, newer);
            w.state.template.as_mut().expect("a template").latest_version = 2;
        })
        .group(|g| g.template.as_mut().expect("a pin").version = "2".into())
}

fn rendered(w: &World) -> Request {
    let crd = w.resolved.wanted.crd.as_ref().expect("the strategy crd");
    request(crd, &w.resolved, &w.state, &w.status, w.state.group.as_ref().expect("a group")).expect("it renders")
}

/// The same, with the resource of the wanted name in a phase, or none.
fn looked(phase: Option<Phase>) -> World {
    changed().with(|w| {
        let request = rendered(w);
        let kind = ResourceKind {
            group: request.group.clone(),
            version: request.version.clone(),
            kind: request.kind.clone(),
            plural: "rollingupgrades".into(),
        };
        let resources = phase.into_iter().map(|phase| Resource {
            kind: kind.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            uid: "uid-9".into(),
            created: Some(at(LONG_AGO)),
            ours: true,
            deleting: false,
            phase,
        });
        w.state.strategy = Some(StrategyView::Seen { resources: resources.collect(), request, kind });
    })
}

/// The status remembers that it was submitted and seen.
fn remembered(world: World) -> World {
    world.with(|w| {
        let request = rendered(w);
        w.status.current_state = Some("InitUpgrade".into());
        w.status.strategy_resource_name = Some(request.name);
        w.status.strategy_resource_namespace = Some(request.namespace);
        w.status.strategy_progress =
            serde_json::from_value(json!({"state": "Submitted", "uid": "uid-9"})).expect("progress");
    })
}

fn all_new(world: World) -> World {
    world.group(|g| g.instances.iter_mut().for_each(|i| i.template.as_mut().expect("a pin").version = "2".into()))
}

fn active() -> Option<Phase> {
    Some(Phase::Active("running".into()))
}

#[test]
fn plans_are_what_the_golden_files_hold() {
    let missing = changed().with(|w| w.state.strategy = Some(StrategyView::Missing(rendered(w))));
    let forbidden = changed().with(|w| {
        let message = "not allowed to get rollingupgrades.upgrademgr.keikoproj.io: no";
        w.state.strategy = Some(StrategyView::Forbidden(message.into()));
    });
    let drained_before = looked(None).with(|w| {
        let mark = Disruption {
            group: "uid-1".into(),
            template_version: "2".into(),
            since: at(LONG_AGO),
            cordoned_before: false,
        };
        w.state.nodes.get_mut("i-1").expect("a node").disruption = Some(mark);
    });
    let worlds = [
        ("crd-is-submitted", looked(None)),
        ("crd-is-waited-for", remembered(looked(active()))),
        ("crd-failed-and-is-retried", remembered(looked(Some(Phase::Failed)))),
        ("crd-succeeds", remembered(all_new(looked(Some(Phase::Succeeded))))),
        ("crd-works-on-after-the-last-node", remembered(all_new(looked(active())))),
        ("crd-is-held-by-a-lock", looked(None).with(|w| w.lock = Some("the annotation lock-upgrades"))),
        ("crd-is-held-while-launch-is-suspended", looked(None).group(|g| g.suspended = vec!["Launch".into()])),
        ("crd-is-not-installed", missing),
        ("crd-may-not-be-looked-at", forbidden),
        ("crd-foreseen", changed()),
        ("crd-gives-back-what-the-controller-drained-itself", drained_before),
    ];
    for (name, world) in worlds {
        hold(name, &world.plan());
    }
}

/// The spec says `rollingUpdate` again; what was submitted before is, as the controller sees it, `view`.
fn switched(view: impl FnOnce(Resource) -> StrategyView) -> World {
    remembered(looked(active())).with(|w| {
        let Some(StrategyView::Seen { resources, .. }) = w.state.strategy.take() else { panic!("a resource") };
        w.state.strategy = Some(view(resources.into_iter().next().expect("a resource")));
        w.resolved.wanted.crd = None;
    })
}

/// Else two would take nodes of one group at once.
#[test]
fn after_a_change_to_rolling_update_the_resource_that_is_at_work_is_waited_for() {
    let cordons = |plan: &Plan| plan.steps.iter().any(|s| s.step.name() == "MarkNode");
    let left = switched(|resource| StrategyView::Left(Some(resource)));
    let waiting = left.plan();
    assert!(waiting.steps.is_empty(), "{waiting:?}");
    let Outcome::Progressing { message, .. } = &waiting.outcome else { panic!("{:?}", waiting.outcome) };
    let name = left.status.strategy_resource_name.clone().expect("a name");
    assert!(message.contains("says `running`") && message.contains("2 nodes are outdated"), "{message}");
    let command = format!("kubectl delete rollingupgrades.upgrademgr.keikoproj.io -n team {name}");
    assert!(message.contains(&command), "{message}");
    assert!(!waiting.facts.status.contains_key("strategyProgress"), "it stays remembered");
    let blocked = switched(|_| StrategyView::Forbidden("not allowed to get it".into())).plan();
    assert!(matches!(blocked.outcome, Outcome::Blocked { reason: Reason::MissingPermission, .. }), "{blocked:?}");
    assert!(!cordons(&blocked), "what cannot be looked at may be at work");
    let ended = switched(|_| StrategyView::Left(None)).plan();
    assert!(cordons(&ended), "{ended:?}");
    assert_eq!(ended.facts.status["strategyProgress"], json!({}), "and nothing is looked at any more");
}

#[test]
fn a_lock_stops_no_resource_that_is_at_work() {
    let plan = remembered(looked(active())).with(|w| w.lock = Some("the annotation lock-upgrades")).plan();
    assert!(matches!(plan.outcome, Outcome::Progressing { .. }), "{:?}", plan.outcome);
    assert!(plan.steps.is_empty());
}

#[test]
fn a_surplus_is_drained_by_the_controller_itself() {
    let plan = looked(None).group(|g| (g.desired, g.max) = (2, 2)).with(|w| w.resolved.wanted.max = 1).plan();
    let names: Vec<_> = plan.steps.iter().map(|s| s.step.name()).collect();
    assert!(names.contains(&"MarkNode") && !names.contains(&"SubmitStrategy"), "{names:?}");
}

/// A quiet resync must cost no read for each group, and a group that was taken over in the middle is followed to its end.
#[test]
fn resources_are_looked_at_only_while_there_is_a_reason() {
    let of = |status: serde_json::Value| serde_json::from_value::<InstanceGroupStatus>(status).expect("a status");
    let ready =
        json!({"currentState": "Ready", "strategyResourceName": "web-1", "strategyProgress": {"state": "Succeeded"}});
    assert!(!asked(&of(json!({})), 0));
    assert!(!asked(&of(ready.clone()), 0));
    assert!(!asked(&of(json!({"currentState": "Ready", "strategyResourceName": "web-1"})), 0));
    assert!(asked(&of(ready), 1));
    assert!(asked(&of(json!({"currentState": "InitUpgrade", "strategyResourceName": "web-1"})), 0));
    assert!(asked(&of(json!({"strategyProgress": {"state": "Submitted"}})), 0));
}

#[test]
fn the_rendered_resource_is_not_printed_with_the_plan() {
    let plan = looked(None).plan();
    assert!(plan.steps.iter().any(|s| matches!(s.step, Step::Strategy(StrategyStep::SubmitStrategy { .. }))));
    let (text, value) = (format!("{plan:?}"), serde_json::to_string(&plan).expect("JSON"));
    assert!(!text.contains("asgName") && !value.contains("asgName"), "{text}");
}

/// Without it, a failure would be told as any other stall, and dashboards of the controller before this one miss it.
#[test]
fn a_failed_upgrade_is_told_under_its_old_event() {
    let world = remembered(looked(Some(Phase::Failed))).with(|w| w.status.strategy_retry_count = Some(1));
    let plan = world.plan();
    let Outcome::Blocked { reason: Reason::StrategyFailed, message, .. } = &plan.outcome else {
        panic!("{:?}", plan.outcome)
    };
    assert!(message.contains("failed (after 1 retries)") && message.contains("delete it"), "{message}");
    let old = InstanceGroupStatus {
        conditions: vec![Condition::new("Stalled", false, "Rotating", "")],
        ..InstanceGroupStatus::default()
    };
    let applied = instance_manager::apply::Applied {
        done: plan.steps.len(),
        stopped: None,
        refusals: vec![],
        untagged: vec![],
        resource_version: None,
        plan,
    };
    let report = instance_manager::controller::report::report(&old, &applied, None, NOW);
    assert!(report.events.iter().any(|e| e.warning && e.reason == "InstanceGroupUpgradeFailed"), "{:?}", report.events);
}
