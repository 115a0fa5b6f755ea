//! Invariants of rolling updates that must hold for arbitrary groups.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn any_member()(
        state in prop_oneof![6 => Just(InstanceState::InService), 1 => Just(InstanceState::Pending), 1 => Just(InstanceState::Terminating), 1 => Just(InstanceState::EnteringStandby), 1 => Just(InstanceState::Standby)],
        joined in prop::bool::weighted(0.9), ready in prop::bool::weighted(0.8), cordoned in prop::bool::weighted(0.2),
        draining in prop::bool::weighted(0.2), outdated: bool, zone in 0u8..3, age in 10i64..5_000,
        weight in prop_oneof![3 => Just(1u32), 1 => 2u32..5],
    ) -> NodeInstance {
        let m = node_instance("x").with(|m| m.instance.weight = weight).state(state).zone(&zone.to_string()).in_service_since(age);
        let m = if outdated { m.outdated() } else { m };
        let m = m.node(|n| (n.ready, n.cordoned) = (ready, cordoned));
        let m = if draining { m.cordoned() } else { m };
        if joined { m } else { m.never_joined() }
    }
}

proptest! {
    #[test]
    fn decision_never_exceeds_max_unavailable(
        mut members in prop::collection::vec(any_member(), 0..12), desired in 0usize..12, max in 1usize..6, are_pods_known in any::<bool>(),
    ) {
        for (i, m) in members.iter_mut().enumerate() {
            m.instance.id = format!("i-{i}");
            m.node.iter_mut().for_each(|n| n.name = format!("node-i-{i}"));
        }
        let names = members.iter().filter_map(|m| m.node.as_ref()).map(|n| (n.name.clone(), DrainView::default()));
        let drains: Drains = if are_pods_known { names.collect() } else { Drains::new() };
        let decision = decide(&RollingUpdateInput { desired, ..input(&members, &drains, max) });
        let weight_of = |members: &mut dyn Iterator<Item = &NodeInstance>| members.map(NodeInstance::weight).sum::<usize>();
        let available = weight_of(&mut members.iter().filter(|m| m.is_available()));
        let is_removed = |m: &&NodeInstance| decision.steps.iter().any(|s| match s {
            NodeStep::CordonNode { instance, .. } | NodeStep::Terminate { instance, .. } => *instance == m.instance.id,
            _ => false,
        });
        let removed_weight = weight_of(&mut members.iter().filter(is_removed).filter(|m| m.is_available()));
        let heaviest = members.iter().filter(is_removed).map(NodeInstance::weight).max().unwrap_or(1);
        prop_assert!(removed_weight == 0 || desired.saturating_sub(available) + removed_weight <= max * heaviest, "{removed_weight} of {available} for {desired}");
        let terminating = members.iter().filter(|m| m.instance.state == InstanceState::Terminating).count();
        let started = members.iter().filter(is_removed).filter(|m| m.disruption_of(UID).is_none()).count();
        let draining = members.iter().filter(|m| m.disruption_of(UID).is_some() && m.instance.state == InstanceState::InService && !m.reasons.is_empty()).count();
        prop_assert!(started == 0 || terminating + draining + started <= max);
        prop_assert!(members.iter().filter(is_removed).all(|m| !m.reasons.is_empty()), "only outdated instances are removed");
        let is_terminated = |m: &NodeInstance| decision.steps.iter().any(|s| matches!(s, NodeStep::Terminate { instance, .. } if *instance == m.instance.id));
        prop_assert!(members.iter().filter(|m| is_terminated(m)).all(|m| m.node.is_none() || m.disruption_of(UID).is_some()), "no node is terminated without its record");
        prop_assert!(!members.iter().any(|m| is_terminated(m) && m.instance.state == InstanceState::EnteringStandby), "AWS refuses it");
    }

    #[test]
    fn rotation_terminates_and_keeps_minimum_available(size in 1usize..9, max in 1usize..5, events in prop::collection::vec(any::<u8>(), 400)) {
        let max = max.min(size);
        let mut members: Vec<_> = (0..size).map(|i| node_instance(&format!("i-{i}")).outdated().zone(&(i % 3).to_string())).collect();
        let mut events = events.into_iter();
        let mut launched = size;
        while members.iter().any(|m| !m.reasons.is_empty()) {
            let Some(event) = events.next() else { prop_assert!(false, "does not finish: {members:?}"); unreachable!() };
            let views: Drains = members.iter().filter(|m| m.disruption_of(UID).is_some()).map(|m| (format!("node-{}", m.instance.id), DrainView::default())).collect();
            // `now` is constant here, so no node would ever be Ready for long enough.
            let min_ready_time = SignedDuration::ZERO;
            for step in decide(&RollingUpdateInput { desired: size, min_ready_time, ..input(&members, &views, max) }).steps {
                match step {
                    NodeStep::CordonNode { instance, .. } => members.iter_mut().filter(|m| m.instance.id == instance).for_each(|m| *m = m.clone().cordoned()),
                    NodeStep::Terminate { instance, .. } => members.iter_mut().filter(|m| m.instance.id == instance).for_each(|m| m.instance.state = InstanceState::Terminating),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            let available = members.iter().filter(|m| m.is_available()).count();
            prop_assert!(available + max >= size, "{available} of {size}");
            let index = usize::from(event) % members.len();
            match members[index].instance.state {
                InstanceState::Terminating => {
                    members.remove(index);
                    members.push(node_instance(&format!("i-{launched}")).in_service_since(30).never_joined());
                    launched += 1;
                }
                _ if members[index].node.is_none() => members[index] = node_instance(&members[index].instance.id.clone()).in_service_since(20),
                _ => {}
            }
        }
    }
}
