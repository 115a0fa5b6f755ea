//! Plans for launch templates: client tokens, and versions to delete.

use super::*;

/// The client token of the planned version.
fn token(scenario: &Scenario) -> String {
    let plan = scenario.plan();
    let token = plan.steps.iter().cloned().find_map(|planned| match planned.step {
        Step::Eks(EksStep::CreateTemplate(template)) => Some(template.version.token),
        Step::Eks(EksStep::PutTemplateVersion { version, .. }) => Some(version.token),
        _ => None,
    });
    token.unwrap_or_else(|| panic!("no version: {plan:?}"))
}

/// Tags what proves its owner by the scaling group otherwise.
fn with_tags(scenario: Scenario) -> Scenario {
    let group = scenario.state.scaling_group.clone();
    scenario.with(remove_scaling_group).with(|s| s.state.scaling_group = group)
}

/// The group is pinned to version 1, and other content has had versions up to `latest` since.
fn wants_new_image(latest: i64) -> Scenario {
    let latest = |s: &mut Scenario| s.state.template.as_mut().expect("a template").latest_version = latest;
    with_tags(converged()).with_spec(NEW_IMAGE).with(latest)
}

#[test]
fn content_that_is_wanted_again_gets_another_token() {
    assert_eq!(token(&wants_new_image(1)), token(&wants_new_image(1)), "a retry after a lost response");
    assert_ne!(token(&wants_new_image(1)), token(&wants_new_image(5)), "the version of that content was deleted since");
    let deleted_by_hand =
        wants_new_image(1).with_scaling_group(|g| g.template.as_mut().expect("a pin").version = "2".into());
    assert_ne!(token(&wants_new_image(1)), token(&deleted_by_hand));
}

#[test]
fn deleted_template_is_created_with_another_token() {
    let first = || new_group(resolved("{}", &[]));
    assert_eq!(token(&first()), token(&first()), "a retry after a lost response");
    let deleted = |id: &str| {
        with_tags(converged()).with_scaling_group(|g| g.template.as_mut().expect("a pin").id = id.into()).with(|s| {
            s.state.template = None;
            s.state.versions.clear();
            s.status.template.as_mut().expect("a record").id = Some(id.into());
        })
    };
    assert_ne!(token(&first()), token(&deleted("lt-1")));
    assert_ne!(token(&deleted("lt-1")), token(&deleted("lt-2")));
    let without_group = deleted("lt-1").with(remove_scaling_group);
    assert_ne!(token(&first()), token(&without_group));
}

#[test]
fn versions_are_deleted_in_calls_of_at_most_200() {
    let scenario = converged().with_spec(NEW_IMAGE).with(|s| {
        let version = s.state.versions[&1].clone();
        s.state.versions.extend((2..=500).map(|number| (number, ObservedVersion::new(None, version.data.clone()))));
        s.state.template.as_mut().expect("a template").latest_version = 500;
    });
    let deleted = scenario.plan().steps.into_iter().filter_map(|planned| match planned.step {
        Step::Eks(EksStep::DeleteTemplateVersions { numbers, .. }) => Some(numbers.len()),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [200, 200, 96], "all but the pinned, the latest and two retained ones");
}

/// A new release may render user data differently. No node is replaced for that alone, but what `rotate-at` replaces gets it.
#[test]
fn corrected_user_data_arrives_with_rotate_at() {
    let corrected = |annotations: &[(&str, &str)]| {
        converged().with(|s| {
            let older = resolved("eks: {configuration: {labels: {a: b}}}", &[]).template_data.user_data;
            s.state.versions.get_mut(&1).expect("a version").data.as_mut().expect("its content").user_data = older;
            s.state.launch_times = ["i-1", "i-2"].map(|id| (id.to_owned(), timestamp(LONG_AGO))).into();
            s.resolved = resolved("{}", annotations);
        })
    };
    let plan = corrected(&[]).plan();
    assert_eq!((plan.steps, plan.outcome), (vec![], Outcome::Converged));
    let plan = corrected(&[("rotate-at", NOW)]).plan();
    let names: Vec<_> = plan.steps.iter().map(|p| p.step.name()).collect();
    assert_eq!(names, ["PutTemplateVersion", "UpdateGroup"]);
    assert_eq!(plan.steps[0].reasons[1].field, "userData");
    let current = converged().with(|s| {
        s.resolved = resolved("{}", &[("rotate-at", NOW)]);
        s.state.launch_times = ["i-1", "i-2"].map(|id| (id.to_owned(), timestamp(LONG_AGO))).into();
    });
    assert!(current.plan().steps.iter().all(|p| p.step.name() != "PutTemplateVersion"), "the user data is current");
}

/// A template that is deleted by mistake must not cost every node of the group: they run the desired content.
#[test]
fn nodes_of_a_deleted_template_stay_while_they_run_the_desired_content() {
    // The group launches another template of the same content since, and its nodes are those of the old one.
    let deleted = |spec: &str| {
        converged().with_spec(spec).with(|s| {
            s.state.template.as_mut().expect("a template").id = "lt-2".into();
            s.state.scaling_group.as_mut().expect("a group").template.as_mut().expect("a pin").id = "lt-2".into();
        })
    };
    let is_planned = |s: &Scenario, name: &str| s.plan().steps.iter().any(|planned| planned.step.name() == name);
    let plan = deleted("{}").plan();
    assert_eq!((plan.steps, plan.outcome), (vec![], Outcome::Converged));
    // Later passes find it in the record, until the last of these nodes is gone.
    let recorded = plan.status_update.fields["template"].clone();
    assert_eq!(recorded["deleted"]["id"], "lt-1");
    let later = |spec: &str| {
        deleted(spec).with(|s| s.status.template = serde_json::from_value(recorded.clone()).expect("a record"))
    };
    assert_eq!((later("{}").plan().steps, later("{}").plan().outcome), (vec![], Outcome::Converged));
    let ended = later("{}").with_scaling_group(|g| {
        g.instances.iter_mut().for_each(|i| i.template.as_mut().expect("a pin").id = "lt-2".into());
    });
    assert!(ended.plan().status_update.fields["template"].get("deleted").is_none());
    // Other content is rolled out, and a version that is not on record is unknown.
    let new_image = later(NEW_IMAGE).with(|s| {
        let content = (Some(s.resolved.fingerprint.clone()), Some(s.resolved.template_data.clone()));
        s.state.versions = [(1, ObservedVersion::new(content.0, content.1))].into();
    });
    assert!(is_planned(&new_image, "CordonNode"));
    let steps = new_image.plan().steps;
    let cordon = steps.iter().find(|planned| planned.step.name() == "CordonNode").expect("a step");
    assert_eq!(
        cordon.reasons[0].to_string(),
        "launch template: lt-1 -> lt-2 (made again, because lt-1 was gone)",
        "no user knows the ids by heart"
    );
    // The next version of the new template takes the number 2. Only its own versions are read.
    let next = later(NEW_IMAGE).with(|s| {
        let content = (Some(s.resolved.fingerprint.clone()), Some(s.resolved.template_data.clone()));
        s.state.versions = [(2, ObservedVersion::new(content.0, content.1))].into();
        s.state.scaling_group.as_mut().expect("a group").template.as_mut().expect("a pin").version = "2".into();
    });
    let recorded = next.plan().status_update.fields["template"].clone();
    assert_eq!(recorded["deleted"]["id"], "lt-1", "its nodes are still there: {recorded}");
    let unknown = deleted("{}").with(|s| s.status.template.as_mut().expect("a record").version = Some("7".into()));
    assert!(is_planned(&unknown, "CordonNode"));
}

/// EC2 would always answer the same token with the deleted template, and no scaling group could be created.
#[test]
fn template_that_is_gone_before_it_was_recorded_is_created_with_another_token() {
    let first = || new_group(resolved("{}", &[]));
    let pin = |id: &str, version: &str| Some(TemplatePin { id: id.into(), version: version.into() });
    let again = |id: &str| first().with(|s| s.state.rejected_pin = pin(id, "1"));
    assert_ne!(token(&first()), token(&again("lt-1")));
    assert_ne!(token(&again("lt-1")), token(&again("lt-2")), "and so is the next one");
    let next = wants_new_image(1).with(|s| s.state.rejected_pin = pin("lt-1", "2"));
    assert_ne!(token(&wants_new_image(1)), token(&next), "a version in the same way");
}
