//! What may be given back to the controller that was there before.

use instance_manager::provisioner::Handback;
use instance_manager::provisioner::eks::release::handback;

use super::*;

fn judge(world: &World) -> Handback {
    handback(&world.resolved, &world.state, &world.status)
}

#[test]
fn a_group_at_rest_follows_the_newest_version_again() {
    assert_eq!(judge(&plain()), Handback::Follow { template: "lt-1".into(), number: 1, mixed: None });
    let floating = plain().group(|g| g.template.as_mut().expect("a pin").version = "$Latest".into());
    assert!(matches!(judge(&floating), Handback::Nothing(_)));
}

#[test]
fn nothing_is_given_back_in_the_middle_of_a_rotation() {
    assert_eq!(judge(&plain().wants(NEW_IMAGE)), Handback::Rotating("i-1".into()));
    let standing_by = plain().group(|g| g.instances[1].state = InstanceState::Standby);
    assert_eq!(judge(&standing_by), Handback::Rotating("i-2".into()));
    let marked = plain().with(|w| {
        let node = w.state.nodes.get_mut("i-1").expect("a node");
        let since = at(LONG_AGO);
        node.disruption =
            Some(Disruption { group: "uid-1".into(), template_version: "1".into(), since, cordoned_before: false });
    });
    assert_eq!(judge(&marked), Handback::Rotating("i-1".into()));
}

#[test]
fn a_group_that_would_launch_something_else_is_not_given_back() {
    let behind = plain().with(|w| w.state.template.as_mut().expect("a template").latest_version = 2);
    assert_eq!(judge(&behind), Handback::Older { number: 1, latest: 2 });
    let theirs = plain().group(|g| g.tags.clear());
    assert!(matches!(judge(&theirs), Handback::Nothing(_)));
}
