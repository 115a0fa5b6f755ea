//! The key `rollout` of the ConfigMap: in which order and under which conditions a new revision of the boundaries reaches
//! the groups. Without the key, every group switches to a new revision at once.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::error::{ConfigError, ConfigWarning, ErrorList};
use super::glob::matches_glob;
use super::rollout_budget::BudgetPolicy;
use super::rollout_checks::{RolloutCheck, parse_checks};
use super::rollout_fields::{CountOrPercent, exact_keys, number, one_of, parse_amount, parse_duration, parse_name};
use super::rollout_times::{
    Deferral, Delay, parse_deferral, parse_delay, parse_freezes, parse_urgent_until, parse_windows,
};
use super::section::Section;
use super::selector::AnnotationSelector;
use crate::util::calendar::{self, Freeze, Window};

const POLICY_KEYS: [&str; 13] = [
    "release",
    "waves",
    "windows",
    "freezes",
    "deferral",
    "budget",
    "checks",
    "delay",
    "urgentUntil",
    "onFailure",
    "withoutRotation",
    "patience",
    "history",
];
const WAVE_KEYS: [&str; 9] =
    ["name", "namespaces", "groups", "percent", "soak", "maxFailures", "atOnce", "approval", "windows"];

/// The most waves of a policy: each is a line of the status.
pub(super) const MAX_WAVES: usize = 32;

/// The percentages of the groups that a wave may take.
pub(super) const PERCENT: RangeInclusive<usize> = 1..=100;

/// The numbers of revisions that `history` may name.
pub(super) const HISTORY: RangeInclusive<usize> = 1..=100;

/// How long a group may make no progress, without a value in the ConfigMap.
pub(super) const DEFAULT_PATIENCE: SignedDuration = SignedDuration::from_hours(4);

/// The words of `approval`.
pub(super) const APPROVAL_WORDS: [(&str, Option<Approval>); 2] =
    [("admin", Some(Approval::Admin)), ("tenants", Some(Approval::Tenants))];

/// The words of `onFailure`.
pub(super) const FAILURE_WORDS: [(&str, OnFailure); 2] = [("halt", OnFailure::Halt), ("return", OnFailure::Return)];

/// The words of `withoutRotation`.
pub(super) const ROTATION_WORDS: [(&str, WithoutRotation); 2] =
    [("atOnce", WithoutRotation::AtOnce), ("waves", WithoutRotation::Waves)];

/// The longest name of a release, in characters.
const MAX_RELEASE: usize = 63;

/// The key `rollout` of the ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RolloutPolicy {
    /// A name of the change, for display, such as a date; the same in all clusters.
    pub release: Option<String>,
    /// The waves in order; never empty. A group is in the first wave that selects it, and the last wave takes the rest.
    pub waves: Vec<Wave>,
    /// When nodes may be replaced; empty for always.
    pub windows: Vec<Window>,
    /// When no nodes are replaced.
    pub freezes: Vec<Freeze>,
    /// How long tenants may put a revision off; the first that matches the namespace counts.
    pub deferral: Vec<Deferral>,
    /// How many nodes of the cluster may be unavailable at once.
    pub budget: BudgetPolicy,
    /// Queries of Prometheus that must have no result.
    pub checks: Vec<RolloutCheck>,
    /// How long after a revision's arrival its first wave opens; the first that matches the cluster counts.
    pub delay: Vec<Delay>,
    /// Until when waves, soaks, windows, freezes, deferrals, approvals and delays do not count.
    pub urgent_until: Option<Timestamp>,
    /// What follows when more groups of a wave fail than it allows.
    pub on_failure: OnFailure,
    /// When groups switch to a revision that replaces none of their nodes.
    pub without_rotation: WithoutRotation,
    /// How long a group may make no progress before the rollout no longer waits for it.
    pub patience: SignedDuration,
    /// How many revisions are kept at least.
    pub history: usize,
}

/// A wave: groups that switch to a revision together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wave {
    /// Name, unique among the waves.
    pub name: String,
    /// Selects groups by the labels and annotations of their Namespace; an annotation wins over a label of its name.
    pub namespaces: Option<AnnotationSelector>,
    /// Selects groups by their own annotations.
    pub groups: Option<AnnotationSelector>,
    /// Which share of the affected groups that no wave before selects, and that the selectors match.
    pub percent: Option<u32>,
    /// How long the groups must have run the revision before the next wave opens.
    pub soak: SignedDuration,
    /// How many groups of the wave may fail before the rollout halts.
    pub max_failures: CountOrPercent,
    /// How many groups of the wave may replace nodes at once; `None` for all of them.
    pub max_concurrent_groups: Option<usize>,
    /// Whose approval it needs; `None` without an approval.
    pub approval: Option<Approval>,
    /// When its nodes may be replaced, beside the windows of the policy; empty for always.
    pub windows: Vec<Window>,
}

/// Whose approval a wave needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    /// An admin's, before it opens.
    Admin,
    /// That of each group's tenant, until the deadline of the deferral.
    Tenants,
}

/// What follows when more groups of a wave fail than it allows. A group that fails returns in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The rollout halts: no further group switches to the revision, and healthy groups keep it.
    #[default]
    Halt,
    /// All groups return to the revision that they came from.
    Return,
}

/// When groups switch to a revision that replaces none of their nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WithoutRotation {
    /// As soon as that is known.
    #[default]
    AtOnce,
    /// In their wave.
    Waves,
}

/// The name of the release. Without quotes, YAML makes another number of some: `2026.10` would be `2026.1`.
fn parse_release(section: &Section, value: &Value) -> Result<String, ConfigError> {
    let text = match value {
        Value::Null => return Ok(String::new()),
        Value::String(text) => text,
        _ => return Err(section.error("release", "is not a string", "write it in quotes, for example \"2026.10\"")),
    };
    if names_revision(text) {
        let message = format!("{text:?} is the number or the name of a revision, which a tenant's approval may mean");
        return Err(section.error("release", &message, "write another name, for example \"2026-08-20\""));
    }
    let length = text.chars().count();
    if length > MAX_RELEASE {
        let message = format!("has {length} characters; at most {MAX_RELEASE} are possible");
        return Err(section.error("release", &message, "write a shorter name, for example \"2026-08-20\""));
    }
    Ok(text.clone())
}

/// Whether a text may be the number or the name of a revision, such as 15 or r15. Longer numbers are dates.
fn names_revision(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix('r').unwrap_or(text);
    (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl RolloutPolicy {
    /// Parses the key; `None` when it is absent or empty.
    pub(super) fn parse(section: &Section, warnings: &mut Vec<ConfigWarning>) -> Result<Option<Self>, ErrorList> {
        if section.value.is_null() {
            return Ok(None);
        }
        let mut errors = ErrorList::default();
        let root = exact_keys(section, &section.value, "", &POLICY_KEYS, &mut errors);
        let get = |name: &str| root.get(name);
        let release = errors.ok(parse_release(section, get("release")));
        let patience = parse_duration(section, get("patience"), "patience", DEFAULT_PATIENCE);
        let policy = Self {
            release: release.clone().filter(|text| !text.is_empty()),
            waves: errors.or_default(parse_waves(section, get("waves"), warnings)),
            windows: errors.or_default(parse_windows(section, get("windows"), "windows")),
            freezes: errors.or_default(parse_freezes(section, get("freezes"))),
            deferral: errors.or_default(parse_deferral(section, get("deferral"))),
            budget: errors.or_default(BudgetPolicy::parse(section, get("budget"), warnings)),
            checks: errors.or_default(parse_checks(section, get("checks"), release.as_deref())),
            delay: errors.or_default(parse_delay(section, get("delay"))),
            urgent_until: errors.or_default(parse_urgent_until(section, get("urgentUntil"))),
            on_failure: errors.or_default(one_of(section, get("onFailure"), "onFailure", &FAILURE_WORDS)),
            without_rotation: errors.or_default(one_of(
                section,
                get("withoutRotation"),
                "withoutRotation",
                &ROTATION_WORDS,
            )),
            patience: errors.ok(patience).unwrap_or(DEFAULT_PATIENCE),
            history: errors.or_default(number(section, get("history"), "history", HISTORY)).unwrap_or(DEFAULT_HISTORY),
        };
        if policy.patience.is_zero() {
            errors.push(section.error(
                "patience",
                "is zero, so that no group could finish",
                "write a duration such as 4h",
            ));
        }
        let policy = errors.into_result(policy)?;
        policy.warn_about_approvals(section, warnings);
        Ok(Some(policy))
    }

    fn warn_about_approvals(&self, section: &Section, warnings: &mut Vec<ConfigWarning>) {
        let index = self.waves.iter().position(|wave| wave.approval == Some(Approval::Tenants));
        if let Some(index) = index.filter(|_| self.deferral.is_empty()) {
            let remedy = || "set deferral, which says how long tenants may take".to_owned();
            let path = format!("waves[{index}].approval");
            section.warn(&path, "has no effect without deferral: the deadline is over at once", remedy, warnings);
        }
    }

    /// How long tenants of a namespace may put a revision off from the opening of their wave; zero if not at all.
    pub(crate) fn deferral_of(&self, namespace: &str) -> SignedDuration {
        let found = self.deferral.iter().find(|deferral| matches_glob(&deferral.namespaces, namespace));
        found.map(|deferral| deferral.max).unwrap_or_default()
    }

    /// How long after a revision's arrival its first wave opens in a cluster. Without the cluster's name, the longest counts.
    pub(crate) fn delay_in(&self, cluster: Option<&str>) -> SignedDuration {
        let found = match cluster {
            Some(cluster) => self.delay.iter().find(|delay| matches_glob(&delay.clusters, cluster)),
            None => self.delay.iter().max_by_key(|delay| delay.by),
        };
        found.map(|delay| delay.by).unwrap_or_default()
    }

    /// The indexes of the waves whose windows and freezes leave no opening of half an hour within two weeks.
    pub(crate) fn waves_without_opening(&self, now: Timestamp) -> Vec<usize> {
        let opens = |wave: &Wave| calendar::opens_for_half_an_hour(&[&self.windows, &wave.windows], &self.freezes, now);
        self.waves.iter().enumerate().filter(|(_, wave)| !opens(wave)).map(|(index, _)| index).collect()
    }
}

/// How many revisions are kept without a value in the ConfigMap.
pub(crate) const DEFAULT_HISTORY: usize = 10;

fn parse_waves(section: &Section, value: &Value, warnings: &mut Vec<ConfigWarning>) -> Result<Vec<Wave>, ErrorList> {
    let items = section.list(value, "waves")?;
    if items.len() > MAX_WAVES {
        let message = format!("has {} items; at most {MAX_WAVES} are possible", items.len());
        return Err(section.error("waves", &message, "use fewer waves").into());
    }
    let mut waves: Vec<Wave> = vec![];
    let (mut names, mut errors) = (BTreeMap::new(), ErrorList::default());
    for (index, item) in items.iter().enumerate() {
        let at = format!("waves[{index}]");
        let before = errors.count();
        let wave = parse_wave(section, item, &at, &mut errors);
        let is_usable = errors.count() == before;
        if let Some(first) = names.insert(wave.name.clone(), index).filter(|_| !wave.name.is_empty()) {
            let message = format!("{} is also the name of waves[{first}]", wave.name);
            errors.push(section.error(&format!("{at}.name"), &message, "give each wave a name of its own"));
        }
        let is_last = index + 1 == items.len();
        for key in ["namespaces", "groups", "percent"].into_iter().filter(|key| is_last && item.get(key).is_some()) {
            let remedy = || "add a wave without a selector behind it, or remove the selector".to_owned();
            section.warn(
                &format!("{at}.{key}"),
                "has no effect: the last wave takes all groups that are left",
                remedy,
                warnings,
            );
        }
        let selects_all = wave.namespaces.is_none() && wave.groups.is_none() && wave.percent.is_none();
        if selects_all && !is_last && is_usable {
            let message = "selects every group, so the waves after it are empty";
            let remedy = || "set namespaces, groups or percent, or move it to the end".to_owned();
            section.warn(&at, message, remedy, warnings);
        }
        waves.push(wave);
    }
    if waves.is_empty() {
        waves.push(Wave {
            name: "all".to_owned(),
            namespaces: None,
            groups: None,
            percent: None,
            soak: SignedDuration::ZERO,
            max_failures: CountOrPercent::Number(0),
            max_concurrent_groups: None,
            approval: None,
            windows: vec![],
        });
    }
    errors.into_result(waves)
}

/// Parses a wave. Fields with errors have no meaning.
fn parse_wave(section: &Section, item: &Value, at: &str, errors: &mut ErrorList) -> Wave {
    let root = exact_keys(section, item, at, &WAVE_KEYS, errors);
    let get = |name: &str| root.get(name);
    let path = |name: &str| format!("{at}.{name}");
    let selector = |key: &str| {
        // `true` would be the key of an annotation that no user sets, and its wave would pass without groups.
        if let value @ (Value::Bool(_) | Value::Number(_)) = get(key) {
            let remedy = "write a selector such as 'a = b'; for all groups, leave it out";
            return Err(section.error(&path(key), &format!("{value} is not a selector"), remedy));
        }
        let text = section.text(get(key), &path(key))?;
        let parsed = AnnotationSelector::parse(&text).map_err(|problem| {
            let remedy = "use the grammar of Kubernetes label selectors, such as 'a = b, c in (d, e), !f'";
            section.error(&path(key), &format!("is not a valid selector: {problem}"), remedy)
        })?;
        Ok::<_, ConfigError>((!text.trim().is_empty()).then_some(parsed))
    };
    let percent = errors.or_default(number(section, get("percent"), &path("percent"), PERCENT));
    Wave {
        name: errors.or_default(parse_name(section, &root, at, "wave", "canary")),
        namespaces: errors.or_default(selector("namespaces")),
        groups: errors.or_default(selector("groups")),
        percent: percent.and_then(|percent| u32::try_from(percent).ok()),
        soak: errors.or_default(parse_duration(section, get("soak"), &path("soak"), SignedDuration::ZERO)),
        max_failures: errors
            .or_default(parse_amount(section, get("maxFailures"), &path("maxFailures"), "groups"))
            .unwrap_or(CountOrPercent::Number(0)),
        max_concurrent_groups: errors.or_default(number(section, get("atOnce"), &path("atOnce"), 1..=100_000)),
        approval: errors.or_default(one_of(section, get("approval"), &path("approval"), &APPROVAL_WORDS)),
        windows: errors.or_default(parse_windows(section, get("windows"), &path("windows"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundaries::Boundaries;

    fn parse(text: &str) -> Result<(Option<RolloutPolicy>, Vec<String>), String> {
        let data = [("rollout".to_owned(), text.to_owned())].into();
        let (boundaries, warnings) = Boundaries::parse(&data).map_err(|error| error.to_string())?;
        let of_rollout = warnings.iter().filter(|warning| warning.key == "rollout");
        Ok((boundaries.rollout.as_deref().cloned(), of_rollout.map(ToString::to_string).collect()))
    }

    #[test]
    fn smallest_useful_policy_has_a_canary_and_the_rest() {
        let text = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 1h}, {name: rest}]";
        let (policy, warnings) = parse(text).expect("a policy");
        let policy = policy.expect("a policy");
        assert_eq!(policy.waves.iter().map(|wave| wave.name.as_str()).collect::<Vec<_>>(), ["canary", "rest"]);
        assert_eq!(policy.waves[0].soak, SignedDuration::from_hours(1));
        assert_eq!((policy.on_failure, policy.history), (OnFailure::Halt, DEFAULT_HISTORY));
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn absent_key_is_not_a_policy_and_an_empty_one_has_one_wave() {
        assert_eq!(parse("").expect("nothing").0, None);
        assert_eq!(parse("# later").expect("nothing").0, None);
        let policy = parse("onFailure: return").expect("a policy").0.expect("a policy");
        assert_eq!((policy.waves.len(), policy.waves[0].name.as_str()), (1, "all"));
    }

    /// An admin who relies on a limit that does not exist finds out when all clusters rotate.
    #[test]
    fn each_mistake_names_its_line_field_and_remedy() {
        for (text, line, words) in [
            ("waves: 3", 1, "waves: is not a list"),
            ("waves:\n- name: a\n- name: a", 3, "waves[1].name: a is also the name of waves[0]"),
            ("waves:\n- soak: 1h", 2, "waves[0]: has no valid name"),
            ("waves:\n- name: Canary Wave", 2, "has no valid name"),
            ("waves:\n- name: a\n  soak: 90", 3, "waves[0].soak: \"90\" is not a valid duration"),
            ("waves:\n- name: a\n  soak: -1h", 3, "is not a valid duration"),
            ("waves:\n- name: a\n  percent: 0", 3, "waves[0].percent: 0 is out of range; write a whole number from 1"),
            ("waves:\n- name: a\n  percent: 101", 3, "101 is out of range"),
            ("waves:\n- name: a\n  percent: ten", 3, "is out of range"),
            ("waves:\n- name: a\n  maxFailures: 120%", 3, "is neither a number of groups nor a percentage"),
            ("waves:\n- name: a\n  maxFailures: -1", 3, "is neither a number of groups nor a percentage"),
            ("waves:\n- name: a\n  atOnce: 0", 3, "0 is out of range"),
            ("waves:\n- name: a\n  groups: 'a in'", 3, "is not a valid selector"),
            ("waves:\n- name: a\n  selector: b", 3, "selector: is not a known key of waves[0]"),
            ("wave: []", 1, "did you mean \"waves\"?"),
            ("onFailure: retry", 1, "use one of halt, return"),
            ("withoutRotation: never", 1, "use one of atOnce, waves"),
            ("patience: 0s", 1, "patience: is zero"),
            ("history: 0", 1, "history: 0 is out of range"),
            ("waves: []\nrelease: '15'", 2, "release: \"15\" is the number or the name of a revision"),
            ("release: r15", 1, "may mean; write another name, for example \"2026-08-20\""),
            (
                "release: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg",
                1,
                "release: has 64 characters",
            ),
            ("budget: 5%", 1, "budget: is not a map"),
            ("budget: {nodes: 0}", 1, "budget.nodes: 0 would block every replacement; write at least 1"),
            ("budget: {nodes: 0%}", 1, "budget.nodes: 0% would block every replacement"),
            ("budget: {nodes: many}", 1, "budget.nodes: \"many\" is neither a number of nodes nor a percentage"),
            ("budget: {zone: 101%}", 1, "budget.zone: \"101%\" is neither a number of nodes nor a percentage"),
            ("budget: {surge: 5%}", 1, "budget.surge: \"5%\" is out of range"),
            ("budget: {zones: 5%}", 1, "did you mean \"zone\"?"),
            ("[a]", 1, "is not a map"),
            ("windows:\n- {days: [mon, tues day], from: '22:00', to: '04:00', zone: UTC}", 2, "windows[0].days[1]"),
            ("windows:\n- {from: '22:00', to: '04:00'}", 2, "windows[0]: has no zone"),
            ("windows:\n- {from: '22:00', to: '04:00', zone: Europe/Berln}", 2, "did you mean Europe/Berlin?"),
            (
                "windows:\n- {from: '2200', to: '04:00', zone: UTC}",
                2,
                "windows[0].from: \"2200\" is not a valid time of day",
            ),
            ("windows:\n- {from: '22:00', zone: UTC}", 2, "windows[0]: has no time to"),
            ("windows:\n- {days: [], from: '22:00', to: '04:00', zone: UTC}", 2, "windows[0].days: is empty"),
            ("windows:\n- {hours: '22-04', zone: UTC}", 2, "hours: is not a known key of windows[0]"),
            ("waves:\n- name: a\n  windows: [{from: '1:00'}]", 3, "waves[0].windows[0]"),
            ("freezes:\n- {from: 2026-12-18, zone: UTC}", 2, "freezes[0]: has no day to"),
            ("freezes:\n- {from: 2026-12-18, to: 2026-12-01, zone: UTC}", 2, "ends before it begins"),
            ("freezes:\n- {from: 18.12.2026, to: 2026-12-01, zone: UTC}", 2, "is not a valid day"),
            ("deferral: 168h", 1, "deferral: is not a list"),
            ("deferral:\n- {max: 1h}", 2, "deferral[0]: has no namespaces"),
            ("deferral:\n- {namespaces: '*'}", 2, "deferral[0]: has no max"),
            ("delay:\n- {clusters: '*', by: soon}", 2, "\"soon\" is not a valid duration"),
            ("urgentUntil: tomorrow", 1, "is not a valid time"),
            ("checks: node-errors", 1, "checks: is not a list"),
            ("checks:\n- {query: up == 0}", 2, "checks[0]: has no valid name"),
            ("checks:\n- {name: Node Errors, query: up == 0}", 2, "checks[0].name: has no valid name"),
            ("checks:\n- {name: a}", 2, "checks[0]: has no query; write query: a PromQL expression"),
            ("checks:\n- {name: a, query: ' '}", 2, "checks[0]: has no query"),
            ("checks:\n- {name: a, query: up == 0, for: 5}", 2, "checks[0].for: \"5\" is not a valid duration"),
            ("checks:\n- {name: a, query: up == 0, for: soon}", 2, "checks[0].for: \"soon\" is not a valid duration"),
            ("checks:\n- {name: a, expr: up == 0}", 2, "expr: is not a known key of checks[0]"),
            ("checks:\n- {name: a, query: up}\n- {name: a, query: up}", 3, "checks[1].name: a is also the name of"),
            ("checks:\n- {name: a, query: 'x{r=\"$RELASE\"}'}", 2, "$RELASE is not a known variable; did you mean"),
            ("checks:\n- {name: a, query: 'x{r=\"${RELEASE}\"}'}", 2, "checks[0].query: ${ is not a known variable"),
            (
                "checks:\n- {name: a, query: 'x{r=\"$RELEASE\"}'}",
                2,
                "uses $RELEASE, and the key rollout has no release",
            ),
            ("release: 'a\"b'\nchecks:\n- {name: a, query: 'x{r=\"$RELEASE\"}'}", 3, "are not replaced safely"),
            ("waves:\n- name: a\n  approval: boss", 3, "use one of admin, tenants"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{text:?}: {error}");
            assert!(error.contains(&format!("rollout line {line}")), "{text:?}: {error}");
        }
    }

    #[test]
    fn dates_and_versions_are_names_of_releases() {
        for release in ["2026-08-20", "20260820", "202608", "2026.10", "v15", "r15-2", "release"] {
            let policy = parse(&format!("release: '{release}'")).expect(release).0.expect(release);
            assert_eq!(policy.release.as_deref(), Some(release));
        }
    }

    #[test]
    fn unreachable_waves_cause_a_warning() {
        let (_, warnings) = parse("waves: [{name: a}, {name: b, percent: 10}]").expect("a policy");
        assert!(warnings.iter().any(|text| text.contains("waves[0]") && text.contains("selects every group")));
        assert!(warnings.iter().any(|text| text.contains("waves[1].percent") && text.contains("has no effect")));
    }

    /// A policy whose windows never overlap would delay a security fix forever, without a word to the admin.
    #[test]
    fn waves_that_never_open_are_found() {
        let night = "{from: '22:00', to: '04:00', zone: UTC}";
        let text = format!(
            "windows: [{night}]\nwaves:\n- {{name: a, windows: [{{from: '12:00', to: '13:00', zone: UTC}}]}}\n- {{name: b}}"
        );
        let policy = parse(&text).expect("a policy").0.expect("a policy");
        assert_eq!(policy.waves_without_opening("2026-08-20T12:00:00Z".parse().expect("a time")), [0]);
        let frozen = format!(
            "windows: [{{days: [sat], from: '22:00', to: '04:00', zone: UTC}}]\nfreezes:\n- {{from: 2026-08-22, to: 2026-09-06, zone: UTC}}\nwaves:\n- {{name: a}}\n- {{name: b, windows: [{night}]}}"
        );
        let policy = parse(&frozen).expect("a policy").0.expect("a policy");
        let without = |now: &str| policy.waves_without_opening(now.parse().expect("a time"));
        assert_eq!(without("2026-08-21T12:00:00Z"), [0, 1], "its windows are within the freeze");
        assert_eq!(without("2026-08-30T12:00:00Z"), [0; 0], "the first Saturday after it is within two weeks");
        let (_, warnings) = parse("waves: [{name: a, approval: tenants}]").expect("a policy");
        assert!(warnings[0].contains("waves[0].approval") && warnings[0].contains("without deferral"), "{warnings:?}");
        let (_, warnings) = parse("budget: {zone: 5%}").expect("a policy");
        assert!(warnings[0].contains("budget.zone") && warnings[0].contains("set budget.nodes"), "{warnings:?}");
    }

    /// Such an update may wait for weeks in a cluster in which some node is always unavailable.
    #[test]
    fn budget_that_is_smaller_than_a_batch_of_the_defaults_is_warned_about() {
        let found = |budget: &str, managed: &str| {
            let defaults = format!("spec: {{strategy: {{managed: {{maxUnavailable: {managed}}}}}}}");
            let conditional = format!("- {{annotationSelector: big, defaults: {{{defaults}}}}}");
            let rollout = ("rollout".to_owned(), format!("budget: {{nodes: {budget}}}"));
            let warnings = [("defaults", defaults.clone()), ("conditionals", conditional)].map(|(key, text)| {
                let data = [(key.to_owned(), text), rollout.clone()].into();
                let (_, warnings) = Boundaries::parse(&data).expect("boundaries");
                warnings
                    .iter()
                    .filter(|found| found.path == "budget.nodes")
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            });
            assert_eq!(warnings[0], warnings[1]);
            warnings[0].clone()
        };
        let warned = found("2", "5");
        assert!(warned[0].starts_with("rollout line 1: budget.nodes: 2 is less than"), "{warned:?}");
        assert!(warned[0].ends_with("write at least 5, or lower maxUnavailable"), "{warned:?}");
        // What share of the nodes a batch is depends on the groups.
        for (budget, managed) in [("5", "5"), ("5%", "5"), ("2", "50%")] {
            assert_eq!(found(budget, managed), [""; 0], "{budget} {managed}");
        }
    }

    /// A check without a Prometheus server would block each change, and the admin would wait without an explanation.
    #[test]
    fn checks_that_the_flags_leave_unanswered_are_warned_about() {
        let text = "release: \"2026-08-20\"\nchecks:\n- {name: a, query: 'x{release=\"$RELEASE\"} > 1', for: 5m}\n- {name: b, query: 'y{c=\"$CLUSTER\"}'}";
        let policy = parse(text).expect("a policy").0.expect("a policy");
        assert_eq!(policy.checks[0].r#for, SignedDuration::from_mins(5));
        let data = [("rollout".to_owned(), text.to_owned())].into();
        let boundaries = Boundaries::parse(&data).expect("boundaries").0;
        assert_eq!(boundaries.flag_warnings(&data, true, true), []);
        let found = boundaries.flag_warnings(&data, false, false);
        assert!(found[0].to_string().starts_with("rollout line 3: checks: cannot be asked"), "{}", found[0]);
        assert!(found[0].remedy.contains("set that flag"), "{}", found[0]);
        assert!(found[1].to_string().starts_with("rollout line 4: checks[1].query: uses $CLUSTER"), "{}", found[1]);
        let many: Vec<_> = (0..17).map(|number| format!("- {{name: c{number}, query: up}}")).collect();
        let error = parse(&format!("checks:\n{}", many.join("\n"))).expect_err("too many");
        assert!(error.contains("checks: has 17 items; at most 16"), "{error}");
    }

    #[test]
    fn deferral_and_delay_are_those_of_the_first_match() {
        let text = "deferral: [{namespaces: 'pci-*', max: 720h}, {namespaces: '*', max: 168h}]\ndelay: [{clusters: '*-dev', by: 0s}, {clusters: '*', by: 48h}]";
        let policy = parse(text).expect("a policy").0.expect("a policy");
        let hours = SignedDuration::from_hours;
        assert_eq!((policy.deferral_of("pci-a"), policy.deferral_of("team-a")), (hours(720), hours(168)));
        let delays = [Some("eu-dev"), Some("eu-prod"), None].map(|cluster| policy.delay_in(cluster));
        assert_eq!(delays, [hours(0), hours(48), hours(48)]);
    }
}
