//! What image aliases such as `latest` stand for: each revision says it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::api::{BoundariesRevision, BoundariesRevisionStatus, RolloutPhase};
use crate::boundaries::ROLLOUT_KEY;
use crate::util::digest::sha256_hex;

/// AMI IDs by image alias.
pub(crate) type Images = BTreeMap<String, String>;

/// The identity of a content: of its texts, and of what its image aliases stand for.
pub(super) fn identity(texts: &str, images: &Images) -> String {
    match images.is_empty() {
        true => texts.to_owned(),
        false => sha256_hex(&json!([texts, images]).to_string())[..16].to_owned(),
    }
}

/// What a revision says itself: the images that it was stored with, and those that were first met under it.
pub(crate) fn own_images(revision: &BoundariesRevision) -> Images {
    let mut images = revision.status.as_ref().map(|status| status.images.clone()).unwrap_or_default();
    images.extend(revision.spec.images.clone());
    images
}

/// Each alias that stands for another image in the second revision, such as `image latest: ami-1 -> ami-2`.
pub(crate) fn image_changes(before: &BoundariesRevision, after: &BoundariesRevision) -> Vec<String> {
    let (before, after) = (own_images(before), own_images(after));
    let changed = after.iter().filter_map(|(alias, image)| Some((alias, before.get(alias)?, image)));
    changed.filter(|(_, old, new)| old != new).map(|(alias, old, new)| describe(alias, old, new)).collect()
}

pub(super) fn describe(alias: &str, old: &str, new: &str) -> String {
    format!("image {alias}: {old} -> {new}")
}

/// The images of each revision by its name. An alias that a revision does not know has the image of the next newer one.
pub(super) fn images_by_name(sorted: &[&BoundariesRevision]) -> BTreeMap<String, Arc<Images>> {
    let mut found = BTreeMap::new();
    let mut images: Arc<Images> = Arc::default();
    for revision in sorted.iter().rev() {
        let own = own_images(revision);
        if own.iter().any(|(alias, image)| images.get(alias) != Some(image)) {
            let mut all = (*images).clone();
            all.extend(own);
            images = Arc::new(all);
        }
        found.insert(revision.metadata.name.clone().unwrap_or_default(), images.clone());
    }
    found
}

/// The images that the next content of the ConfigMap begins with: those of the newest revision that was not aborted.
/// Without the key `rollout` nothing stands for anything.
pub(super) fn carried(sorted: &[&BoundariesRevision], data: &BTreeMap<String, String>) -> Images {
    let aborted = |revision: &&&BoundariesRevision| is_aborted(revision);
    let newest = sorted.iter().rev().find(|revision| !aborted(revision));
    newest.filter(|_| data.contains_key(ROLLOUT_KEY)).map(|revision| own_images(revision)).unwrap_or_default()
}

/// Whether its groups have returned, or return.
pub(super) fn is_aborted(revision: &BoundariesRevision) -> bool {
    let phase = revision.status.as_ref().and_then(|status| status.phase);
    matches!(phase, Some(RolloutPhase::Returning | RolloutPhase::Aborted)) || is_ordered_back(revision)
}

/// Whether a person aborted it, and the phase does not show that yet: the next edit of the ConfigMap may come first.
pub(super) fn is_ordered_back(revision: &BoundariesRevision) -> bool {
    use RolloutPhase::{Assessing, Complete, Halted, Rolling};
    let can_return = |status: &&BoundariesRevisionStatus| status.stable.is_some() && status.without_waves != Some(true);
    let phase = revision.status.as_ref().filter(can_return).and_then(|status| status.phase);
    revision.spec.orders.aborted && matches!(phase, Some(Assessing | Rolling | Halted | Complete))
}

/// Who wrote a revision that differs from the one before only in its images.
pub(super) const AWS_MANAGER: &str = "AWS";

/// Whether a revision came from a new image of AWS, and not from the ConfigMap.
pub(crate) fn is_of_aws(revision: &BoundariesRevision) -> bool {
    let from = &revision.spec.from;
    from.manager == AWS_MANAGER && from.resource_version.is_empty()
}
