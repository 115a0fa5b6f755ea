//! What may be given back to the controller that was there before.

use instance_manager::provisioner::Release;
use instance_manager::provisioner::eks::release::release;

use super::*;

fn plan_release(world: &Scenario) -> Release {
    release(&world.resolved, &world.state, &world.status)
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
    let standing_by = converged().with_scaling_group(|g| g.instances[1].state = InstanceState::Standby);
    assert_eq!(plan_release(&standing_by), Release::RotationInProgress("i-2".into()));
    let marked = converged().with(|w| {
        let node = w.state.nodes.get_mut("i-1").expect("a node");
        let since = timestamp(LONG_AGO);
        node.disruption = Some(DisruptionRecord {
            group: "uid-1".into(),
            template_version: "1".into(),
            since,
            cordoned_before: false,
        });
    });
    assert_eq!(plan_release(&marked), Release::RotationInProgress("i-1".into()));
}

#[test]
fn release_is_refused_when_launch_would_change() {
    let behind = converged().with(|w| w.state.template.as_mut().expect("a template").latest_version = 2);
    assert_eq!(plan_release(&behind), Release::PinnedToOlderVersion { number: 1, latest: 2 });
    let theirs = converged().with_scaling_group(|g| g.tags.clear());
    assert!(matches!(plan_release(&theirs), Release::NotNeeded(_)));
}
