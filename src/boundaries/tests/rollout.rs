//! Each field of the key `rollout` with values of each kind.

use serde_json::{Value, json};

use super::*;

/// A policy in which only one field, or one item of a list, has a value.
fn policy_with(path: &str, value: &Value) -> Value {
    let (list, field) = path.split_once('.').unwrap_or(("", path));
    let other = match list {
        "" => return json!({field: value}),
        "budget" => return json!({"budget": {field: value}}),
        "waves" => json!({"name": "a"}),
        "windows" => json!({"from": "22:00", "to": "04:00", "zone": "UTC"}),
        "freezes" => json!({"from": "2026-12-18", "to": "2027-01-04", "zone": "UTC"}),
        "deferral" => json!({"namespaces": "*", "max": "1h"}),
        "delay" => json!({"clusters": "*", "by": "1h"}),
        _ => json!({"name": "a", "query": "up == 0"}),
    };
    let mut item = other;
    item[field] = value.clone();
    json!({list: [item]})
}

/// A safeguard that is written in another way than the parser reads it must be no safeguard less: a warning names the
/// field. What a field accepts beside its own kind is listed here.
#[test]
fn field_of_the_rollout_with_another_kind_of_value_is_refused_by_name() {
    let kinds = [
        ("text", json!("No such: word")),
        ("number", json!(5)),
        ("zero", json!(0)),
        ("negative", json!(-1)),
        ("fraction", json!(1.5)),
        ("huge", json!(u64::MAX)),
        ("bool", json!(true)),
        ("list", json!([1])),
        ("map", json!({"a": 1})),
    ];
    let texts = "text number zero negative fraction huge bool";
    let fields = [
        ("release", "text"),
        ("waves", ""),
        ("windows", ""),
        ("freezes", ""),
        ("deferral", ""),
        ("budget", ""),
        ("checks", ""),
        ("delay", ""),
        ("urgentUntil", ""),
        ("onFailure", ""),
        ("withoutRotation", ""),
        ("patience", ""),
        ("history", "number"),
        ("waves.name", "number zero negative huge bool"),
        ("waves.namespaces", ""),
        ("waves.groups", ""),
        ("waves.percent", "number"),
        ("waves.soak", ""),
        ("waves.maxFailures", "number zero huge"),
        ("waves.atOnce", "number"),
        ("waves.approval", ""),
        ("waves.windows", ""),
        ("windows.days", ""),
        ("windows.from", ""),
        ("windows.to", ""),
        ("windows.zone", ""),
        ("freezes.from", ""),
        ("freezes.to", ""),
        ("freezes.zone", ""),
        ("freezes.why", texts),
        ("deferral.namespaces", texts),
        ("deferral.max", ""),
        ("delay.clusters", texts),
        ("delay.by", ""),
        ("budget.nodes", "number huge"),
        ("budget.zone", "number huge"),
        ("budget.surge", "number"),
        ("checks.name", "number zero negative huge bool"),
        ("checks.query", texts),
        ("checks.for", ""),
    ];
    let mut wrong = vec![];
    for (path, accepted) in fields {
        let field = path.rsplit('.').next().unwrap_or(path);
        for (kind, value) in &kinds {
            let text = policy_with(path, value).to_string();
            let result = Boundaries::parse(&data(&[("rollout", &text)])).map_err(|errors| errors.to_string());
            let is_accepted = accepted.split(' ').any(|found| found == *kind);
            match &result {
                Ok(_) if is_accepted => {}
                Err(error) if !is_accepted && error.contains("rollout line 1: ") && error.contains(field) => {}
                Ok(_) => wrong.push(format!("{path} accepts {value}")),
                Err(error) => wrong.push(format!("{path} refuses {value}: {error}")),
            }
        }
        // Null is the same as no value, which some items need.
        let _ = Boundaries::parse(&data(&[("rollout", &policy_with(path, &Value::Null).to_string())]));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A freeze to the end of the calendar, windows that are open for no minute of the year, and a soak of a year are
/// valid; the rollout waits, and reports until when.
#[test]
fn policy_that_never_opens_names_no_time() {
    for text in [
        "freezes: [{from: 2020-01-01, to: 9999-12-31, zone: UTC}]",
        "windows: [{from: '01:00', to: '02:00', zone: UTC}]\nwaves: [{name: a, windows: [{from: '03:00', to: '04:00', zone: UTC}]}]",
    ] {
        let parsed = Boundaries::parse(&data(&[("rollout", text)])).expect("a policy").0;
        let policy = parsed.rollout.expect("a policy");
        let now = "2026-08-20T12:00:00Z".parse().expect("a time");
        let wave = &policy.waves[0];
        let found = crate::util::calendar::window_state(&[&policy.windows, &wave.windows], &policy.freezes, now);
        let next = match found {
            crate::util::calendar::WindowState::Open => panic!("{text} is open"),
            crate::util::calendar::WindowState::Closed { next }
            | crate::util::calendar::WindowState::Frozen { next, .. } => next,
        };
        assert_eq!((next, policy.waves_without_opening(now)), (None, vec![0]), "{text}");
    }
}

/// An admin who copies a wave to narrow it waits for groups that never come to it.
#[test]
fn wave_whose_groups_an_earlier_one_takes_is_warned_about() {
    let found = |waves: &str| {
        let (_, warnings) = Boundaries::parse(&data(&[("rollout", waves)])).expect("a policy");
        let empty = warnings.iter().filter(|warning| warning.message.contains("takes all groups"));
        empty.map(ToString::to_string).collect::<Vec<_>>()
    };
    let text = |first: &str, second: &str| {
        format!("waves:\n- {{name: a, {first}}}\n- {{name: b, {second}}}\n- {{name: rest}}")
    };
    let warned = found(&text("namespaces: 'tier = test'", "namespaces: 'tier=test', percent: 5"));
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].starts_with("rollout line 3: waves[1]: is empty: wave a has the same selectors"), "{warned:?}");
    assert!(warned[0].ends_with("give it other selectors, or set percent in wave a"), "{warned:?}");
    for (first, second) in [
        ("namespaces: 'tier = test'", "namespaces: 'team = x, tier = test'"),
        ("namespaces: 'tier = test'", "namespaces: 'tier = test', groups: 'gpu'"),
        ("groups: 'gpu'", "namespaces: 'tier = test', groups: 'gpu, !old'"),
    ] {
        let warned = found(&text(first, second));
        assert_eq!(warned.len(), 1, "{first} {second}: {warned:?}");
        assert!(warned[0].starts_with("rollout line 3: waves[1]: is empty: wave a has wider selectors"), "{warned:?}");
        assert!(warned[0].ends_with("move it before wave a, or set percent in wave a"), "{warned:?}");
        assert_eq!(found(&text(second, first)), [""; 0], "{second} before {first}");
    }
    for (first, second) in [
        ("namespaces: 'tier = test', percent: 10", "namespaces: 'tier = test'"),
        ("namespaces: 'tier = test'", "groups: 'tier = test'"),
        ("namespaces: 'tier = test', groups: 'gpu'", "groups: 'gpu, !old'"),
        ("namespaces: 'tier = test'", "namespaces: 'tier = dev, team = x'"),
        ("percent: 1", "percent: 10"),
    ] {
        assert_eq!(found(&text(first, second)), [""; 0], "{first} {second}");
    }
}

/// The warnings about a policy that do not depend on the time.
fn warnings_about(text: &str) -> Vec<String> {
    let (_, warnings) = Boundaries::parse(&data(&[("rollout", text)])).expect("a policy");
    warnings.iter().filter(|warning| warning.key == "rollout").map(ToString::to_string).collect()
}

/// An admin who closes a window by equal times would have nodes replaced all day.
#[test]
fn window_that_ends_when_it_begins_is_warned_about() {
    let zero = "{from: '02:00', to: '02:00', zone: UTC}";
    for (text, line, path) in [
        (format!("windows:\n- {zero}"), 2, "windows[0].to"),
        (format!("waves:\n- name: a\n  percent: 5\n- name: b\n  windows:\n  - {zero}"), 6, "waves[1].windows[0].to"),
    ] {
        let found = warnings_about(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = format!("rollout line {line}: {path}: is the same as from, so the window is open for 24 hours;");
        assert!(found[0].starts_with(&expected), "{found:?}");
        assert!(found[0].ends_with("for the whole day \"00:00\" to \"24:00\""), "{found:?}");
    }
    for hours in ["from: '00:00', to: '24:00'", "from: '22:00', to: '04:00'"] {
        assert_eq!(warnings_about(&format!("windows: [{{{hours}, zone: UTC}}]")), [""; 0], "{hours}");
    }
}

/// A wrong year would leave a cluster without security fixes until then.
#[test]
fn freeze_of_more_than_a_year_is_warned_about() {
    let freeze = |to: &str| format!("freezes:\n- {{from: 2026-12-18, to: {to}, zone: UTC}}");
    let found = warnings_about(&freeze("2072-01-04"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("rollout line 2: freezes[0].to: `2072-01-04` is 16453 days after from"), "{found:?}");
    assert!(found[0].ends_with("write the last frozen day, within a year"), "{found:?}");
    for to in ["2027-01-04", "2027-12-19"] {
        assert_eq!(warnings_about(&freeze(to)), [""; 0], "{to}");
    }
}

/// An admin who gives one Namespace more time must learn that another item of the list counts for it.
#[test]
fn item_that_is_never_the_first_match_is_warned_about() {
    let deferral = |first: &str, second: &str| {
        format!("deferral:\n- {{namespaces: '{first}', max: 168h}}\n- {{namespaces: '{second}', max: 720h}}")
    };
    for (first, second) in [("*", "pci-*"), ("pci-*", "pci-*"), ("pci-*", "pci-a"), ("pci-*", "pci-?-*")] {
        let found = warnings_about(&deferral(first, second));
        assert_eq!(found.len(), 1, "{first} {second}: {found:?}");
        let expected = "rollout line 3: deferral[1]: is never the first match: deferral[0] matches all names";
        assert!(found[0].starts_with(expected), "{found:?}");
        assert!(found[0].ends_with("move it before deferral[0], or remove it"), "{found:?}");
    }
    for (first, second) in [("pci-*", "*"), ("pci-a", "pci-*"), ("a?", "a*"), ("pci-a", "pci-b")] {
        assert_eq!(warnings_about(&deferral(first, second)), [""; 0], "{first} {second}");
    }
    let found = warnings_about("delay:\n- {clusters: '*', by: 48h}\n- {clusters: '*-dev', by: 0s}");
    assert!(found[0].starts_with("rollout line 3: delay[1]: ") && found.len() == 1, "{found:?}");
}

/// Without the name of its cluster, a development cluster waits as long as production.
#[test]
fn delay_by_cluster_without_a_cluster_name_is_warned_about() {
    let found = |delay: &str, has_cluster| {
        let data = data(&[("rollout", delay)]);
        let boundaries = Boundaries::parse(&data).expect("a policy").0;
        let warnings = boundaries.flag_warnings(&data, false, has_cluster);
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let by_cluster = "waves: [{name: a}]\ndelay: [{clusters: '*-dev', by: 0s}, {clusters: '*', by: 48h}]";
    let warned = found(by_cluster, false);
    assert!(warned[0].starts_with("rollout line 2: delay: ") && warned[0].contains("--cluster-name"), "{warned:?}");
    assert_eq!(found(by_cluster, true), [""; 0]);
    assert_eq!(found("delay: [{clusters: '*', by: 48h}]", false), [""; 0], "it is the same for all");
}

/// The change of an admin waits forever, or is urgent for less time than its admin wrote. Each warning names its cause.
#[test]
fn policy_that_never_opens_or_whose_urgency_ends_at_another_time_is_warned_about() {
    let now = "2026-08-20T12:00:00Z".parse().expect("a time");
    let found = |text: &str| {
        let data = data(&[("rollout", text)]);
        let warnings = Boundaries::parse(&data).expect("a policy").0.time_warnings(&data, now);
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let freezes = |first: &str, second: &str| {
        format!("waves: [{{name: a}}]\nfreezes:\n- {{{first}, zone: UTC}}\n- {{{second}, zone: UTC}}")
    };
    let night = "{from: '01:00', to: '02:00', zone: UTC}";
    let day = "{from: '03:00', to: '04:00', zone: UTC}";
    let of_wave = format!("{{name: b, percent: 5, windows: [{day}]}}");
    let opening = "no opening of half an hour within two weeks for the waves";
    for (text, expected) in [
        (
            freezes("from: 2020-01-01, to: 2020-01-02", "from: 2026-08-01, to: 2026-09-30"),
            format!("rollout line 4: freezes[1]: leaves {opening} a;"),
        ),
        (
            freezes("from: 2026-08-01, to: 2026-08-25", "from: 2026-08-26, to: 2026-09-30"),
            format!("rollout line 3: freezes: leave {opening} a;"),
        ),
        (
            format!("windows: [{night}]\nwaves:\n- {{name: a, percent: 5}}\n- {of_wave}\n- {{name: c}}"),
            format!("rollout line 4: waves[1].windows: with the windows and freezes of the policy, leave {opening} b;"),
        ),
        (
            format!("waves:\n- {of_wave}\n- {{name: c}}\nwindows: [{{from: '01:00', to: '01:20', zone: UTC}}]"),
            format!("rollout line 4: windows: with the freezes, leave {opening} b, c;"),
        ),
        (
            "waves:\n- name: a\n  windows: [{from: '01:00', to: '01:20', zone: UTC}]".to_owned(),
            format!("rollout line 3: waves[0].windows: with the windows and freezes of the policy, leave {opening} a;"),
        ),
    ] {
        let closed = found(&text);
        assert_eq!(closed.len(), 1, "{text}: {closed:?}");
        assert!(closed[0].starts_with(&expected), "{text}: {closed:?}");
    }
    let urgent = found("urgentUntil: 2026-08-27T12:00:01Z");
    assert!(urgent[0].contains("urgentUntil: `2026-08-27T12:00:01Z` is more than 7 days away"), "{urgent:?}");
    let over = found("waves: [{name: a}]\nurgentUntil: 2026-08-20T12:00:00Z");
    assert!(over[0].starts_with("rollout line 2: urgentUntil: `2026-08-20T12:00:00Z` is over"), "{over:?}");
    assert!(over[0].ends_with("remove it, or write a time within 7 days"), "{over:?}");
    let near = ["urgentUntil: 2026-08-20T12:00:01Z", "urgentUntil: 2026-08-27T12:00:00Z"];
    for text in near.into_iter().chain(["windows: [{from: '22:00', to: '04:00', zone: UTC}]", ""]) {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}
