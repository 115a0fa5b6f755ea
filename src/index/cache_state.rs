//! Whether a cached object shows this controller's own writes of it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How long the watch may take to show this controller's own write, before the object is compared with the API server.
const MAX_CACHE_LAG: SignedDuration = SignedDuration::from_secs(10);
/// How many conflicts in a row are ordinary.
const MAX_CONFLICTS: u32 = 5;

/// How a cached object stands to this controller's own writes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheState {
    /// It contains them.
    Current,
    /// It is older than the last write, which was made this long ago.
    Behind(Duration),
    /// It does not catch up: the watch is stuck, or the resourceVersions of the API server went back.
    Doubtful,
}

/// The result of the comparison of a cached object with the API server, for one that does not catch up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheVerdict {
    /// The cache shows the object as it is.
    Current,
    /// The cache is older than the object; the watch will deliver it.
    Behind,
    /// The resourceVersions went back, for example after etcd was restored. The watches may be silent until the old
    /// versions are reached again.
    WentBack,
}

/// Compares the resourceVersions of a cached object, of this controller's last write, and of the object itself.
pub(crate) fn compare_versions(cached: Option<&str>, written: Option<u64>, actual: Option<&str>) -> CacheVerdict {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    let known = number(cached).max(written);
    match (actual == cached, number(actual)) {
        (true, _) => CacheVerdict::Current,
        (false, Some(actual)) if known.is_some_and(|known| actual < known) => CacheVerdict::WentBack,
        (false, _) => CacheVerdict::Behind,
    }
}

/// This controller's own writes of one object.
#[derive(Clone, Default)]
pub(crate) struct OwnWrites {
    /// The resourceVersion of the last write, and when it was made.
    last: Option<(u64, Timestamp)>,
    /// Writes in a row that the API server rejected because the object had changed.
    conflicts: u32,
}

impl OwnWrites {
    /// Records the resourceVersion of a write.
    pub(crate) fn record(&mut self, resource_version: &str, now: Timestamp) {
        self.last = resource_version.parse().ok().map(|version| (version, now));
        self.conflicts = 0;
    }

    /// Records that the API server rejected a write because the object had changed.
    pub(crate) fn record_conflict(&mut self) {
        self.conflicts = self.conflicts.saturating_add(1);
    }

    /// Forgets the last write and the conflicts, because the API server confirms the cached object.
    pub(crate) fn confirm(&mut self) {
        *self = OwnWrites::default();
    }

    /// The resourceVersion of the last write.
    pub(crate) fn last_version(&self) -> Option<u64> {
        self.last.map(|(version, _)| version)
    }

    /// How the cached object stands to these writes.
    pub(crate) fn cache_state(&self, resource_version: Option<&str>, now: Timestamp) -> CacheState {
        let seen: Option<u64> = resource_version.and_then(|v| v.parse().ok());
        let behind_for = self.last.zip(seen).filter(|((written, _), seen)| seen < written);
        match behind_for.map(|((_, at), _)| now.duration_since(at)) {
            _ if self.conflicts >= MAX_CONFLICTS => CacheState::Doubtful,
            Some(behind_for) if behind_for >= MAX_CACHE_LAG => CacheState::Doubtful,
            Some(behind_for) => CacheState::Behind(behind_for.unsigned_abs()),
            None => CacheState::Current,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_that_does_not_catch_up_is_doubtful() {
        let (mut writes, written) = (OwnWrites::default(), Timestamp::UNIX_EPOCH);
        let state = |writes: &OwnWrites, version: &str, seconds| {
            writes.cache_state(Some(version), written + SignedDuration::from_secs(seconds))
        };
        assert_eq!(state(&writes, "7", 0), CacheState::Current, "nothing was written");
        writes.record("9", written);
        assert_eq!(state(&writes, "9", 0), CacheState::Current);
        assert_eq!(state(&writes, "8", 2), CacheState::Behind(Duration::from_secs(2)));
        assert_eq!(state(&writes, "8", 10), CacheState::Doubtful, "after a restore, the watch never shows 9");
        writes.confirm();
        assert_eq!(state(&writes, "8", 10), CacheState::Current);
        // After a restore the versions of own writes are lower too.
        writes.record("9", written);
        writes.record("5", written);
        assert_eq!(state(&writes, "5", 0), CacheState::Current);
        for _ in 0..MAX_CONFLICTS {
            assert_eq!(state(&writes, "5", 0), CacheState::Current);
            writes.record_conflict();
        }
        assert_eq!(state(&writes, "5", 0), CacheState::Doubtful);
        writes.record("6", written);
        assert_eq!(state(&writes, "6", 0), CacheState::Current);
    }

    #[test]
    fn object_at_its_source_decides_about_a_doubtful_cache() {
        for (cached, written, actual, expected) in [
            ("500", Some(1000), Some("500"), CacheVerdict::Current),
            ("1000", Some(1000), Some("500"), CacheVerdict::WentBack),
            ("990", Some(1000), Some("500"), CacheVerdict::WentBack),
            ("990", None, Some("500"), CacheVerdict::WentBack),
            ("990", Some(1000), Some("1000"), CacheVerdict::Behind),
            ("990", Some(1000), Some("1010"), CacheVerdict::Behind),
            ("990", Some(1000), None, CacheVerdict::Behind),
            ("a", None, Some("b"), CacheVerdict::Behind),
        ] {
            let found = compare_versions(Some(cached), written, actual);
            assert_eq!(found, expected, "{cached} in the cache, {written:?} written, {actual:?} now");
        }
    }
}
