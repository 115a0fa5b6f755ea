//! Which groups can be released to the previous controller.

use instance_manager::provisioner::Release;
use instance_manager::provisioner::eks::release::release;

use super::*;

fn plan_release(scenario: &Scenario) -> Release {
    release(&scenario.resolved, &scenario.state, &scenario.status)
}

#[test]
fn converged_group_follows_latest_version() {
    assert_eq!(plan_release(&converged()), Release::FollowLatest { template: "lt-1".into(), number: 1, mixed: None });
    let floating = converged().with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "$Latest".into());
    assert!(matches!(plan_release(&floating), Release::NotNeeded(_)));
}

#[test]
fn release_is_refused_during_rotation() {
    assert_eq!(plan_release(&converged().with_spec(NEW_IMAGE)), Release::RotationInProgress("i-1".into()));
    let in_standby = converged().with_scaling_group(|g| g.instances[1].state = InstanceState::Standby);
    assert_eq!(plan_release(&in_standby), Release::RotationInProgress("i-2".into()));
    let draining = converged().with(|s| {
        let node = s.state.nodes.get_mut("i-1").expect("a node");
        node.disruption = Some(disruption_record("1"));
    });
    assert_eq!(plan_release(&draining), Release::RotationInProgress("i-1".into()));
}

#[test]
fn release_is_refused_when_launch_would_change() {
    let behind = converged().with(|s| s.state.template.as_mut().expect("a template").latest_version = 2);
    assert_eq!(plan_release(&behind), Release::PinnedToOlderVersion { number: 1, latest: 2 });
    let untagged = converged().with_scaling_group(|g| g.tags.clear());
    assert!(matches!(plan_release(&untagged), Release::NotNeeded(_)));
}

/// A broken field leaves open which nodes are outdated. The Keiko controller would replace them all at once.
#[test]
fn group_whose_outdated_nodes_are_not_known_is_not_released() {
    for part in [&[Part::Launch], &[Part::Subnets], &[Part::Rotation]] as [&'static [Part]; 3] {
        let problem = SpecError::invalid("spec.eks.configuration.image", "ami-x", "is not an AMI", "correct it");
        let broken = converged().with(|s| s.resolved.broken.push(part, problem));
        let Release::Skipped(why) = plan_release(&broken) else { panic!("{:?}", plan_release(&broken)) };
        assert!(why.contains("ami-x"), "{why}");
    }
    let tags = SpecError::invalid("spec.eks.configuration.tags", "x", "is not a tag", "correct it");
    let broken = converged().with(|s| s.resolved.broken.push(&[Part::Tags], tags));
    assert!(matches!(plan_release(&broken), Release::FollowLatest { .. }), "no node depends on it");
}
