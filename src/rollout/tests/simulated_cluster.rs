//! A simulated cluster: groups whose nodes run contents of the ConfigMap, and the controller's passes over them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition;
use crate::api::{
    BoundariesRevision, CheckState, Condition, InstanceGroupStatus, NodeCounts, RolloutPhase, WaveState, rfc3339,
    set_condition,
};
use crate::boundaries::active::select_active;
use crate::boundaries::{ROLLOUT_KEY, content_hash};
use crate::rollout::{
    CheckAnswer, CheckResult, Checks, Current, DecisionInput, GroupSummary, GroupView, History, HistoryWrite, Images,
    KnownImpact, Patience, ProgressInput, RevisionDecision, RevisionImpact, RolloutView, Running, StoredRevision,
    SwitchReason, WaitReason, YieldingGroups, advance, choose, comes_next, corrected_conditions, corrected_record,
    next_write, query, uid_hash, used_numbers,
};

pub(super) const FAILURE_DELAY: SignedDuration = SignedDuration::from_secs(60);
pub(super) const POLL: SignedDuration = SignedDuration::from_secs(15);
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
const MAX_AGE: Duration = Duration::from_secs(120);

/// A simulated group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub key: String,
    pub uid: String,
    pub generation: i64,
    pub annotations: BTreeMap<String, String>,
    pub namespace: BTreeMap<String, String>,
    pub status: InstanceGroupStatus,
    /// The image that each node runs.
    pub nodes: Vec<String>,
    /// Images whose nodes never become Ready.
    pub bad_images: BTreeSet<String>,
    /// Images that the group cannot use.
    pub unusable_images: BTreeSet<String>,
    /// Whether AWS answers when the controller computes the impact of the target on the group.
    pub answers: bool,
    /// The controller's record of it.
    pub known: Option<KnownImpact>,
    pub locked: bool,
    /// Why it does not switch to the target, at its latest pass.
    pub waits: Option<WaitReason>,
    /// Whether a budget blocks every drain.
    pub blocked: bool,
    /// Whether a drain of it has begun that a budget blocks.
    pub draining: bool,
    /// Why that drain yields to other groups.
    pub yielding: Option<String>,
    /// Whether a change that replaces no node evicts its pods.
    pub evicts: bool,
    /// Whether its latest poll was as many polls without progress as the patience allows.
    pub stuck: bool,
    pub deleted: bool,
    /// How many of its nodes are lost.
    pub lost: i64,
    /// Whether its first node enters standby.
    pub marked: bool,
    /// Whether the cache does not have its Namespace.
    pub unseen: bool,
    /// Whether its image is an alias, which has the name of an image here.
    pub uses_alias: bool,
    /// Whether the API server refuses its status.
    pub unwritable: bool,
    /// Whether the cache does not show what the controller wrote to it.
    pub doubtful: bool,
    /// What happened, for the judges.
    pub log: Vec<RecordedAction>,
}

/// What a group did.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RecordedAction {
    /// It recorded that it switches to a content.
    Switched { image: String, number: i64, why: SwitchReason, at: Timestamp },
    /// It replaced a node.
    Replaced { from: String, to: String, at: Timestamp },
}

/// A cluster whose groups follow the rollout, without AWS and an API server.
#[derive(Clone)]
pub(super) struct SimulatedCluster {
    pub now: Timestamp,
    /// Text of the key `rollout`.
    pub policy: Option<String>,
    pub image: String,
    /// A default that replaces no node.
    pub tag: String,
    /// A comment, which changes nothing of any group.
    pub comment: String,
    /// Text of the key `policy`.
    pub rules: String,
    /// Whether a poll found no rollout, so that every group took what the ConfigMap has.
    pub released: bool,
    /// Why the ConfigMap lets no group take anything.
    pub config_problem: Option<String>,
    pub groups: Vec<Group>,
    pub revisions: Vec<BoundariesRevision>,
    /// How many revisions are kept.
    pub kept: usize,
    ready: Vec<String>,
    versions: i64,
    known: Option<Arc<RolloutView>>,
    known_policy: Option<String>,
    pub writes: usize,
    /// How long this process saw the waves soak by its monotonic clock; `None` when they began before it.
    pub soaked: Option<SignedDuration>,
    /// How many groups of each wave replace nodes.
    running: Running,
    patience: Patience,
    /// Whether this leader has read what the one before counted.
    is_seeded: bool,
    yielding: YieldingGroups,
    /// Whether nodes that are unavailable for another reason use the budget up.
    pub budget_used_up: bool,
    /// What Prometheus answers to each check; without an answer it is unknown.
    pub answers: BTreeMap<String, CheckState>,
    /// The queries that were sent to Prometheus.
    pub asked: Vec<String>,
    /// What it answered to which check and when.
    pub answered: Vec<(Instant, String, CheckState)>,
    checks: Checks,
    /// The time of the monotonic clock.
    pub monotonic: Instant,
}

/// A canary, which soaks for ten minutes, and the rest.
pub(super) const CANARY: &str = "waves: [{name: canary, namespaces: 'rollout/wave = canary', soak: 10m}, {name: rest}]";

/// A group of the wave `canary`.
pub(super) fn canary(name: &str) -> Group {
    Group { namespace: [("rollout/wave".to_owned(), "canary".to_owned())].into(), ..group(name) }
}

pub(super) fn group(name: &str) -> Group {
    Group {
        key: format!("team/{name}"),
        uid: format!("uid-{name}"),
        generation: 1,
        annotations: BTreeMap::new(),
        namespace: BTreeMap::new(),
        status: InstanceGroupStatus::default(),
        nodes: vec!["ami-1".into(); 2],
        bad_images: BTreeSet::new(),
        unusable_images: BTreeSet::new(),
        answers: true,
        known: None,
        locked: false,
        waits: None,
        blocked: false,
        draining: false,
        yielding: None,
        evicts: false,
        stuck: false,
        deleted: false,
        lost: 0,
        marked: false,
        unseen: false,
        uses_alias: false,
        unwritable: false,
        doubtful: false,
        log: vec![],
    }
}

impl SimulatedCluster {
    /// A cluster whose groups all run `ami-1`, whose rollout is complete.
    pub(super) fn new(policy: &str, groups: Vec<Group>) -> Self {
        Self::with_rules(policy, "", groups)
    }

    /// The same with a text of the key `policy`.
    pub(super) fn with_rules(policy: &str, rules: &str, groups: Vec<Group>) -> Self {
        let mut cluster = SimulatedCluster {
            now: Timestamp::from_second(1_800_000_000).expect("a time"),
            policy: Some(policy.to_owned()),
            image: "ami-1".into(),
            tag: "one".into(),
            comment: String::new(),
            rules: rules.to_owned(),
            released: false,
            config_problem: None,
            groups,
            revisions: vec![],
            kept: History::default().kept,
            ready: vec![],
            versions: 0,
            known: None,
            known_policy: None,
            writes: 0,
            soaked: None,
            running: Running::default(),
            patience: Patience::default(),
            is_seeded: false,
            yielding: YieldingGroups::default(),
            budget_used_up: false,
            answers: BTreeMap::new(),
            asked: vec![],
            answered: vec![],
            checks: Checks::default(),
            monotonic: Instant::now(),
        };
        cluster.run(20);
        assert_eq!(cluster.phase("r1"), RolloutPhase::Complete, "{:?}", cluster.revisions[0].status);
        cluster.groups.iter_mut().for_each(|group| group.log.clear());
        cluster
    }

    pub(super) fn data(&self) -> BTreeMap<String, String> {
        let defaults = format!(
            "spec: {{eks: {{configuration: {{image: {}, tags: [{{key: t, value: {}}}]}}}}}} # {}",
            self.image, self.tag, self.comment
        );
        let policy = self.policy.iter().map(|text| (ROLLOUT_KEY.to_owned(), text.clone()));
        let restricted = "restricted: [spec.eks.configuration.image, spec.eks.configuration.tags]".to_owned();
        let rules = Some(("policy".to_owned(), self.rules.clone())).filter(|(_, text)| !text.is_empty());
        let texts = [("boundaries".to_owned(), restricted), ("defaults".to_owned(), defaults)];
        texts.into_iter().chain(policy).chain(rules).collect()
    }

    pub(super) fn revision(&mut self, name: &str) -> &mut BoundariesRevision {
        let found = self.revisions.iter_mut().find(|revision| revision.metadata.name.as_deref() == Some(name));
        found.expect("the revision is stored")
    }

    pub(super) fn phase(&self, name: &str) -> RolloutPhase {
        self.phase_of(name).expect("a phase")
    }

    pub(super) fn phase_of(&self, name: &str) -> Option<RolloutPhase> {
        let found = self.revisions.iter().find(|revision| revision.metadata.name.as_deref() == Some(name));
        found?.status.as_ref()?.phase
    }

    /// The number of the newest revision with a hash.
    pub(super) fn number_of(&self, hash: &str) -> Option<i64> {
        let found = self.revisions.iter().filter(|revision| revision.spec.hash == hash);
        found.map(|revision| revision.spec.number).max()
    }

    /// The name of the newest revision.
    pub(super) fn newest(&self) -> String {
        self.revisions.last().and_then(|revision| revision.metadata.name.clone()).expect("a revision")
    }

    pub(super) fn waves(&self, name: &str) -> Vec<(String, WaveState)> {
        let found = self.revisions.iter().find(|revision| revision.metadata.name.as_deref() == Some(name));
        let waves = found.and_then(|found| found.status.clone()).map(|status| status.waves).unwrap_or_default();
        waves.into_iter().map(|wave| (wave.name, wave.state.unwrap_or_default())).collect()
    }

    pub(super) fn group(&mut self, name: &str) -> &mut Group {
        self.groups.iter_mut().find(|group| group.key == format!("team/{name}")).expect("the group exists")
    }

    /// The image of each group's nodes.
    pub(super) fn images(&self) -> Vec<String> {
        let image = |group: &Group| {
            let images: BTreeSet<&String> = group.nodes.iter().collect();
            images.into_iter().cloned().collect::<Vec<_>>().join("+")
        };
        self.groups.iter().filter(|group| !group.deleted).map(image).collect()
    }

    /// Stores the content of the ConfigMap, as its watch does.
    pub(super) fn store(&mut self) {
        let data = self.data();
        let needed = self.groups.iter().flat_map(|group| group.needs().into_iter().cloned()).collect();
        let policy_under_way = self.known.as_ref().and_then(|view| view.policy_under_way());
        let used_numbers = self.groups.iter().flat_map(|group| used_numbers(&group.status)).collect();
        let history = History { kept: self.kept, needed, policy_under_way, used_numbers, ..History::default() };
        let current = Current { data: &data, from: Default::default() };
        while let Some(step) = next_write(&self.revisions, None, &current, &history, "im") {
            match step {
                HistoryWrite::Create(mut revision) => {
                    revision.metadata.resource_version = Some("1".into());
                    revision.metadata.uid = revision.metadata.name.clone();
                    revision.metadata.creation_timestamp = Some(Time(self.now));
                    self.revisions.push(*revision);
                }
                HistoryWrite::Delete { name, .. } => {
                    self.revisions.retain(|revision| revision.metadata.name.as_ref() != Some(&name));
                }
            }
        }
    }

    pub(super) fn view(&mut self) -> Option<Arc<RolloutView>> {
        let data = self.data();
        let hash = content_hash(&data);
        let known = self.known.as_ref().filter(|known| known.target.hash == hash && self.policy == self.known_policy);
        let active = match known {
            Some(known) => known.target.active.clone(),
            None => Arc::new(select_active(Some(&data), None, true).0),
        };
        self.known_policy.clone_from(&self.policy);
        let view = RolloutView::new(&self.revisions, &active, self.known.as_deref(), Some("prod"));
        let view = view.map(|view| {
            Arc::new(RolloutView {
                config_problem: self.config_problem.clone().or(view.config_problem.clone()),
                ..view
            })
        });
        self.known.clone_from(&view);
        view
    }

    /// The rollout as the next poll finds it, with the orders of now.
    pub(super) fn next_view(&self) -> Option<Arc<RolloutView>> {
        let mut next = self.clone();
        next.now += POLL;
        next.store();
        next.view()
    }

    /// Polls `count` times.
    pub(super) fn run(&mut self, count: usize) {
        (0..count).for_each(|_| self.poll());
    }

    /// Polls until something is so; panics when that takes too long.
    pub(super) fn run_until(&mut self, is_so: impl Fn(&SimulatedCluster) -> bool) {
        for _ in 0..200 {
            if is_so(self) {
                return;
            }
            self.poll();
        }
        panic!("it does not happen: {:?}", self.revisions.last().and_then(|found| found.status.clone()));
    }

    /// Polls until a time has come.
    pub(super) fn run_until_time(&mut self, time: Timestamp) {
        while self.now < time {
            self.now = (self.now + SignedDuration::from_mins(5)).min(time - POLL);
            self.poll();
        }
    }

    /// Whether waves do not count now.
    pub(super) fn is_urgent(&self) -> bool {
        self.known.as_ref().is_some_and(|view| view.urgent_until(self.now).is_some())
    }

    /// What a wave waits for, by its status.
    pub(super) fn why(&self, name: &str, wave: &str) -> Option<String> {
        let found = self.revisions.iter().find(|revision| revision.metadata.name.as_deref() == Some(name));
        found?.status.as_ref()?.waves.iter().find(|found| found.name == wave)?.why.clone()
    }

    /// Polls until nothing changes for a while; panics when that takes too long.
    pub(super) fn run_until_stable(&mut self) {
        for _ in 0..400 {
            let before = self.writes;
            let images = self.images();
            // Longer than the soaks of the tests.
            self.run(50);
            if self.writes == before && self.images() == images {
                return;
            }
        }
        panic!("the cluster does not come to rest: {:?}", self.revisions.last().and_then(|r| r.status.clone()));
    }

    /// The leader is replaced: what it remembered is lost.
    pub(super) fn restart(&mut self) {
        self.ready.clear();
        self.running = Running::default();
        self.patience = Patience::default();
        self.is_seeded = false;
        self.yielding = YieldingGroups::default();
        self.groups.iter_mut().for_each(|group| group.known = None);
        self.checks = Checks::default();
    }

    /// The next process may be another release, and parses everything again.
    pub(super) fn upgrade(&mut self) {
        self.known = None;
        self.restart();
    }

    /// How many groups of a wave wait, by reason.
    pub(super) fn waiting(&self, name: &str, wave: &str) -> BTreeMap<String, i64> {
        let found = self.revisions.iter().find(|revision| revision.metadata.name.as_deref() == Some(name));
        let waves = found.and_then(|found| found.status.as_ref()).map(|status| status.waves.as_slice());
        let found = waves.unwrap_or_default().iter().find(|found| found.name == wave);
        found.map(|wave| wave.waiting.clone()).unwrap_or_default()
    }

    /// The state of a check in the status.
    pub(super) fn check(&self, revision: &str, name: &str) -> Option<CheckState> {
        let found = self.revisions.iter().find(|found| found.metadata.name.as_deref() == Some(revision));
        found?.status.as_ref()?.checks.iter().find(|check| check.name == name)?.state
    }

    /// Runs the queries that are due, and returns the results of the checks.
    pub(super) fn ask_checks(&mut self, view: &RolloutView) -> Vec<CheckResult> {
        let due = view.policy.checks.iter().filter(|_| view.asks_checks()).filter_map(|check| {
            let query = query(view, check, Some("prod")).ok()?;
            let is_due = self.checks.is_due(&check.name, &query, CHECK_INTERVAL, self.monotonic);
            is_due.then_some((check.name.clone(), query))
        });
        for (name, query) in due.collect::<Vec<_>>() {
            let state = self.answers.get(&name).copied().unwrap_or_default();
            self.answered.push((self.monotonic, name.clone(), state));
            let answer = match state {
                CheckState::Unknown => CheckAnswer::unknown("connection refused"),
                state => CheckAnswer {
                    state,
                    message: (state == CheckState::Failing).then(|| "the query has a result".into()),
                },
            };
            self.checks.record(&name, &query, answer, self.monotonic, MAX_AGE);
            self.asked.push(query);
        }
        self.checks.results(view, Some("prod"), MAX_AGE, self.monotonic)
    }

    /// One poll: each group is reconciled, then the rollout is advanced.
    pub(super) fn poll(&mut self) {
        self.now += POLL;
        self.monotonic += POLL.unsigned_abs();
        self.store();
        let Some(view) = self.view() else { return self.take_live_content() };
        for index in 0..self.groups.len() {
            self.reconcile(index, &view);
        }
        self.advance_rollout();
    }

    /// Without a rollout, every group has what the ConfigMap has.
    pub(super) fn take_live_content(&mut self) {
        let data = self.data();
        let active = Arc::new(select_active(Some(&data), None, true).0);
        let newest = self.revisions.last().expect("a revision");
        let (hash, name, number) = (newest.spec.hash.clone(), self.newest(), newest.spec.number);
        let (texts, images, own_images) = (content_hash(&data), Arc::default(), Images::new());
        let stored = StoredRevision {
            name,
            number,
            hash,
            created: None,
            begun: None,
            active,
            images,
            texts,
            own_images,
            has_lost_images: false,
            names: vec![],
            is_complete: true,
            stop: None,
            is_restored: false,
        };
        for group in self.groups.iter_mut().filter(|group| !group.deleted) {
            group.status.boundaries_revision = Some(stored.hash.clone());
            group.rotate(&stored, group.locked || group.blocked, self.now);
        }
        self.released = true;
    }

    /// One reconcile of a group: it replaces one node for the content that it has. One that records another content is
    /// followed at once by one that plans with it.
    pub(super) fn reconcile(&mut self, index: usize, view: &RolloutView) {
        if self.groups[index].deleted || self.groups[index].unseen {
            return;
        }
        if self.reconcile_once(index, view) {
            self.reconcile_once(index, view);
        }
    }

    /// Returns whether the group took another content.
    fn reconcile_once(&mut self, index: usize, view: &RolloutView) -> bool {
        if !self.running.is_known(view) {
            self.running.count(view, self.groups.iter().filter(|group| !group.deleted).map(|group| &group.status));
        }
        self.assess(index, view);
        let (choice, _) = self.decide(index, view);
        let now = self.now;
        let waits_for_budget = self.waits_for_budget(index, view);
        let group = &mut self.groups[index];
        let takes = matches!(choice, RevisionDecision::Switch(_));
        match choice {
            RevisionDecision::Switch(_) if group.unwritable => return false,
            RevisionDecision::Switch(switch) => {
                if let Some(index) =
                    view.policy.waves.iter().position(|wave| Some(&wave.name) == switch.record.wave.as_ref())
                {
                    self.running.count_switch(index, &group.key);
                }
                let image = image_of(&switch.content);
                group.waits = None;
                group.status.boundaries_revision = Some(switch.content.hash.clone());
                group.status.rollout = Some(switch.record);
                group.log.push(RecordedAction::Switched {
                    image,
                    number: switch.content.number,
                    why: switch.why,
                    at: now,
                });
                self.writes += 1;
            }
            RevisionDecision::Use { content: Some(content), rollout_block, waits } => {
                group.waits = waits.map(|wait| wait.reason);
                // Its tenant decides alone.
                let is_excluded = content.active.excludes("team", &group.namespace);
                let begins_nothing = is_excluded || rollout_block.is_some() || group.locked;
                let image = image_of(&content);
                group.draining = group.blocked
                    && !begins_nothing
                    && !waits_for_budget
                    && group.nodes.iter().any(|node| *node != image);
                if let Some(record) = corrected_record(&group.status, now) {
                    group.status.rollout = Some(record);
                }
                group.status.conditions = corrected_conditions(&group.status, now);
                let is_locked = begins_nothing || waits_for_budget || group.blocked;
                group.rotate(&content, is_locked, now);
            }
            // Its condition is written.
            RevisionDecision::Use { content: None, waits, .. } => {
                group.waits = waits.map(|wait| wait.reason);
                group.status.observed_generation = Some(group.generation);
            }
        }
        takes
    }

    /// Whether the blocked drain of another group uses the budget up, and the group has no drain of its own.
    fn waits_for_budget(&self, index: usize, view: &RolloutView) -> bool {
        let mut others = self.groups.iter().enumerate().filter(|(other, _)| *other != index);
        view.policy.budget.is_set() && !self.groups[index].draining && others.any(|(_, other)| other.draining)
    }

    /// Finds out what the target would do to a group, as each reconcile does.
    fn assess(&mut self, index: usize, view: &RolloutView) {
        let group = &mut self.groups[index];
        let (inputs, retries) = (group.forecast_inputs(view), view.orders.retries);
        let before = group.known_forecast(view);
        if before.may_change() {
            let forecast = if group.answers { group.forecast(view) } else { RevisionImpact::Unknown };
            group.known = Some(KnownImpact { inputs, retries, forecast: forecast.or(before) });
        }
    }

    fn decide(&self, index: usize, view: &RolloutView) -> (RevisionDecision, RevisionImpact) {
        let group = &self.groups[index];
        let forecast = group.known_forecast(view);
        let lock = group.locked.then_some("the annotation lock-upgrades");
        let group_view = group.group_view(&forecast, lock);
        let merged_hash = |content: &StoredRevision| Some(format!("{}/{}", content.hash, group.generation));
        let input = DecisionInput {
            view,
            group: group_view,
            merged_hash: &merged_hash,
            uses_alias: &|_| group.uses_alias,
            has_room: &|wave| self.running.has_room(view, wave, &group.key),
            budget_used_up: &|| {
                let drains = |other: &Group| other.key != group.key && other.draining;
                let is_used_up = self.budget_used_up || self.groups.iter().any(drains);
                (is_used_up && view.policy.budget.is_set()).then(|| view.policy.budget.to_string())
            },
            failure_delay: FAILURE_DELAY,
            now: self.now,
        };
        (choose(&input), forecast)
    }

    /// The groups that replace nodes for the target next.
    pub(super) fn next(&mut self) -> Vec<String> {
        let view = self.view().expect("a rollout");
        let is_next = |index: &usize| {
            let (choice, forecast) = self.decide(*index, &view);
            let group = &self.groups[*index];
            let lock = group.locked.then_some("the annotation lock-upgrades");
            comes_next(&view, &group.group_view(&forecast, lock), &choice)
        };
        (0..self.groups.len()).filter(is_next).map(|index| self.groups[index].key.clone()).collect()
    }

    /// One poll of the rollout.
    pub(super) fn advance_rollout(&mut self) {
        let Some(view) = self.view() else { return };
        let patience = view.policy.patience.unsigned_abs();
        if !std::mem::replace(&mut self.is_seeded, true) {
            self.patience.seed(&view.status.slow, patience, self.monotonic);
        }
        let (mut summary, mut stuck) = (GroupSummary::new(&view), BTreeMap::new());
        for index in 0..self.groups.len() {
            summary.unseen += usize::from(self.groups[index].unseen);
            if !self.groups[index].deleted && !self.groups[index].unseen {
                let (choice, forecast) = self.decide(index, &view);
                let lock = self.groups[index].locked.then_some("the annotation lock-upgrades");
                let group = &self.groups[index];
                let stops = view.orders.paused || !view.phase().replaces_nodes();
                let is_blocked_by_rollout = matches!(choice, RevisionDecision::Use { rollout_block: Some(_), .. });
                let is_blocked = stops || is_blocked_by_rollout || self.waits_for_budget(index, &view);
                let status = Some(&group.status);
                let is_stuck =
                    self.patience.track(&group.key, status, choice.switches_to(), patience, is_blocked, self.monotonic);
                summary.add(&view, &group.group_view(&forecast, lock), &choice, group.stuck || is_stuck);
                if group.doubtful {
                    summary.add_doubtful(&view, &group.group_view(&forecast, lock));
                }
                if is_stuck {
                    let blocker = group.draining.then(|| "its PodDisruptionBudget".to_owned());
                    stuck.insert(group.key.clone(), blocker);
                }
            }
        }
        summary.slow = self.patience.slow_groups(patience);
        self.running.update(&view, &summary);
        self.yielding.update(&view, &summary, stuck);
        self.groups.iter_mut().for_each(|group| group.yielding = self.yielding.reason(&group.key));
        let checks = self.ask_checks(&view);
        let progress = advance(&ProgressInput {
            view: &view,
            summary: &summary,
            assessment_limit: SignedDuration::from_mins(10),
            soaked: &|_| self.soaked,
            checks: &checks,
            was_ready: &|wave| self.ready.iter().any(|ready| ready == wave),
            now: self.now,
        });
        self.ready = progress.ready;
        self.versions += 1;
        let version = self.versions.to_string();
        let target = view.target.name.clone();
        if view.status != progress.status {
            self.writes += 1;
        }
        let revision = self.revision(&target);
        revision.status = Some(progress.status);
        revision.metadata.resource_version = Some(version);
        for old in &view.superseded {
            self.revision(&old.name).status.get_or_insert_default().phase = Some(old.phase);
        }
    }
}

/// The image in the defaults of a content.
pub(super) fn image_of(content: &StoredRevision) -> String {
    defaults_of(content)["eks"]["configuration"]["image"].as_str().unwrap_or_default().to_owned()
}

thread_local! {
    /// What was merged before: simulations of weeks ask for the same few contents a million times.
    static MERGED: RefCell<BTreeMap<[String; 2], Arc<serde_json::Value>>> = RefCell::default();
}

/// What a content makes of an empty group.
fn defaults_of(content: &StoredRevision) -> Arc<serde_json::Value> {
    let merge = || {
        let boundaries = content.active.boundaries.as_ref().expect("boundaries");
        crate::boundaries::merge(boundaries, &serde_json::json!({"spec": {}}), false).expect("it merges").spec.into()
    };
    let key = [content.hash.clone(), content.texts.clone()];
    MERGED.with_borrow_mut(|merged| merged.entry(key).or_insert_with(merge).clone())
}

/// Whether two contents make the same of a group.
pub(super) fn have_same_effect(one: &StoredRevision, other: &StoredRevision) -> bool {
    defaults_of(one) == defaults_of(other)
}

impl Group {
    pub(super) fn group_view<'a>(&'a self, forecast: &'a RevisionImpact, lock: Option<&'a str>) -> GroupView<'a> {
        GroupView {
            key: &self.key,
            uid_hash: uid_hash(&self.uid),
            generation: self.generation,
            is_deleting: self.deleted,
            status: &self.status,
            annotations: &self.annotations,
            namespace: "team",
            namespace_annotations: &self.namespace,
            namespace_texts: &self.namespace,
            lock,
            forecast,
            has_marked_nodes: self.marked,
            yielding: self.yielding.as_deref(),
            has_lost_status: self.status.boundaries_revision.is_none()
                && self.status.config_md5.is_none()
                && self.status.nodes.is_none()
                && !self.nodes.is_empty(),
        }
    }

    /// The hashes of what it has, and of what it would return to.
    pub(super) fn needs(&self) -> Vec<&String> {
        let previous = self.status.rollout.as_ref().and_then(|record| record.previous.as_ref());
        self.status.boundaries_revision.iter().chain(previous).collect()
    }

    /// Whether the target makes the same of it as the revision that its status names.
    pub(super) fn is_unchanged_by(&self, view: &RolloutView) -> bool {
        let own = self.status.boundaries_revision.as_deref().and_then(|hash| view.stored.get(hash));
        own.is_some_and(|own| have_same_effect(own, &view.target))
    }

    /// Whether AWS does not answer, and has not yet answered what the target changes in it.
    pub(super) fn is_unassessed(&self, view: &RolloutView) -> bool {
        !self.answers && self.known_forecast(view) == RevisionImpact::Unknown
    }

    fn forecast_inputs(&self, view: &RolloutView) -> String {
        let settled = self.status.rollout.as_ref().and_then(|record| record.settled.as_ref());
        let own = &self.status.boundaries_revision;
        format!("{} {} {own:?} {settled:?} {}", self.uid, self.generation, view.target.hash)
    }

    fn known_forecast(&self, view: &RolloutView) -> RevisionImpact {
        let known = self.known.as_ref().map(|known| known.get(&self.forecast_inputs(view), view.orders.retries));
        known.unwrap_or_default()
    }

    fn forecast(&self, view: &RolloutView) -> RevisionImpact {
        let target = image_of(&view.target);
        let own = self.status.boundaries_revision.as_deref().and_then(|hash| view.stored.get(hash));
        if own.is_some_and(|own| own.hash == view.target.hash || have_same_effect(own, &view.target)) {
            return RevisionImpact::Untouched;
        }
        if self.unusable_images.contains(&target) {
            return RevisionImpact::CannotUse {
                reason: "ImageNotFound".into(),
                message: format!("{target} does not exist"),
            };
        }
        match self.nodes.iter().filter(|image| **image != target).count() {
            0 if self.evicts => RevisionImpact::Evict { nodes: self.nodes.len() },
            0 if !self.nodes.is_empty() => RevisionImpact::InPlace,
            nodes => RevisionImpact::Rotate { nodes },
        }
    }

    /// One pass of a rotation: at most one node is unavailable, and a rotation halts on a node that does not become Ready.
    fn rotate(&mut self, content: &StoredRevision, is_locked: bool, now: Timestamp) {
        let image = image_of(content);
        if self.status.boundaries_revision.is_none() {
            self.status.boundaries_revision = Some(content.hash.clone());
        }
        self.status.config_md5 = Some(format!("{}/{}", content.hash, self.generation));
        self.status.observed_generation = Some(self.generation);
        let is_bad = self.nodes.iter().any(|node| *node == image && self.bad_images.contains(node));
        let halted = Condition::new(condition::ROTATION_HALTED, is_bad, "ReplacementsNotReady", "no node became Ready");
        set_condition(&mut self.status.conditions, halted, &rfc3339(now));
        // A replacement that is not Ready is replaced by one with other content, but none follows it.
        let unready = self.nodes.iter().position(|node| *node != image && self.bad_images.contains(node));
        let outdated = unready.or_else(|| self.nodes.iter().position(|node| *node != image).filter(|_| !is_bad));
        if let Some(index) = outdated.filter(|_| !is_locked) {
            self.log.push(RecordedAction::Replaced { from: self.nodes[index].clone(), to: image.clone(), at: now });
            self.nodes[index] = image.clone();
        }
        let count = |matches: bool| {
            let found = self.nodes.iter().filter(|node| (**node == image) == matches).count();
            i64::try_from(found).unwrap_or_default()
        };
        let desired = i64::try_from(self.nodes.len()).unwrap_or_default();
        self.status.nodes = Some(NodeCounts {
            desired,
            ready: desired - self.lost,
            updated: count(true),
            outdated: count(false),
            ..Default::default()
        });
        let is_ready = outdated.is_none() && !is_bad && !self.stuck;
        let is_recorded = self.status.boundaries_revision.as_ref() == Some(&content.hash);
        let unsettled = self.status.rollout.as_mut().filter(|record| record.settled.is_none());
        if let Some(record) = unsettled.filter(|_| is_ready && is_recorded) {
            record.settled = Some(rfc3339(now));
        }
    }

    /// Images of the contents that it switched to because its wave was open.
    pub(super) fn wave_images(&self) -> Vec<&str> {
        let by_wave = self.log.iter().filter_map(|action| match action {
            RecordedAction::Switched { image, why: SwitchReason::Wave(_) | SwitchReason::Approved(_), .. } => {
                Some(image.as_str())
            }
            RecordedAction::Switched { .. } | RecordedAction::Replaced { .. } => None,
        });
        by_wave.collect()
    }
}

/// The hash of a content with an image, as a group's status names it.
pub(super) fn hash_of(cluster: &SimulatedCluster) -> String {
    content_hash(&cluster.data())
}
