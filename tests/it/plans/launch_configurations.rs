//! Groups that launch from a launch configuration: adopted, kept, and migrated to a launch template.

use instance_manager::aws::TemplateData;
use instance_manager::plan::EksStep;
use instance_manager::plan::{ObjectStep, Outcome, Step};

use super::*;

pub const FOUND: &str = "demo-team-web-20250101000000";

/// A group that Keiko controller created: it launches from a launch configuration, and the status has no record.
fn created_by_keiko() -> Scenario {
    converged()
        .with(|s| {
            s.state.launch_configuration = Some(s.resolved.template_data.clone());
            s.status = InstanceGroupStatus::default();
            s.status.active_launch_configuration_name = Some(FOUND.into());
            (s.state.template, s.state.versions) = (None, BTreeMap::new());
        })
        .with_scaling_group(|g| {
            (g.template, g.launch_configuration) = (None, Some(FOUND.into()));
            for instance in &mut g.instances {
                (instance.template, instance.launch_configuration) = (None, Some(FOUND.into()));
            }
        })
}

/// The same group after its adoption.
fn adopted() -> Scenario {
    let mut scenario = created_by_keiko();
    apply_records(&mut scenario);
    scenario
}

/// Merges the records and the status update of a plan into the status.
fn apply_records(scenario: &mut Scenario) {
    let plan = scenario.plan();
    let mut status = json!(scenario.status);
    for planned in &plan.steps {
        if let Step::Object(ObjectStep::UpdateStatus { status: recorded }) = &planned.step {
            deep_merge(&mut status, recorded);
        }
    }
    deep_merge(&mut status, &json!(plan.status_update.fields));
    scenario.status = serde_json::from_value(status).expect("a status");
}

const REPLACEMENT: &str = "demo-team-web-20260101120000";

/// Another controller switched the group to another configuration, which its old nodes do not run.
fn replaced_by_other_controller() -> Scenario {
    adopted().with_scaling_group(|g| g.launch_configuration = Some(REPLACEMENT.into())).with(|s| {
        s.state.launch_configuration.as_mut().expect("its content").image_id = "ami-00000009".into();
    })
}

/// During the migration: the group has its template, and one instance still runs the configuration.
fn migrated() -> Scenario {
    adopted().with_spec(NEW_IMAGE).with(|s| {
        let target = converged().with_spec(NEW_IMAGE);
        s.state.template = target.state.template;
        let version =
            ObservedVersion::new(Some(s.resolved.fingerprint.clone()), Some(s.resolved.template_data.clone()));
        s.state.versions = [(1, version)].into();
        let group = s.state.scaling_group.as_mut().expect("a group");
        let pin = TemplatePin { id: "lt-1".into(), version: "1".into() };
        (group.template, group.launch_configuration) = (Some(pin.clone()), None);
        (group.instances[0].template, group.instances[0].launch_configuration) = (Some(pin), None);
    })
}

#[test]
fn plans_match_golden_files() {
    let requested = resolved("eks: {type: launchconfiguration}", &[]);
    let scenarios = [
        ("launch_configuration/for-new-group", new_group(requested)),
        (
            "launch_configuration/adopted",
            created_by_keiko()
                .with(|s| s.state.launch_configuration.as_mut().expect("its content").key_name = Some("old".into())),
        ),
        ("launch_configuration/kept", adopted()),
        ("launch_configuration/kept-and-scaled", adopted().with_spec("eks: {minSize: 1, maxSize: 6}")),
        ("launch_configuration/replaced", adopted().with_spec(NEW_IMAGE)),
        ("launch_configuration/rotation", migrated()),
        (
            "launch_configuration/changed-by-other-controller",
            replaced_by_other_controller().with(|s| {
                s.status.active_launch_configuration_name = Some(REPLACEMENT.into());
            }),
        ),
        ("launch_configuration/set-manually", replaced_by_other_controller()),
        ("launch_configuration/deleted", migrated().with_scaling_group(|g| _ = g.instances.remove(1))),
    ];
    for (name, scenario) in scenarios {
        assert_golden(name, &scenario.plan());
    }
}

#[test]
fn kept_launch_configuration_plans_nothing() {
    let scenario = adopted();
    assert_eq!((scenario.plan().steps, scenario.plan().outcome), (vec![], Outcome::Converged));
    assert_eq!(scenario.status.template.as_ref().and_then(|t| t.adopted_version.as_deref()), Some(FOUND));
}

#[test]
fn retried_migration_creates_one_template() {
    let mut scenario = adopted().with_spec(NEW_IMAGE);
    let target = migrated();
    (scenario.state.template, scenario.state.versions) = (target.state.template, target.state.versions);
    let steps = scenario.plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::UpdateGroup { pin: Some(_), .. })), "{steps:?}");
}

#[test]
fn rotate_at_migrates_the_launch_configuration() {
    let mut scenario = adopted().with(|s| s.resolved = resolved("{}", &[("rotate-at", NOW)]));
    scenario.state.launch_times = ["i-1", "i-2"].map(|id| (id.to_owned(), timestamp(LONG_AGO))).into();
    let steps = scenario.plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::CreateTemplate(_))), "{steps:?}");
    assert_eq!(steps[0].reasons[0].field, "rotate-at");
}

#[test]
fn mixed_policy_requires_launch_template() {
    let mixed = "eks: {configuration: {mixedInstancesPolicy: {instanceTypes: [{type: m5a.large}]}}}";
    let steps = adopted().with_spec(mixed).plan().steps;
    assert!(matches!(steps[0].step, Step::Eks(EksStep::CreateTemplate(_))), "{steps:?}");
    let Step::Eks(EksStep::UpdateGroup { change, .. }) = &steps[1].step else { panic!("{steps:?}") };
    assert!(change.mixed.is_some());
    // A policy that the spec already had at the adoption changes nothing.
    let mut unchanged = created_by_keiko().with_spec(mixed);
    apply_records(&mut unchanged);
    assert_eq!(unchanged.plan().steps, vec![]);
}

#[test]
fn foreign_launch_configuration_is_never_deleted() {
    let mut scenario = created_by_keiko().with_scaling_group(|g| {
        g.launch_configuration = Some("golden".into());
        g.instances.iter_mut().for_each(|i| i.launch_configuration = Some("golden".into()));
    });
    apply_records(&mut scenario);
    assert_eq!(scenario.status.managed.as_ref().map(|m| m.configurations.clone()), Some(vec![]));
    // Its content is no longer read, either.
    scenario.state.launch_configuration = None::<TemplateData>;
    let replaced = scenario.with_spec(NEW_IMAGE).plan();
    assert!(
        !replaced.steps.iter().any(|s| matches!(s.step, Step::Eks(EksStep::DeleteConfiguration { .. }))),
        "{replaced:?}"
    );
}
