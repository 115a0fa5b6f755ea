//! What a group says about nodes that are missing or not Ready: the object, the cause, the remedy and the time.

use instance_manager::aws::ScalingActivity;
use instance_manager::rotation::LostNode;

use super::*;

/// Reason and message of a plan that needs a person.
fn stalled(plan: &Plan) -> (StalledReason, &str) {
    match &plan.outcome {
        Outcome::Blocked { reason, message, .. } => (*reason, message),
        other => panic!("the plan is not blocked: {other:?}"),
    }
}

/// The message of a plan that waits.
fn wait(plan: &Plan) -> &str {
    match &plan.outcome {
        Outcome::Progressing { message, .. } => message,
        other => panic!("the plan does not wait: {other:?}"),
    }
}

fn assert_names(message: &str, words: &[&str]) {
    let missing: Vec<_> = words.iter().filter(|word| !message.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:?} are not in: {message}");
}

/// A group whose second node changes in this way.
fn with_second_node(change: impl FnOnce(&mut NodeView)) -> Scenario {
    converged().with(|s| change(s.state.nodes.get_mut("i-2").expect("a node")))
}

fn silent_since(time: &'static str) -> Scenario {
    with_second_node(|node| {
        (node.ready, node.kubelet_silent, node.ready_changed_at) = (false, true, Some(timestamp(time)))
    })
}

/// It was Ready for a day: neither its image nor its user data keep it from joining.
#[test]
fn dead_kubelet_is_named_with_its_time_before_the_group_is_stalled() {
    let soon = silent_since("2026-01-01T23:59:00Z").plan();
    assert_names(wait(&soon), &["node-i-2 (i-2)", "silent since 2026-01-01T23:59:00Z", "5m"]);
    let late = silent_since("2026-01-01T23:54:00Z").plan();
    let (reason, message) = stalled(&late);
    assert_eq!(reason, StalledReason::NodesNotReady);
    assert_names(message, &["node-i-2 (i-2)", "silent since 2026-01-01T23:54:00Z", "longer than 5m", "terminate"]);
    assert!(!message.contains("join") && !message.contains("image"), "{message}");
}

#[test]
fn instance_that_never_joined_has_the_limit_of_the_spec() {
    let joining = |time: &'static str| {
        converged().with(|s| _ = s.state.nodes.remove("i-2")).with_scaling_group(|g| {
            g.instances[1].in_service_since = Some(timestamp(time));
        })
    };
    let soon = joining("2026-01-01T23:50:00Z").plan();
    assert_names(wait(&soon), &["i-2", "since 2026-01-01T23:50:00Z", "not joined", "15m (joinTimeout)"]);
    let late = joining("2026-01-01T23:40:00Z").plan();
    assert_names(stalled(&late).1, &["i-2", "not joined", "15m", "image", "user data", "kube-system/aws-auth"]);
}

/// Its Node is deleted before Auto Scaling notices that the instance was terminated.
#[test]
fn deleted_node_of_an_instance_that_ran_for_long_is_not_a_failed_join() {
    let lost = LostNode { name: "node-i-2".into(), since: timestamp("2026-01-01T23:59:00Z") };
    let scenario = converged().with(|s| {
        s.state.nodes.remove("i-2");
        s.state.lost_nodes.insert("i-2".into(), lost);
    });
    let plan = scenario.plan();
    assert_names(wait(&plan), &["i-2", "no Node since 2026-01-01T23:59:00Z", "node-i-2", "5m"]);
    assert_eq!(plan.status_update.fields["joining"], json!({"i-2": "2026-01-01T23:59:00Z"}), "it survives a restart");
}

fn activity(status: &str, description: &str, cause: &str, message: &str) -> ScalingActivity {
    ScalingActivity {
        status: status.into(),
        cause: cause.into(),
        zone: description.starts_with("Launching").then(|| "us-west-2a".into()),
        message: message.into(),
        started: Some(timestamp("2026-01-01T23:58:00Z")),
        ..samples::scaling_activity(description)
    }
}

/// A group with one instance less than desired, for half a minute.
fn short_of_one(activities: Vec<ScalingActivity>) -> Scenario {
    converged().with_scaling_group(|g| g.instances.truncate(1)).with(|s| {
        s.state.shortage_duration = SignedDuration::from_secs(30);
        s.state.activities = activities;
    })
}

#[test]
fn instance_that_is_gone_is_reported_with_the_words_of_auto_scaling() {
    let cause = "At 2026-01-01T23:58:00Z an instance was taken out of service in response to an EC2 health check that indicated it has been terminated or stopped.";
    let gone = activity("Successful", "Terminating EC2 instance: i-2", cause, "");
    let old = ScalingActivity {
        started: Some(timestamp(LONG_AGO)),
        ..activity("Successful", "Terminating EC2 instance: i-0", "", "")
    };
    let plan = short_of_one(vec![gone, old]).plan();
    assert_names(wait(&plan), &["i-2", "EC2 health check", "23:58:00Z", "launch instances: 1 missing"]);
    assert!(!wait(&plan).contains("i-0"), "it went long before: {}", wait(&plan));
}

#[test]
fn replacement_that_is_starting_is_named() {
    let starting = |g: &mut ScalingGroup| g.instances[1].state = InstanceState::Pending;
    let scenario = converged().with(|s| _ = s.state.nodes.remove("i-2")).with_scaling_group(starting);
    assert_names(wait(&scenario.plan()), &["starting", "i-2"]);
}

/// Waiting does not help, so the group must report it at once.
#[test]
fn missing_capacity_is_named_at_once_with_types_and_zones() {
    let words = "We currently do not have sufficient m5.large capacity in the Availability Zone you requested.";
    let failed = activity("Failed", "Launching a new EC2 instance.  Status Reason: it failed", "", words);
    let plan = short_of_one(vec![failed.clone()]).plan();
    assert_eq!(stalled(&plan).0, StalledReason::InsufficientCapacity);
    let names = ["m5.large", "us-west-2a", "do not have sufficient", "other zones", "since 2026-01-01T23:58:00Z"];
    assert_names(stalled(&plan).1, &names);
    // AWS lists more attempts than are read: the oldest of these is not a beginning, and another one after each attempt.
    let attempts = |started: &str| {
        let failed = ScalingActivity { started: Some(timestamp(started)), ..failed.clone() };
        stalled(&short_of_one(vec![failed; 20]).plan()).1.to_owned()
    };
    let [before, after] = ["2026-01-01T23:50:00Z", "2026-01-01T23:55:00Z"].map(attempts);
    assert!(before == after && before.contains("last 20 attempts"), "{before} {after}");
    let launched = activity("Successful", "Launching a new EC2 instance: i-3", "", "");
    let recovered = short_of_one(vec![launched, failed]).plan();
    assert!(matches!(recovered.outcome, Outcome::Progressing { .. }), "{:?}", recovered.outcome);
    let profile = activity("Failed", "Launching a new EC2 instance", "", "Invalid IAM Instance Profile name");
    assert!(matches!(short_of_one(vec![profile.clone()]).plan().outcome, Outcome::Progressing { .. }));
    let lasting = short_of_one(vec![profile]).with(|s| s.state.shortage_duration = SignedDuration::from_mins(2));
    assert_eq!(stalled(&lasting.plan()).0, StalledReason::LaunchFailed);
}

#[test]
fn suspended_launch_is_reported_as_soon_as_a_node_is_missing() {
    let suspended = |spec: &str| {
        let suspend = |g: &mut ScalingGroup| g.suspended_processes = vec!["Launch".into()];
        let mut scenario = converged_with(resolved(spec, &[])).with_scaling_group(suspend);
        scenario.status.managed.as_mut().expect("a record").processes = vec!["Launch".into()];
        scenario
    };
    let own = "eks: {configuration: {suspendProcesses: [Launch]}}";
    assert_eq!(suspended(own).plan().outcome, Outcome::Converged, "no node is missing");
    let plan = suspended(own).with_scaling_group(|g| g.instances.truncate(1)).plan();
    assert_eq!(stalled(&plan).0, StalledReason::ProcessSuspended);
    assert_names(stalled(&plan).1, &["Launch", "1 of 2", "spec.eks.configuration.suspendProcesses"]);
    let foreign = short_of_one(vec![]).with_scaling_group(|g| g.suspended_processes = vec!["Launch".into()]).plan();
    assert_names(stalled(&foreign).1, &["Launch", "resume-processes --auto-scaling-group-name demo-team-web"]);
}

/// AWS suspends Launch of a group whose launches fail for a day. Who resumes it without a fix waits for another day.
#[test]
fn launch_that_aws_suspended_is_reported_with_its_reason_and_with_the_failure() {
    let failed = activity("Failed", "Launching a new EC2 instance", "", "The key pair 'team' does not exist");
    let suspend = |g: &mut ScalingGroup| {
        g.suspended_processes = vec!["Launch".into()];
        g.suspension_reasons = [("Launch".to_owned(), "Administratively suspended.".to_owned())].into();
    };
    let scenario = short_of_one(vec![failed]).with_scaling_group(suspend);
    let plan = scenario.with(|s| s.state.shortage_duration = SignedDuration::from_hours(25)).plan();
    assert_eq!(stalled(&plan).0, StalledReason::ProcessSuspended);
    assert_names(stalled(&plan).1, &["AWS itself", "(Launch: Administratively suspended)", "resume-processes"]);
    let is_failure = |other: &Outcome| matches!(other, Outcome::Blocked { reason: StalledReason::LaunchFailed, message, .. } if message.contains("key pair"));
    assert!(plan.other_outcomes.iter().any(is_failure), "{:?}", plan.other_outcomes);
}

/// The same group, whose nodes are outdated: the version of another image is pinned.
fn rotating(scenario: Scenario) -> Scenario {
    let pin = |g: &mut ScalingGroup| g.template.as_mut().expect("a pin").version = "2".into();
    scenario.with_spec(NEW_IMAGE).with_scaling_group(pin).with(add_desired_version)
}

/// Without it, a broken entry for the role is looked for only after the network, the API server and the kubelets.
#[test]
fn unhealthy_cluster_does_not_hide_an_entry_that_keeps_nodes_out() {
    let mut scenario = rotating(silent_since("2026-01-01T23:50:00Z"));
    scenario.state.join.auth_entry = AuthEntryState::Conflict { detail: "line 3: another entry for the role".into() };
    scenario.state.cluster_health = ClusterHealth { total: 10, unready: 5 };
    let plan = scenario.plan();
    let reasons: Vec<_> = plan
        .other_outcomes
        .iter()
        .filter_map(|other| match other {
            Outcome::Blocked { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(stalled(&plan).0, StalledReason::AuthConflict, "{:?}", plan.other_outcomes);
    assert!(reasons.contains(&StalledReason::NodesNotReady), "{reasons:?}");
}

/// A lock is not a reason to keep quiet about a node that is broken.
#[test]
fn locked_group_reports_problems_of_its_nodes() {
    let locked = |scenario: Scenario| {
        let mut scenario = rotating(scenario);
        scenario.lock = Some("the annotation lock-upgrades");
        scenario.plan()
    };
    let healthy = locked(converged());
    assert!(matches!(&healthy.outcome, Outcome::Locked { .. }) && healthy.other_outcomes.is_empty());
    assert_eq!(healthy.status_update.nodes_ready, Some(true));
    let broken = locked(silent_since("2026-01-01T23:50:00Z"));
    assert!(matches!(&broken.outcome, Outcome::Locked { .. }), "{:?}", broken.outcome);
    assert!(
        matches!(&broken.other_outcomes[..], [Outcome::Blocked { reason: StalledReason::NodesNotReady, .. }, ..]),
        "{:?}",
        broken.other_outcomes
    );
}

/// "2 of 4 nodes are outdated" does not say what a rotation waits for.
#[test]
fn rotation_names_what_it_waits_for_and_counts_like_the_status() {
    let mut scenario = rotating(converged()).with_scaling_group(|g| {
        g.instances[1].template.as_mut().expect("a pin").version = "2".into();
        g.instances[1].in_service_since = Some(timestamp("2026-01-01T23:59:00Z"));
    });
    scenario.state.nodes.remove("i-2");
    let plan = scenario.plan();
    assert_names(
        wait(&plan),
        &["0 of 2 done, 1 not Ready yet", "i-2", "to join", "2026-01-01T23:59:00Z", "15m", "maxUnavailable is 1"],
    );
    let nodes = &plan.status_update.fields["nodes"];
    assert_eq!((&nodes["updated"], &nodes["outdated"]), (&json!(1), &json!(1)));
    let again = scenario.plan();
    assert_eq!(wait(&plan), wait(&again), "a wait costs no status writes");
    let joined = scenario.with(|s| _ = s.state.nodes.insert("i-2".into(), node("i-2"))).plan();
    assert_eq!(wait(&joined), "rotating: 1 of 2 done");
    assert_eq!(joined.status_update.fields["nodes"]["updated"], json!(1));
}

/// The rotation waits for Auto Scaling to replace the instance, which it never does.
#[test]
fn unhealthy_instance_that_auto_scaling_does_not_replace_is_reported_with_the_remedy() {
    let waits = |suspended: &[&str]| {
        let scenario = rotating(converged()).with_scaling_group(|g| {
            g.instances[0].template.as_mut().expect("a pin").version = "2".into();
            g.instances[0].healthy = false;
            g.suspended_processes = suspended.iter().map(|name| (*name).to_owned()).collect();
        });
        let plan = scenario.plan();
        let text = format!("{:?} {:?}", plan.outcome, plan.other_outcomes);
        assert!(text.contains("which Auto Scaling reports as Unhealthy, to be terminated"), "{text}");
        text
    };
    assert!(!waits(&[]).contains("ReplaceUnhealthy"));
    let suspended = waits(&["ReplaceUnhealthy"]);
    assert!(suspended.contains("--scaling-processes ReplaceUnhealthy"), "{suspended}");
}
