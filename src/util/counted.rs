//! Numbers of things as text.

/// `1 node`, `2 nodes`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// `1 node is`, `2 nodes are`.
pub(crate) fn are(number: usize, noun: &str) -> String {
    format!("{} {}", counted(number, noun), if number == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([counted(0, "node"), counted(1, "node"), counted(2, "node")], ["0 nodes", "1 node", "2 nodes"]);
        assert_eq!([are(1, "pod"), are(2, "pod")], ["1 pod is", "2 pods are"]);
    }
}
