use super::*;

fn rollout() -> RolloutLevels {
    RolloutLevels {
        revision: "r2".into(),
        hash: "7c1f0a3b".into(),
        release: "2026-08-20".into(),
        phase: "Rolling".into(),
        groups: vec![("waiting", 2)],
        nodes: [("updated", 3), ("outdated", 9)],
        waves: vec![("canary".into(), "Open".into())],
        held: [("Deferred".to_owned(), 1)].into(),
        behind: vec![("team/late".into(), 1_780_000_000)],
        stuck_at: Some(1_780_000_600),
    }
}

/// Metrics in which every family has at least one series.
fn filled() -> Metrics {
    let metrics = Metrics::new().unwrap();
    drop(metrics.start_reconcile());
    metrics.record_reconcile("team/web", ReconcileResult::Success);
    metrics.record_reconcile("team/web", ReconcileResult::Failed("HandleReconcile"));
    metrics.record_reconcile("team/db", ReconcileResult::RequeueAfter);
    metrics.set_group_status("team/web", "InitCreate");
    metrics.set_group_status("team/web", "Ready");
    metrics.set_group_stalled("team/web", Some("DrainBlocked".to_owned()));
    metrics.set_group_stalled("team/web", Some("NotFound".to_owned()));
    metrics.set_group_read_failed("team/web", Some("AWSThrottled".to_owned()));
    let counts = NodeCounts { desired: 3, ready: 2, ..NodeCounts::default() };
    metrics.set_node_counts("team/web", &counts);
    metrics.set_ineffective_writes("team/web", 1);
    metrics.record_aws_call("EC2", "DescribeInstances", "ok");
    metrics.record_aws_throttle("EC2", "DescribeInstances");
    metrics.set_boundaries(Some("0f3a9c77"), true, 2);
    metrics.set_boundaries(Some("bb6e1c1f"), false, 0);
    metrics.rollout.set(&rollout());
    metrics.rollout.set_budget(&[crate::api::BudgetLimit { of: "nodes".into(), used: 3, limit: 5 }]);
    metrics.rollout.set_check("node-errors", "Unknown");
    metrics.rollout.observe_poll(std::time::Duration::from_millis(5));
    metrics.set_quota("team", &[QuotaLevel { resource: "vcpus", used: Some(8), limit: 64 }]);
    metrics.set_leader(true);
    metrics.set_max_workers(5);
    metrics.set_queue_depth(4);
    metrics.record_queue_add();
    metrics.record_queue_retry();
    metrics.record_queue_wait(Duration::from_millis(5));
    metrics
}

fn lines(text: &str, part: &str) -> Vec<String> {
    let found = text.lines().filter(|line| line.contains(part) && !line.starts_with('#'));
    found.map(str::to_owned).collect()
}

#[test]
fn every_documented_metric_is_served() {
    let text = filled().encode().unwrap();
    for series in [
        "instance_manager_reconcile_success_total{instancegroup=\"team/web\"} 1",
        "instance_manager_reconcile_fail_total{instancegroup=\"team/web\",reason=\"HandleReconcile\"} 1",
        "instance_manager_aws_api_throttle_total{operation=\"DescribeInstances\",service=\"EC2\"} 1",
        "instance_manager_instance_group_status{instancegroup=\"team/web\",status=\"Ready\"} 1",
        "instance_manager_nodes{instancegroup=\"team/web\",state=\"desired\"} 3",
        "instance_manager_boundaries_valid 0",
        "instance_manager_leader 1",
        "controller_runtime_reconcile_total{controller=\"instancegroup\",result=\"error\"} 1",
        "controller_runtime_reconcile_total{controller=\"instancegroup\",result=\"requeue\"} 0",
        "controller_runtime_reconcile_errors_total{controller=\"instancegroup\"} 1",
        "controller_runtime_reconcile_time_seconds_count{controller=\"instancegroup\"} 1",
        "controller_runtime_active_workers{controller=\"instancegroup\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"instancegroup\"} 5",
        "workqueue_depth{name=\"instancegroup\"} 4",
        "workqueue_adds_total{name=\"instancegroup\"} 1",
        "workqueue_retries_total{name=\"instancegroup\"} 1",
        "workqueue_queue_duration_seconds_count{name=\"instancegroup\"} 1",
        "workqueue_work_duration_seconds_count{name=\"instancegroup\"} 1",
    ] {
        assert!(text.lines().any(|line| line == series), "{series}\n{text}");
    }
    for family in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        assert_eq!(lines(&text, family).len(), 1, "{family}");
    }
}

/// A namespace that a quota no longer selects must not look as if it had one.
#[test]
fn quota_has_series_only_for_its_limits() {
    let metrics = Metrics::new().unwrap();
    let nodes = |used| QuotaLevel { resource: "nodes", used, limit: 10 };
    metrics.set_quota("team", &[nodes(Some(7)), QuotaLevel { resource: "vcpus", used: None, limit: 64 }]);
    assert_eq!(
        lines(&metrics.encode().unwrap(), "instance_manager_quota"),
        [
            "instance_manager_quota{kind=\"limit\",namespace=\"team\",resource=\"nodes\"} 10",
            "instance_manager_quota{kind=\"limit\",namespace=\"team\",resource=\"vcpus\"} 64",
            "instance_manager_quota{kind=\"used\",namespace=\"team\",resource=\"nodes\"} 7",
        ],
        "unknown is not zero"
    );
    metrics.set_quota("other", &[nodes(Some(1))]);
    metrics.set_quota("team", &[]);
    let left = lines(&metrics.encode().unwrap(), "instance_manager_quota");
    assert!(left.len() == 2 && left.iter().all(|line| line.contains("namespace=\"other\"")), "{left:?}");
}

/// A wave that has passed, or a group that has caught up, must not look as before: an alert would keep firing.
#[test]
fn rollout_has_only_the_series_of_its_present_state() {
    let metrics = Metrics::new().unwrap();
    metrics.rollout.set(&rollout());
    let text = metrics.encode().unwrap();
    assert_eq!(
        lines(&text, "instance_manager_rollout_"),
        [
            "instance_manager_rollout_group_behind_since_timestamp_seconds{instancegroup=\"team/late\"} 1780000000",
            "instance_manager_rollout_groups{revision=\"r2\",state=\"waiting\"} 2",
            "instance_manager_rollout_held{reason=\"Deferred\",revision=\"r2\"} 1",
            "instance_manager_rollout_nodes{revision=\"r2\",state=\"outdated\"} 9",
            "instance_manager_rollout_nodes{revision=\"r2\",state=\"updated\"} 3",
            "instance_manager_rollout_phase{hash=\"7c1f0a3b\",phase=\"Rolling\",release=\"2026-08-20\",revision=\"r2\"} 1",
            "instance_manager_rollout_stuck_at_timestamp_seconds{revision=\"r2\"} 1780000600",
            "instance_manager_rollout_wave{revision=\"r2\",state=\"Open\",wave=\"canary\"} 1",
        ]
    );
    let waves = vec![("canary".to_owned(), "Passed".to_owned())];
    metrics.rollout.set(&RolloutLevels { waves, held: BTreeMap::new(), behind: vec![], stuck_at: None, ..rollout() });
    let text = metrics.encode().unwrap();
    assert_eq!(
        lines(&text, "rollout_wave"),
        ["instance_manager_rollout_wave{revision=\"r2\",state=\"Passed\",wave=\"canary\"} 1"]
    );
    assert_eq!((lines(&text, "rollout_held"), lines(&text, "behind_since")), (vec![], vec![]));
    assert_eq!(lines(&text, "rollout_stuck_at"), [""; 0], "it soaks");
    metrics.rollout.forget();
    assert_eq!(lines(&metrics.encode().unwrap(), "instance_manager_rollout_"), [""; 0]);
}

/// The series of exactly this metric; a histogram has several names.
fn series(text: &str, metric: &str) -> Vec<String> {
    let is_of = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        name.strip_prefix(metric).is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
    };
    text.lines().filter(is_of).map(str::to_owned).collect()
}

/// An alert on a metric that never changes would never fire.
#[test]
fn every_documented_metric_changes() {
    let (idle, busy) = (Metrics::new().unwrap(), filled());
    busy.set_boundaries(Some("r3"), true, 2);
    busy.set_roles(2, 1);
    busy.set_conflicting_controller(true);
    let _reconcile = busy.start_reconcile();
    let (idle, busy) = (idle.encode().unwrap(), busy.encode().unwrap());
    let page = include_str!("../../../docs/alerts.md").split_once("## Metrics").expect("the section").1;
    let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert_ne!(series(&idle, name), series(&busy, name), "{name}");
    }
}

#[test]
fn group_has_one_status_and_one_reason_and_cluster_has_one_revision() {
    let text = filled().encode().unwrap();
    assert_eq!(lines(&text, "instance_group_status{").len(), 1);
    assert_eq!(
        lines(&text, "group_stalled{"),
        ["instance_manager_instance_group_stalled{instancegroup=\"team/web\",reason=\"NotFound\"} 1"]
    );
    assert_eq!(lines(&text, "revision_info{"), ["instance_manager_boundaries_revision_info{hash=\"bb6e1c1f\"} 1"]);
}

#[test]
fn series_of_a_deleted_group_are_removed() {
    let metrics = filled();
    metrics.forget_group("team/web");
    metrics.forget_group("never/seen");
    let text = metrics.encode().unwrap();
    assert_eq!(lines(&text, "team/web"), Vec::<String>::new());
    assert_eq!(lines(&text, "team/db").len(), 1);
}

/// The rules of `promtool check metrics`.
#[test]
fn names_and_help_texts_follow_prometheus_rules() {
    let metrics = filled();
    for family in metrics.registry.gather() {
        let (name, help) = (family.name(), family.help());
        let counter = format!("{:?}", family.get_field_type()) == "COUNTER";
        assert!(!help.is_empty() && help.ends_with('.'), "{name}: help");
        assert_eq!(counter, name.ends_with("_total"), "{name}: _total marks counters");
        for part in name.split('_') {
            let units = ["ms", "milliseconds", "minutes", "mb", "kb", "percent", "bits"];
            let types = ["counter", "gauge", "histogram", "summary"];
            assert!(!units.contains(&part), "{name}: base units only");
            assert!(!types.contains(&part), "{name}: no type in the name");
        }
        for reserved in ["_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(reserved), "{name}: reserved suffix");
        }
        let clean = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(clean(name), "{name}: lower case and underscores");
        for label in family.get_metric().iter().flat_map(|metric| metric.get_label()) {
            assert!(clean(label.name()), "{name}: label {}", label.name());
            assert!(!["le", "quantile"].contains(&label.name()), "{name}: reserved label");
        }
    }
}

/// The series that tests of the alerts may use: names with the names of their labels.
#[test]
fn list_of_all_series_is_current() {
    let text = filled().encode().unwrap();
    let mut series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(without_values).collect();
    series.sort();
    series.dedup();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.txt");
    let listed = series.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &listed).expect("the file is writable");
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), listed, "run `make golden`");
}

/// `name{label="value"} 1` as `name{label}`.
fn without_values(line: &str) -> String {
    let Some((name, rest)) = line.split_once('{') else {
        return format!("{}{{}}", line.split(' ').next().unwrap_or(line));
    };
    let labels = rest.split('}').next().unwrap_or_default().split(',');
    let mut names: Vec<_> = labels.filter_map(|label| label.split('=').next()).collect();
    names.sort_unstable();
    format!("{name}{{{}}}", names.join(","))
}
