//! The AMI IDs that image aliases such as `latest` resolve to. Each revision records them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::stored_phase::has_refused_images;
use crate::api::BoundariesRevision;
use crate::boundaries::{ROLLOUT_KEY, content_hash};
use crate::util::digest::sha256_hex;

/// AMI IDs by image alias.
pub(crate) type Images = BTreeMap<String, String>;

/// The identity of a content: of its texts, and of the AMI IDs that its image aliases resolve to.
pub(super) fn identity(texts: &str, images: &Images) -> String {
    match images.is_empty() {
        true => texts.to_owned(),
        false => sha256_hex(&json!([texts, images]).to_string())[..16].to_owned(),
    }
}

/// The images that a revision records itself: those that it was stored with, and those of aliases first used under it.
pub(crate) fn own_images(revision: &BoundariesRevision) -> Images {
    let mut images = revision.status.as_ref().map(|status| status.images.clone()).unwrap_or_default();
    images.extend(revision.spec.images.clone());
    images
}

/// Each alias that resolves to another image in the second revision, such as `image latest: ami-1 -> ami-2`.
pub(crate) fn image_changes(before: &BoundariesRevision, after: &BoundariesRevision) -> Vec<String> {
    let (before, after) = (own_images(before), own_images(after));
    let changed = after.iter().filter_map(|(alias, image)| Some((alias, before.get(alias)?, image)));
    changed.filter(|(_, old, new)| old != new).map(|(alias, old, new)| describe(alias, old, new)).collect()
}

pub(super) fn describe(alias: &str, old: &str, new: &str) -> String {
    format!("image {alias}: {old} -> {new}")
}

/// What the image aliases of a revision stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownImages {
    /// AMI IDs by image alias, as the revision or its groups recorded them.
    pub images: Arc<Images>,
    /// Whether the revision has lost what its groups met first, and only a later image of AWS is stored.
    pub are_lost: bool,
}

/// The images of each revision by its name. An alias that a revision does not know has the image of the next newer one. The
/// images with which AWS began an aborted revision are none that a revision without any had.
pub(super) fn images_by_name(sorted: &[&BoundariesRevision]) -> BTreeMap<String, KnownImages> {
    let mut found = BTreeMap::new();
    let (mut images, mut refused) = (Arc::new(Images::new()), Images::new());
    let (mut newer, mut is_lost): (Option<&BoundariesRevision>, bool) = (None, false);
    for revision in sorted.iter().rev() {
        let own = own_images(revision);
        let mut of_aborted = refused.clone();
        of_aborted.retain(|alias, _| !images.contains_key(alias));
        // An older one that records none would have the image of this one.
        is_lost = newer.is_some_and(|newer| replaces_lost(newer, revision, &own)) || is_lost && own.is_empty();
        newer = Some(*revision);
        let are_lost = is_lost || own.is_empty() && !of_aborted.is_empty();
        of_aborted.retain(|alias, _| !own.is_empty() && !own.contains_key(alias));
        let of_revision = with(&with(&images, of_aborted), own);
        let name = revision.metadata.name.clone().unwrap_or_default();
        found.insert(name, KnownImages { images: of_revision.clone(), are_lost });
        if has_refused_images(revision) && is_of_aws(revision) {
            refused.extend(revision.spec.images.clone());
            images = with(&images, first_met(revision));
        } else {
            images = of_revision;
        }
    }
    found
}

/// Whether a newer revision is a new image of AWS for an alias of this one, and this one does not record what it stood for.
fn replaces_lost(newer: &BoundariesRevision, revision: &BoundariesRevision, own: &Images) -> bool {
    is_of_aws(newer)
        && newer.spec.images.keys().any(|alias| !own.contains_key(alias))
        && content_hash(&newer.spec.data) == content_hash(&revision.spec.data)
}

fn with(images: &Arc<Images>, others: Images) -> Arc<Images> {
    match others.iter().all(|(alias, image)| images.get(alias) == Some(image)) {
        true => images.clone(),
        false => Arc::new(images.iter().map(|(alias, image)| (alias.clone(), image.clone())).chain(others).collect()),
    }
}

/// What aliases stood for when groups first met them under a revision.
fn first_met(revision: &BoundariesRevision) -> Images {
    revision.status.as_ref().map(|status| status.images.clone()).unwrap_or_default()
}

/// The images that groups first met under revisions that were aborted, each with its alias.
pub(crate) fn refused_first_images(stored: &[BoundariesRevision]) -> BTreeSet<(String, String)> {
    stored.iter().filter(|revision| has_refused_images(revision)).flat_map(first_met).collect()
}

/// The images that the next content of the ConfigMap begins with: those of the newest revision that was not aborted.
/// Empty without the key `rollout`: aliases then resolve to AWS's present AMI.
pub(super) fn carried(sorted: &[&BoundariesRevision], data: &BTreeMap<String, String>) -> Images {
    let newest = sorted.iter().rposition(|revision| !has_refused_images(revision));
    let Some(newest) = newest.filter(|_| data.contains_key(ROLLOUT_KEY)) else { return Images::new() };
    let (revision, own) = (sorted[newest], own_images(sorted[newest]));
    let aborted = sorted.iter().filter(|revision| has_refused_images(revision));
    if content_hash(&revision.spec.data) == content_hash(data) {
        // Its groups had these images while the aborted one rolled out, and keep them.
        let met = sorted[newest + 1..].iter().rev().flat_map(|aborted| first_met(aborted));
        return met.chain(own).collect();
    }
    let is_refused =
        |alias: &String, image: &String| aborted.clone().any(|found| first_met(found).get(alias) == Some(image));
    own.into_iter().filter(|(alias, image)| !is_refused(alias, image)).collect()
}

/// Who wrote a revision that differs from the one before only in its images.
pub(super) const AWS_MANAGER: &str = "AWS";

/// Whether a revision came from a new image of AWS, and not from the ConfigMap.
pub(crate) fn is_of_aws(revision: &BoundariesRevision) -> bool {
    let from = &revision.spec.from;
    from.manager == AWS_MANAGER && from.resource_version.is_empty()
}
