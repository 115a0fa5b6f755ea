//! Texts of limited length.

/// The first `max` characters of a text; an ellipsis shows that there are more.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remedy that is cut without a mark reads like a whole sentence.
    #[test]
    fn what_is_cut_is_marked() {
        assert_eq!([shorten("naïve", 3), shorten("naïve", 5)], ["naï…", "naïve"]);
    }
}
