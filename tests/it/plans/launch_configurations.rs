//! Groups that launch from a launch configuration: kept, converted, and told.

use instance_manager::aws::TemplateData;
use instance_manager::plan::EksStep;
use instance_manager::plan::{ObjectStep, Outcome, Step};

use super::*;

pub const FOUND: &str = "demo-team-web-20250101000000";

/// As the other controller left it: from a launch configuration, and nothing remembered.
fn found() -> Scenario {
    converged()
        .with(|w| {
            w.state.launch_configuration = Some(w.resolved.template_data.clone());
            w.status = InstanceGroupStatus::default();
            w.status.active_launch_configuration_name = Some(FOUND.into());
            (w.state.template, w.state.versions) = (None, BTreeMap::new());
        })
        .with_scaling_group(|g| {
            (g.template, g.launch_configuration) = (None, Some(FOUND.into()));
            for instance in &mut g.instances {
                (instance.template, instance.launch_configuration) = (None, Some(FOUND.into()));
            }
        })
}

/// The same, once it was seen.
fn taken_over() -> Scenario {
    let mut world = found();
    apply_records(&mut world);
    world
}

/// Takes what a plan records and tells into the status.
fn apply_records(world: &mut Scenario) {
    let plan = world.plan();
    let mut status = json!(world.status);
    for planned in &plan.steps {
        if let Step::Object(ObjectStep::UpdateStatus { status: recorded }) = &planned.step {
            deep_merge(&mut status, recorded);
        }
    }
    deep_merge(&mut status, &json!(plan.status_update.fields));
    world.status = serde_json::from_value(status).expect("a status");
}

const REPLACEMENT: &str = "demo-team-web-20260101120000";

/// The group was switched to another configuration, which its old nodes do not run.
fn replaced_by_other_controller() -> Scenario {
    taken_over().with_scaling_group(|g| g.launch_configuration = Some(REPLACEMENT.into())).with(|w| {
        w.state.launch_configuration.as_mut().expect("it is known").image_id = "ami-00000009".into();
    })
}

/// On the way: the group has its template, one instance still runs the configuration.
fn migrated() -> Scenario {
    taken_over().with_spec(NEW_IMAGE).with(|w| {
        let stood = converged().with_spec(NEW_IMAGE);
        w.state.template = stood.state.template;
        let version = ObservedVersion {
            fingerprint: Some(w.resolved.fingerprint.clone()),
            data: Some(w.resolved.template_data.clone()),
        };
        w.state.versions = [(1, version)].into();
        let group = w.state.scaling_group.as_mut().expect("a group");
        let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
        (group.template, group.launch_configuration) = (Some(pin.clone()), None);
        (group.instances[0].template, group.instances[0].launch_configuration) = (Some(pin), None);
    })
}

#[test]
fn plans_match_golden_files() {
    let asked = resolved("eks: {type: launchconfiguration}", &[]);
    let scenarios = [
        ("launch_configuration/for-new-group", new_group(asked)),
        (
            "launch_configuration/adopted",
            found().with(|w| w.state.launch_configuration.as_mut().expect("it is known").key_name = Some("old".into())),
        ),
        ("launch_configuration/kept", taken_over()),
        ("launch_configuration/kept-and-scaled", taken_over().with_spec("eks: {minSize: 1, maxSize: 6}")),
        ("launch_configuration/replaced", taken_over().with_spec(NEW_IMAGE)),
        ("launch_configuration/rotation", migrated()),
        (
            "launch_configuration/changed-by-other-controller",
            replaced_by_other_controller().with(|w| {
                w.status.active_launch_configuration_name = Some(REPLACEMENT.into());
            }),
        ),
        ("launch_configuration/set-manually", replaced_by_other_controller()),
        ("launch_configuration/deleted", migrated().with_scaling_group(|g| _ = g.instances.remove(1))),
    ];
    for (name, world) in scenarios {
        assert_golden(name, &world.plan());
    }
}

#[test]
fn kept_launch_configuration_plans_nothing() {
    let world = taken_over();
    assert_eq!((world.plan().steps, world.plan().outcome), (vec![], Outcome::Converged));
    assert_eq!(world.status.template.as_ref().and_then(|t| t.adopted_version.as_deref()), Some(FOUND));
}

#[test]
fn retried_migration_creates_one_template() {
    let mut world = taken_over().with_spec(NEW_IMAGE);
    let stood = migrated();
    (world.state.template, world.state.versions) = (stood.state.template, stood.state.versions);
    let steps = world.plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::UpdateGroup { pin: Some(_), .. })), "{steps:?}");
}

#[test]
fn rotate_at_migrates_the_launch_configuration() {
    let mut world = taken_over().with(|w| w.resolved = resolved("{}", &[("rotate-at", NOW)]));
    world.state.launch_times = ["i-1", "i-2"].map(|id| (id.to_owned(), timestamp(LONG_AGO))).into();
    let steps = world.plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::CreateTemplate(_))), "{steps:?}");
    assert_eq!(steps[0].reasons[0].field, "rotate-at");
}

#[test]
fn mixed_policy_requires_launch_template() {
    let mixed = "eks: {configuration: {mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}]}}}";
    let steps = taken_over().with_spec(mixed).plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::CreateTemplate(_))), "{steps:?}");
    let Step::Eks(EksStep::UpdateGroup { change, .. }) = &steps[1].step else { panic!("{steps:?}") };
    assert!(change.mixed.is_some());
    // One that was there at the takeover already changes nothing.
    let mut asked = found().with_spec(mixed);
    apply_records(&mut asked);
    assert_eq!(asked.plan().steps, vec![]);
}

#[test]
fn foreign_launch_configuration_is_never_deleted() {
    let mut world = found().with_scaling_group(|g| {
        g.launch_configuration = Some("golden".into());
        g.instances.iter_mut().for_each(|i| i.launch_configuration = Some("golden".into()));
    });
    apply_records(&mut world);
    assert_eq!(world.status.managed.as_ref().map(|m| m.configurations.clone()), Some(vec![]));
    // Its content is not known any more, either.
    world.state.launch_configuration = None::<TemplateData>;
    let replaced = world.with_spec(NEW_IMAGE).plan();
    assert!(
        !replaced.steps.iter().any(|s| matches!(s.step, Step::Eks(EksStep::DeleteConfiguration { .. }))),
        "{replaced:?}"
    );
}
