//! Which word a user may have meant.

/// The candidate closest to a word; `None` when more than half of the letters differ.
pub(crate) fn closest_match<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // The cost grows with the product of the lengths, and no real path is this long.
    if word.len() > 200 {
        return None;
    }
    let (distance, best) = candidates.map(|candidate| (edit_distance(word, candidate), candidate)).min()?;
    (distance * 2 <= word.len().max(best.len())).then_some(best)
}

/// The candidate that a word misspells: equal without separators, or at most two letters differ.
pub(crate) fn misspelled<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let word = letters(word);
    let near = candidates.map(|candidate| (edit_distance(&word, candidate), candidate)).min()?;
    (near.0 <= 2).then_some(near.1)
}

/// Number of insertions, deletions and replacements between two words, ignoring case.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_ascii_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_ascii_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}
