//! A new image of AWS is a revision like any other, so that it reaches the groups in waves.

use std::collections::BTreeMap;

use super::images::{AWS_MANAGER, Images, carried, describe, identity, own_images};
use super::retention::{UsedNumbers, first_number, has_texts, known_keys, next_name, sorted};
use super::stored_phase::has_refused_images;
use super::view::RolloutView;
use crate::api::{BoundariesRevision, BoundariesRevisionSpec, RevisionSource, RolloutPhase};
use crate::boundaries::{ROLLOUT_KEY, content_hash};

/// Whether a new image may become a revision now: not while a rollout is under way, which it would restart, and not
/// while the texts of the ConfigMap are those of an aborted revision.
pub(crate) fn may_move_images(stored: &[BoundariesRevision], view: &RolloutView) -> bool {
    let is_over = match view.phase() {
        // A new image would also roll out the change that a user has just aborted.
        RolloutPhase::Complete => !(view.orders.aborted && view.can_return()),
        RolloutPhase::Aborted => view.is_image_change(),
        RolloutPhase::Assessing
        | RolloutPhase::Rolling
        | RolloutPhase::Halted
        | RolloutPhase::Returning
        | RolloutPhase::Superseded => false,
    };
    view.is_newest(stored)
        && is_over
        && !view.is_retained_policy
        && !view.orders.paused
        && view.config_problem.is_none()
}

/// The aliases that now resolve to another image than the target records. An image of an aborted revision is not tried
/// again.
pub(crate) fn moved(stored: &[BoundariesRevision], view: &RolloutView, answers: &Images) -> Images {
    let refused = |alias: &str, image: &String| {
        let mut aborted = sorted(stored).into_iter().filter(|revision| has_refused_images(revision));
        aborted.any(|revision| revision.spec.images.get(alias) == Some(image))
    };
    let target = &view.target.images;
    let differs = |alias: &String, image: &String| target.get(alias).is_some_and(|known| known != image);
    let moved = answers.iter().filter(|(alias, image)| differs(alias, image) && !refused(alias, image));
    moved.map(|(alias, image)| (alias.clone(), image.clone())).collect()
}

/// Whether two polls in a row found that aliases resolve to the same other images. `seen` is what the poll before this
/// one found. SSM may give the old and the new image in turns while it changes.
pub(crate) fn is_confirmed(found: &Images, seen: &mut Images) -> bool {
    let is_same = !found.is_empty() && found == seen;
    seen.clone_from(found);
    is_same
}

/// The revision with the texts of the live ConfigMap in which some aliases resolve to other images. `None` when the
/// target is not stored, or has other texts. `used` are the numbers that it does not get.
pub(crate) fn with_images(
    stored: &[BoundariesRevision],
    view: &RolloutView,
    moved: &Images,
    live: &BTreeMap<String, String>,
    used: &UsedNumbers,
    time: String,
) -> Option<BoundariesRevision> {
    let target = stored.iter().find(|revision| revision.metadata.name.as_ref() == Some(&view.target.name))?;
    let data = Some(known_keys(live)).filter(|data| content_hash(data) == content_hash(&target.spec.data))?;
    let mut images = carried(&sorted(stored), &data);
    images.extend(moved.clone());
    let known = |alias: &str| view.target.images.get(alias).map_or("none", String::as_str);
    let changes = moved.iter().map(|(alias, image)| describe(alias, known(alias), image));
    let from = RevisionSource {
        manager: AWS_MANAGER.into(),
        time: Some(time),
        change: changes.collect::<Vec<_>>().join(", "),
        release: target.spec.from.release.clone(),
        ..RevisionSource::default()
    };
    let hash = identity(&content_hash(&data), &images);
    Some(next_revision(stored, target, data, images, first_number(used, &hash), from))
}

/// The revision with the texts of the newest one in which aliases resolve to AWS's present image: there is no policy
/// any more. `None` when that is so already.
pub(crate) fn without_images(stored: &[BoundariesRevision], texts: &str) -> Option<BoundariesRevision> {
    let sorted = sorted(stored);
    let newest = sorted.last().filter(|newest| !own_images(newest).is_empty() && has_texts(newest, texts))?;
    let change = "images follow their aliases at once, because the key rollout is gone".to_owned();
    let mut data = newest.spec.data.clone();
    data.remove(ROLLOUT_KEY);
    let from = RevisionSource { change, ..RevisionSource::default() };
    Some(next_revision(stored, newest, data, Images::new(), 1, from))
}

/// A revision in the namespace of another one, with a number of at least `first`.
fn next_revision(
    stored: &[BoundariesRevision],
    like: &BoundariesRevision,
    data: BTreeMap<String, String>,
    images: Images,
    first: i64,
    from: RevisionSource,
) -> BoundariesRevision {
    let (name, number) = next_name(stored, first);
    let hash = identity(&content_hash(&data), &images);
    let spec = BoundariesRevisionSpec { number, hash, data, images, from, orders: Default::default() };
    let mut revision = BoundariesRevision::new(&name, spec);
    revision.metadata.namespace.clone_from(&like.metadata.namespace);
    revision
}
