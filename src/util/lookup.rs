//! The result of a lookup, which distinguishes "not queried yet" from "does not exist".

/// What is known about an object. Unknown is not absent: a caller must not treat [`Lookup::NotQueried`] as "does not
/// exist".
///
/// ```
/// use instance_manager::util::lookup::Lookup;
///
/// let unread: Lookup<String> = Lookup::default();
/// assert!(!unread.is_queried());
/// let absent: Lookup<String> = None.into();
/// assert!(absent.is_queried() && absent.as_present().is_none());
/// assert_eq!(Lookup::from(Some("i-1")).as_present(), Some(&"i-1"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookup<T> {
    /// Nothing has been read yet.
    #[default]
    NotQueried,
    /// The read succeeded, and the object does not exist.
    Absent,
    /// The object as it was read.
    Present(T),
}

impl<T> Lookup<T> {
    /// Whether a read has completed, whatever its result.
    pub fn is_queried(&self) -> bool {
        !matches!(self, Lookup::NotQueried)
    }

    /// The object, if a read found it.
    pub fn as_present(&self) -> Option<&T> {
        match self {
            Lookup::Present(found) => Some(found),
            Lookup::NotQueried | Lookup::Absent => None,
        }
    }
}

impl<T> From<Option<T>> for Lookup<T> {
    /// The result of a completed read.
    fn from(found: Option<T>) -> Self {
        found.map_or(Lookup::Absent, Lookup::Present)
    }
}
