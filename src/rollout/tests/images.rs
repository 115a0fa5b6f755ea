//! The images that aliases resolve to, from revision to revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{BoundariesRevision, RolloutPhase};
use crate::boundaries::ROLLOUT_KEY;
use crate::boundaries::active::select_active;
use crate::index::image_aliases::ImageAliases;
use crate::rollout::{
    Current, History, HistoryWrite, Images, RolloutView, is_confirmed, may_move_images, moved, next_write, with_images,
    without_images,
};

const ALIAS: &str = "amazon-linux-2023/x86_64/standard/recommended";

fn data(instance_type: &str) -> BTreeMap<String, String> {
    let defaults = format!("spec: {{eks: {{configuration: {{image: latest, instanceType: {instance_type}}}}}}}");
    [("defaults".to_owned(), defaults), (ROLLOUT_KEY.to_owned(), "waves: [{name: all}]".to_owned())].into()
}

fn images(image: &str) -> Images {
    [(ALIAS.to_owned(), image.to_owned())].into()
}

/// The stored revisions, and the texts of the ConfigMap.
struct Cluster {
    stored: Vec<BoundariesRevision>,
    live: BTreeMap<String, String>,
}

impl Cluster {
    /// The first revision is complete, and its groups met an image.
    fn new() -> Self {
        let mut cluster = Self { stored: vec![], live: data("a") };
        cluster.store();
        cluster.newest().status.get_or_insert_default().images = images("ami-1");
        cluster.set_phase(RolloutPhase::Complete);
        cluster
    }

    fn newest(&mut self) -> &mut BoundariesRevision {
        self.stored.last_mut().expect("a revision")
    }

    fn add(&mut self, mut revision: BoundariesRevision) {
        revision.metadata.resource_version = Some("1".into());
        revision.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        self.stored.push(revision);
    }

    fn store(&mut self) {
        let live = self.live.clone();
        let current = Current { data: &live, from: Default::default() };
        while let Some(HistoryWrite::Create(revision)) =
            next_write(&self.stored, None, &current, &History::default(), "im")
        {
            self.add(*revision);
        }
    }

    fn set_phase(&mut self, phase: RolloutPhase) {
        self.newest().status.get_or_insert_default().phase = Some(phase);
    }

    fn view(&self) -> RolloutView {
        let active = Arc::new(select_active(Some(&self.live), None, true).0);
        RolloutView::new(&self.stored, &active, None, None).expect("a rollout")
    }

    /// AWS publishes an image, and the leader sees it.
    fn publish(&mut self, image: &str) -> bool {
        let view = self.view();
        let found = moved(&self.stored, &view, &images(image));
        let stores = may_move_images(&self.stored, &view) && !found.is_empty();
        if stores {
            let (used, time) = (Default::default(), "2026-01-01T00:00:00Z".into());
            let revision = with_images(&self.stored, &view, &found, &self.live, &used, time);
            self.add(revision.expect("a revision"));
        }
        stores
    }
}

#[test]
fn new_image_is_a_revision_of_the_same_texts() {
    let mut cluster = Cluster::new();
    assert!(!cluster.publish("ami-1"), "it is the image that groups have");
    assert!(cluster.publish("ami-2"));
    let view = cluster.view();
    assert_eq!((view.target.name.as_str(), view.target.images[ALIAS].as_str()), ("r2", "ami-2"));
    let stable = view.stable.clone().expect("r1");
    assert_eq!((stable.name.as_str(), stable.images[ALIAS].as_str()), ("r1", "ami-1"), "groups that wait keep theirs");
    assert_ne!(stable.hash, view.target.hash);
    assert_eq!(view.target.active.revision, view.target.hash, "what the status of groups names");
    assert!(view.is_image_change() && !view.is_return());
    let from = &cluster.newest().spec.from;
    assert_eq!(
        (from.manager.as_str(), from.change.as_str()),
        ("AWS", format!("image {ALIAS}: ami-1 -> ami-2").as_str())
    );
    assert!(!cluster.publish("ami-3"), "a rollout that is under way does not begin again");
    cluster.set_phase(RolloutPhase::Complete);
    assert!(cluster.publish("ami-3"));
}

/// EKS upgrades the control plane, and AWS names another image for the new version. It reaches the groups in waves, and those
/// that wait launch the image of before.
#[test]
fn upgrade_of_the_control_plane_is_a_revision_that_waits_for_its_wave() {
    let (mut cluster, aliases) = (Cluster::new(), ImageAliases::default());
    let publishes = [("/1.33/al2023", "ami-1"), ("/1.34/al2023", "ami-134")];
    for (parameter, image) in publishes {
        aliases.note(ALIAS, parameter);
        let asked = aliases.parameters();
        let answer = publishes.iter().find(|(parameter, _)| *parameter == asked[ALIAS]).expect("AWS has it").1;
        assert_eq!((answer, cluster.publish(answer)), (image, image == "ami-134"), "{parameter}");
    }
    let view = cluster.view();
    let stable = view.stable.clone().expect("r1");
    assert_eq!((view.target.images[ALIAS].as_str(), stable.images[ALIAS].as_str()), ("ami-134", "ami-1"));
    assert!(!view.is_return() && !view.is_wave_open(0, Timestamp::UNIX_EPOCH), "it waits for its wave");
    assert!(!aliases.first().contains_key(ALIAS), "no group takes it as the first image");
}

/// An image that failed must not roll out again with the next poll, nor with the next change of the ConfigMap.
#[test]
fn image_of_an_aborted_revision_does_not_roll_out_again() {
    let mut cluster = Cluster::new();
    assert!(cluster.publish("ami-2"));
    cluster.set_phase(RolloutPhase::Aborted);
    assert!(!cluster.publish("ami-2"));
    assert_eq!(cluster.view().remedy_of_return(), "name an AMI in the ConfigMap, or wait for the next image of AWS");
    cluster.live = data("b");
    cluster.store();
    assert_eq!(cluster.view().target.images[ALIAS], "ami-1");
    cluster.set_phase(RolloutPhase::Complete);
    assert!(!cluster.publish("ami-2"));
    assert!(cluster.publish("ami-3"));
}

/// Someone clears the status of the aborted revision, which showed that its groups had returned. The order is still there, also
/// where an earlier release has recorded the revision as superseded since.
#[test]
fn image_of_an_aborted_revision_does_not_roll_out_again_when_its_status_is_lost() {
    for is_recorded_as_superseded in [false, true] {
        let mut cluster = Cluster::new();
        assert!(cluster.publish("ami-2"));
        cluster.newest().spec.orders.aborted = true;
        cluster.set_phase(RolloutPhase::Aborted);
        cluster.live = data("b");
        cluster.store();
        cluster.set_phase(RolloutPhase::Complete);
        cluster.stored[1].status = None;
        if is_recorded_as_superseded {
            cluster.stored[1].status.get_or_insert_default().phase = Some(RolloutPhase::Superseded);
        } else {
            let found = cluster.view().superseded;
            let phases: Vec<_> = found.iter().map(|old| (old.name.as_str(), old.phase)).collect();
            assert_eq!(phases, [("r2", RolloutPhase::Aborted)], "what is recorded again");
        }
        assert!(!cluster.publish("ami-2"));
        cluster.live = data("c");
        cluster.store();
        assert_eq!(cluster.newest().spec.images, images("ami-1"));
        cluster.set_phase(RolloutPhase::Complete);
        assert!(!cluster.publish("ami-2"));
        assert!(cluster.publish("ami-3"));
    }
}

/// An admin who aborts a change, and edits something else before all groups have returned, has still aborted the image.
#[test]
fn image_of_an_interrupted_return_does_not_roll_out_again() {
    let mut cluster = Cluster::new();
    assert!(cluster.publish("ami-2"));
    cluster.set_phase(RolloutPhase::Returning);
    cluster.live = data("b");
    cluster.store();
    for old in cluster.view().superseded {
        let found = cluster.stored.iter_mut().find(|revision| revision.metadata.name.as_ref() == Some(&old.name));
        found.expect("the revision").status.get_or_insert_default().phase = Some(old.phase);
    }
    cluster.set_phase(RolloutPhase::Complete);
    assert!(!cluster.publish("ami-2"));
    assert!(cluster.publish("ami-3"));
}

/// The texts of an aborted revision are in the ConfigMap still; a new image must not bring them to groups again.
#[test]
fn new_image_waits_until_an_aborted_change_is_reverted() {
    let mut cluster = Cluster::new();
    cluster.live = data("bad");
    cluster.store();
    cluster.set_phase(RolloutPhase::Aborted);
    assert!(!cluster.publish("ami-2"));
    assert_eq!(cluster.view().remedy_of_return(), "revert the ConfigMap");
}

/// A user orders the return from a complete change while AWS publishes an image. The next revision would have the texts
/// of that change, and roll them out again.
#[test]
fn new_image_does_not_bring_a_change_again_that_is_being_aborted() {
    let mut cluster = Cluster::new();
    cluster.live = data("bad");
    cluster.store();
    cluster.set_phase(RolloutPhase::Complete);
    cluster.newest().spec.orders.aborted = true;
    assert!(!cluster.publish("ami-2"));
    cluster.newest().spec.orders.aborted = false;
    assert!(cluster.publish("ami-2"));
}

/// The return waits for no wave, so it must be known as one although the image was first met later.
#[test]
fn reverted_texts_with_the_same_images_are_a_way_back() {
    let mut cluster = Cluster::new();
    cluster.live = data("b");
    cluster.store();
    cluster.set_phase(RolloutPhase::Superseded);
    assert_eq!(cluster.view().target.images[ALIAS], "ami-1", "an edit of the ConfigMap keeps the images");
    cluster.live = data("a");
    cluster.store();
    let view = cluster.view();
    assert_eq!(view.target.name, "r3");
    assert!(view.is_return());
}

/// The same where the texts that go back never had an alias, or the alias was met under both with one image.
#[test]
fn alias_that_was_first_met_under_a_reverted_change_makes_it_no_other_content() {
    let fixed = |image: &str| {
        let defaults = format!("spec: {{eks: {{configuration: {{image: {image}}}}}}}");
        [("defaults".to_owned(), defaults), (ROLLOUT_KEY.to_owned(), "waves: [{name: all}]".to_owned())].into()
    };
    let mut cluster = Cluster { stored: vec![], live: fixed("ami-fixed") };
    cluster.store();
    cluster.set_phase(RolloutPhase::Complete);
    cluster.live = fixed("latest");
    cluster.store();
    cluster.newest().status.get_or_insert_default().images = images("ami-1");
    cluster.set_phase(RolloutPhase::Halted);
    cluster.live = fixed("ami-fixed");
    cluster.store();
    let view = cluster.view();
    assert_eq!((view.target.name.as_str(), view.target.own_images.len()), ("r3", 1));
    assert!(view.is_return());
}

/// A tenant's group first met an alias while a change rolled out that was aborted and reverted. The revert, which is for every
/// group at once, must not give it a newer image.
#[test]
fn alias_that_a_tenant_met_under_an_aborted_change_keeps_its_image() {
    let mut cluster = Cluster::new();
    cluster.live = data("b");
    cluster.store();
    let met: Images = [("bottlerocket/latest".to_owned(), "ami-7".to_owned())].into();
    cluster.newest().status.get_or_insert_default().images = met.clone();
    cluster.set_phase(RolloutPhase::Aborted);
    cluster.live = data("a");
    cluster.store();
    let reverted = cluster.newest().spec.clone();
    assert_eq!((reverted.number, &reverted.images), (3, &images("ami-1").into_iter().chain(met).collect()));
    assert!(cluster.view().is_return());
    cluster.set_phase(RolloutPhase::Complete);
    cluster.live = data("c");
    cluster.store();
    assert_eq!(cluster.newest().spec.images, images("ami-1"), "another change does not begin with an aborted image");
}

/// A backup restores the revisions without their statuses, which alone say what groups met first. They must not take the
/// image of AWS that an admin has aborted for it.
#[test]
fn image_of_an_aborted_revision_is_not_taken_for_a_lost_one() {
    let mut cluster = Cluster::new();
    assert!(cluster.publish("ami-2"));
    cluster.set_phase(RolloutPhase::Aborted);
    let stored = |cluster: &Cluster, name: &str| {
        let view = cluster.view();
        let found = view.stored.into_values().find(|stored| stored.name == name).expect("it is stored");
        (found.images.get(ALIAS).cloned(), found.has_lost_images)
    };
    assert_eq!(stored(&cluster, "r1"), (Some("ami-1".into()), false));
    cluster.stored[0].status.as_mut().expect("a status").images.clear();
    assert_eq!(stored(&cluster, "r1"), (None, true), "its groups are held");
    assert_eq!(stored(&cluster, "r2"), (Some("ami-2".into()), false));
}

/// The same for an image that no admin has aborted. The groups whose wave is not open yet must not launch it. An older revision
/// that knows its images is not concerned, and one that knows none would have those of the next one.
#[test]
fn image_of_the_next_revision_is_not_taken_for_a_lost_one() {
    for is_recorded in [true, false] {
        let mut cluster = Cluster::new();
        if !is_recorded {
            cluster.newest().status.get_or_insert_default().images.clear();
        }
        cluster.live = data("b");
        cluster.store();
        cluster.newest().spec.images.clear();
        cluster.newest().spec.hash = crate::boundaries::content_hash(&cluster.live);
        cluster.newest().status.get_or_insert_default().images = images("ami-1");
        cluster.set_phase(RolloutPhase::Complete);
        assert!(cluster.publish("ami-2"));
        let lost = |cluster: &Cluster| {
            let found = cluster.view().stored.into_values().filter(|stored| stored.has_lost_images);
            found.map(|stored| stored.name).collect::<std::collections::BTreeSet<_>>()
        };
        assert!(lost(&cluster).is_empty(), "recorded: {is_recorded}");
        cluster.stored[1].status.as_mut().expect("a status").images.clear();
        let expected: &[&str] = if is_recorded { &["r2"] } else { &["r1", "r2"] };
        assert!(lost(&cluster).iter().eq(expected), "recorded: {is_recorded}, {:?}", lost(&cluster));
    }
}

/// An admin writes `urgentUntil` for a fix, and not for an image that AWS publishes in the meantime.
#[test]
fn new_image_of_aws_is_never_urgent() {
    let mut cluster = Cluster::new();
    cluster.live.insert(ROLLOUT_KEY.to_owned(), "{urgentUntil: '1970-01-05T00:00:00Z', waves: [{name: all}]}".into());
    let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(1);
    assert!(cluster.view().urgent_until(now).is_some());
    assert!(cluster.publish("ami-2"));
    assert_eq!((cluster.view().target.name.as_str(), cluster.view().urgent_until(now)), ("r2", None));
}

/// A policy that an admin restores after months must not restore the images of that time.
#[test]
fn removed_policy_releases_the_images() {
    let mut cluster = Cluster::new();
    cluster.live.remove(ROLLOUT_KEY);
    let texts = crate::boundaries::content_hash(&cluster.live);
    let released = without_images(&cluster.stored, &texts).expect("a revision");
    assert_eq!((released.spec.images.len(), released.spec.data.contains_key(ROLLOUT_KEY)), (0, false));
    cluster.add(released);
    assert!(without_images(&cluster.stored, &texts).is_none());
    cluster.live = data("a");
    cluster.store();
    let view = cluster.view();
    assert_eq!((view.target.name.as_str(), view.target.images.len()), ("r2", 0), "groups keep what they have by now");
}

/// A group that is behind, or uses an alias first, must get the image of the next newer revision, and not AWS's present
/// one.
#[test]
fn unknown_alias_resolves_as_in_the_next_newer_revision() {
    let mut cluster = Cluster::new();
    cluster.newest().status.get_or_insert_default().images.clear();
    cluster.live = data("b");
    cluster.store();
    cluster.newest().status.get_or_insert_default().images = images("ami-1");
    cluster.set_phase(RolloutPhase::Complete);
    assert!(cluster.publish("ami-2"));
    let view = cluster.view();
    let images: BTreeMap<&str, &str> =
        view.stored.values().map(|stored| (stored.name.as_str(), stored.images[ALIAS].as_str())).collect();
    assert_eq!(images, [("r1", "ami-1"), ("r2", "ami-1"), ("r3", "ami-2")].into());
}

/// SSM's servers may answer with the old and the new image in turns while a parameter changes, or with none at all.
#[test]
fn new_image_counts_when_two_polls_in_a_row_find_it() {
    let mut seen = Images::new();
    let polls = ["ami-2", "ami-3", "ami-2", "", "ami-2", "ami-2"];
    let confirmed = polls
        .map(|image| is_confirmed(&Some(image).filter(|i| !i.is_empty()).map(images).unwrap_or_default(), &mut seen));
    assert_eq!(confirmed, [false, false, false, false, false, true]);
}

/// People hold all changes up, or deleted the newest revision: a new image must reach no group meanwhile. Without the key
/// `rollout`, its revision would reach all groups at once.
#[test]
fn new_image_waits_for_a_pause_a_broken_map_a_deleted_revision_and_a_lost_policy() {
    let mut cluster = Cluster::new();
    cluster.newest().spec.orders.paused = true;
    assert!(!cluster.publish("ami-2"), "a person paused the revision that is complete");
    cluster.newest().spec.orders.paused = false;
    let broken = RolloutView { config_problem: Some("it is broken".into()), ..cluster.view() };
    assert!(!may_move_images(&cluster.stored, &broken));
    let mut deleted = Cluster::new();
    deleted.live = data("b");
    deleted.store();
    deleted.set_phase(RolloutPhase::Complete);
    deleted.live = data("a");
    assert_eq!(deleted.view().target.name, "r1", "a person deleted r3, which had its texts");
    assert!(!deleted.publish("ami-2"));
    assert!(cluster.publish("ami-2"));
    cluster.set_phase(RolloutPhase::Aborted);
    cluster.live.remove(ROLLOUT_KEY);
    assert!(cluster.view().is_retained_policy && !cluster.publish("ami-3"), "the key was lost");
    cluster.live = data("a");
    assert!(cluster.publish("ami-3"));
}
