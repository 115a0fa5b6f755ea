//! Groups that launch from a launch configuration: kept, converted, and told.

use instance_manager::aws::TemplateData;
use instance_manager::plan::EksStep;
use instance_manager::plan::{ObjectStep, Outcome, Step};

use super::*;

pub const FOUND: &str = "demo-team-web-20250101000000";

/// As the other controller left it: from a launch configuration, and nothing remembered.
fn found() -> World {
    plain()
        .with(|w| {
            w.state.configuration = Some(w.resolved.data.clone());
            w.status = InstanceGroupStatus::default();
            w.status.active_launch_configuration_name = Some(FOUND.into());
            (w.state.template, w.state.versions) = (None, BTreeMap::new());
        })
        .group(|g| {
            (g.template, g.launch_configuration) = (None, Some(FOUND.into()));
            for instance in &mut g.instances {
                (instance.template, instance.configuration) = (None, Some(FOUND.into()));
            }
        })
}

/// The same, once it was seen.
fn taken_over() -> World {
    let mut world = found();
    remember(&mut world);
    world
}

/// Takes what a plan records and tells into the status.
fn remember(world: &mut World) {
    let plan = world.plan();
    let mut status = json!(world.status);
    for planned in &plan.steps {
        if let Step::Object(ObjectStep::Record { status: recorded }) = &planned.step {
            overlay(&mut status, recorded);
        }
    }
    overlay(&mut status, &json!(plan.facts.status));
    world.status = serde_json::from_value(status).expect("a status");
}

const LATER: &str = "demo-team-web-20260101120000";

/// The group was switched to another configuration, which its old nodes do not run.
fn switched() -> World {
    taken_over().group(|g| g.launch_configuration = Some(LATER.into())).with(|w| {
        w.state.configuration.as_mut().expect("it is known").image_id = "ami-00000009".into();
    })
}

/// On the way: the group has its template, one instance still runs the configuration.
fn converted() -> World {
    taken_over().wants(NEW_IMAGE).with(|w| {
        let stood = plain().wants(NEW_IMAGE);
        w.state.template = stood.state.template;
        let version =
            Version { fingerprint: Some(w.resolved.fingerprint.clone()), data: Some(w.resolved.data.clone()) };
        w.state.versions = [(1, version)].into();
        let group = w.state.group.as_mut().expect("a group");
        let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
        (group.template, group.launch_configuration) = (Some(pin.clone()), None);
        (group.instances[0].template, group.instances[0].configuration) = (Some(pin), None);
    })
}

#[test]
fn plans_are_what_the_golden_files_hold() {
    let asked = resolved("eks: {type: launchconfiguration}", &[]);
    let scenarios = [
        ("configuration-asked-for-by-a-new-group", fresh(asked)),
        (
            "configuration-taken-over",
            found().with(|w| w.state.configuration.as_mut().expect("it is known").key_name = Some("old".into())),
        ),
        ("configuration-kept", taken_over()),
        ("configuration-kept-and-scaled", taken_over().wants("eks: {minSize: 1, maxSize: 6}")),
        ("configuration-replaced", taken_over().wants(NEW_IMAGE)),
        ("configuration-rotates", converted()),
        (
            "configuration-of-another-controller-that-led-in-between",
            switched().with(|w| {
                w.status.active_launch_configuration_name = Some(LATER.into());
            }),
        ),
        ("configuration-that-a-person-put-there", switched()),
        ("configuration-deleted", converted().group(|g| _ = g.instances.remove(1))),
    ];
    for (name, world) in scenarios {
        hold(name, &world.plan());
    }
}

#[test]
fn a_configuration_that_is_kept_costs_nothing() {
    let world = taken_over();
    assert_eq!((world.plan().steps, world.plan().outcome), (vec![], Outcome::Converged));
    assert_eq!(world.status.template.as_ref().and_then(|t| t.adopted_version.as_deref()), Some(FOUND));
}

#[test]
fn a_lost_answer_on_the_way_to_the_template_makes_no_second_one() {
    let mut world = taken_over().wants(NEW_IMAGE);
    let stood = converted();
    (world.state.template, world.state.versions) = (stood.state.template, stood.state.versions);
    let steps = world.plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::UpdateGroup { pin: Some(_), .. })), "{steps:?}");
}

#[test]
fn rotate_at_replaces_the_configuration_too() {
    let mut world = taken_over().with(|w| w.resolved = resolved("{}", &[("rotate-at", NOW)]));
    world.state.launched = ["i-1", "i-2"].map(|id| (id.to_owned(), at(LONG_AGO))).into();
    let steps = world.plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::CreateTemplate(_))), "{steps:?}");
    assert_eq!(steps[0].because[0].field, "rotate-at");
}

#[test]
fn a_mixed_policy_needs_the_template() {
    let mixed = "eks: {configuration: {mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}]}}}";
    let steps = taken_over().wants(mixed).plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::CreateTemplate(_))), "{steps:?}");
    let Step::Eks(EksStep::UpdateGroup { change, .. }) = &steps[1].step else { panic!("{steps:?}") };
    assert!(change.mixed.is_some());
    // One that was there at the takeover already changes nothing.
    let mut asked = found().wants(mixed);
    remember(&mut asked);
    assert_eq!(asked.plan().steps, vec![]);
}

#[test]
fn a_configuration_of_another_name_is_never_deleted() {
    let mut world = found().group(|g| {
        g.launch_configuration = Some("golden".into());
        g.instances.iter_mut().for_each(|i| i.configuration = Some("golden".into()));
    });
    remember(&mut world);
    assert_eq!(world.status.managed.as_ref().map(|m| m.configurations.clone()), Some(vec![]));
    // Its content is not known any more, either.
    world.state.configuration = None::<TemplateData>;
    let replaced = world.wants(NEW_IMAGE).plan();
    assert!(
        !replaced.steps.iter().any(|s| matches!(s.step, Step::Eks(EksStep::DeleteConfiguration { .. }))),
        "{replaced:?}"
    );
}
