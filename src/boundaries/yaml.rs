//! A YAML reader with limits on size, depth and expanded aliases, for text written by users.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum length of a text, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// How deep maps and lists may be nested, so that a text cannot exhaust the stack.
pub(crate) const MAX_DEPTH: usize = 40;
/// Maximum number of values after aliases are expanded.
pub(crate) const MAX_VALUES: usize = 50_000;
/// Maximum length of all texts in the values after aliases are expanded, in bytes.
pub(crate) const MAX_TEXT: usize = 4 << 20;

/// A text that is not valid YAML or exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct YamlError {
    /// Line, counted from 1, if known.
    pub line: Option<usize>,
    /// What is wrong, without the line.
    pub message: String,
}

/// The first document of a text as JSON, with what a lenient parser would hide.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct YamlDocument {
    /// Content of the document.
    pub value: Value,
    /// Keys that occur twice in one map; the last value is used.
    pub duplicates: Vec<DuplicateKey>,
}

/// A key that its map has before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DuplicateKey {
    /// Path of the key, such as `spec.eks.minSize`.
    pub path: String,
    /// Line of the later one, counted from 1, if known.
    pub line: Option<usize>,
}

/// Parses the first document of a text; an empty text is null. Also returns whether other documents have content.
pub(crate) fn read(text: &str) -> Result<(YamlDocument, bool), YamlError> {
    let mut documents = parse(text)?;
    let first = documents.next().unwrap_or_else(|| Ok(YamlDocument::default()))?;
    let has_more = documents.any(|document| !document.is_ok_and(|other| other.value.is_null()));
    Ok((first, has_more))
}

/// Parses all documents of a text.
pub(crate) fn read_all(text: &str) -> Result<Vec<YamlDocument>, YamlError> {
    parse(text)?.collect()
}

/// Parses the documents of a text one by one, up to the first error.
fn parse(text: &str) -> Result<impl Iterator<Item = Result<YamlDocument, YamlError>>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError { line: None, message: format!("is longer than {MAX_BYTES} bytes") });
    }
    check_flow_depth(text)?;
    let mut totals = ReadTotals::default();
    let mut failed = false;
    Ok(serde_yaml::Deserializer::from_str(text).enumerate().map_while(move |(index, document)| {
        if failed {
            return None;
        }
        let read = LimitedReader { totals: &mut totals, depth: 0 }.deserialize(document);
        failed = read.is_err();
        let paths = std::mem::take(&mut totals.duplicates).into_iter().enumerate();
        let duplicates =
            paths.map(|(number, path)| DuplicateKey { path, line: locate_duplicate(text, index, number) }).collect();
        totals.path.clear();
        Some(read.map(|value| YamlDocument { value, duplicates }).map_err(|error| YamlError {
            line: error.location().map(|at| at.line()),
            message: without_location(&error),
        }))
    }))
}

/// The line, counted from 1, of the value at a path of keys and list indexes in the document with this number. For a
/// missing value, the line of the map that should contain it.
pub(crate) fn locate(text: &str, document: usize, path: &str) -> Option<usize> {
    let segments = split_path(path);
    let parsed = serde_yaml::Deserializer::from_str(text).nth(document)?;
    let found = LineProbe { path: &segments }.deserialize(parsed).err()?;
    found.to_string().contains(FOUND_MARKER).then(|| found.location().map(|at| at.line()))?
}

/// The line, counted from 1, of the duplicate key with this number in the document with this number.
fn locate_duplicate(text: &str, document: usize, number: usize) -> Option<usize> {
    let parsed = serde_yaml::Deserializer::from_str(text).nth(document)?;
    let mut left = number;
    let found = DuplicateProbe { left: &mut left, keys: None }.deserialize(parsed).err()?;
    found.to_string().contains(FOUND_MARKER).then(|| found.location().map(|at| at.line()))?
}

/// Rejects deeply nested brackets, on which the parser spends quadratic time.
fn check_flow_depth(text: &str) -> Result<(), YamlError> {
    let mut depth = 0_usize;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 1000 {
            let line = text.as_bytes()[..index].iter().filter(|byte| **byte == b'\n').count() + 1;
            return Err(YamlError { line: Some(line), message: "brackets are nested too deeply".to_owned() });
        }
    }
    Ok(())
}

fn without_location(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    match text.find(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn split_path(path: &str) -> Vec<&str> {
    path.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !part.is_empty()).collect()
}

#[derive(Default)]
struct ReadTotals {
    values: usize,
    text: usize,
    /// The keys and list indexes above the current value.
    path: Vec<String>,
    /// Paths of keys that occur twice in one map.
    duplicates: Vec<String>,
}

impl ReadTotals {
    fn push_duplicate(&mut self, key: &str) {
        if self.duplicates.len() < 10 {
            let parents = self.path.iter().map(String::as_str);
            let path = parents.chain([key]).collect::<Vec<_>>().join(".").replace(".[", "[");
            self.duplicates.push(path);
        }
    }
}

struct LimitedReader<'a> {
    totals: &'a mut ReadTotals,
    depth: usize,
}

impl LimitedReader<'_> {
    fn text<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        self.totals.text += text.len();
        if self.totals.text > MAX_TEXT {
            Err(E::custom("contains too much text after its aliases are expanded"))
        } else {
            Ok(())
        }
    }
}

impl<'de> DeserializeSeed<'de> for LimitedReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.totals.values += 1;
        if self.totals.values > MAX_VALUES {
            return Err(D::Error::custom("contains too many values after its aliases are expanded"));
        }
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom("is nested too deeply"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LimitedReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("contains a number that is not finite"))
    }

    fn visit_str<E: serde::de::Error>(mut self, value: &str) -> Result<Value, E> {
        self.text(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = vec![];
        loop {
            self.totals.path.push(format!("[{}]", items.len()));
            let item = access.next_element_seed(LimitedReader { totals: self.totals, depth: self.depth + 1 })?;
            self.totals.path.pop();
            let Some(item) = item else { break };
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut merged = vec![];
        while let Some(key) = access.next_key::<String>()? {
            self.text(&key)?;
            if map.contains_key(&key) {
                self.totals.push_duplicate(&key);
            }
            self.totals.path.push(key.clone());
            let value = access.next_value_seed(LimitedReader { totals: self.totals, depth: self.depth + 1 })?;
            self.totals.path.pop();
            if key == "<<" {
                merged.push(value);
            } else {
                map.insert(key, value);
            }
        }
        // A merge key (<<) adds keys that the map itself does not have; with several maps, the first that has the key wins.
        for value in merged {
            let sources = if let Value::Array(items) = value { items } else { vec![value] };
            for source in sources {
                let Value::Object(entries) = source else {
                    return Err(A::Error::custom("the merge key '<<' needs a map or a list of maps"));
                };
                entries.into_iter().for_each(|(key, value)| {
                    map.entry(key).or_insert(value);
                });
            }
        }
        Ok(Value::Object(map))
    }
}

const FOUND_MARKER: &str = "the requested position";

/// Follows a path and stops with an error at its end, because only errors carry a line.
struct LineProbe<'a> {
    path: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for LineProbe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LineProbe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FOUND_MARKER)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.path.split_first() else {
            return Err(A::Error::custom(FOUND_MARKER));
        };
        let target = first.parse().unwrap_or(usize::MAX);
        let mut index = 0;
        while index != target {
            if access.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
            index += 1;
        }
        access.next_element_seed(LineProbe { path: rest })?;
        Err(A::Error::custom(FOUND_MARKER))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        if self.path.is_empty() {
            return Err(A::Error::custom(FOUND_MARKER));
        }
        while let Some(key) = access.next_key::<String>()? {
            // A key may itself contain dots, so it may match several segments of the path.
            let matched = (1..=self.path.len()).find(|count| self.path[..*count].join(".").eq_ignore_ascii_case(&key));
            match matched {
                Some(count) => {
                    access.next_value_seed(LineProbe { path: &self.path[count..] })?;
                    return Err(A::Error::custom(FOUND_MARKER));
                }
                None => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a value in the order of [`LimitedReader`], and stops with an error at the duplicate key after `left` others.
struct DuplicateProbe<'a> {
    left: &'a mut usize,
    /// The keys of the map so far, where this reads one of its keys.
    keys: Option<&'a mut BTreeSet<String>>,
}

impl<'de> DeserializeSeed<'de> for DuplicateProbe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.keys {
            Some(_) => deserializer.deserialize_str(self),
            None => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for DuplicateProbe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FOUND_MARKER)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<(), E> {
        let is_duplicate = self.keys.is_some_and(|keys| key != "<<" && !keys.insert(key.to_owned()));
        match self.left.checked_sub(usize::from(is_duplicate)) {
            Some(left) => *self.left = left,
            None => return Err(E::custom(FOUND_MARKER)),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element_seed(DuplicateProbe { left: self.left, keys: None })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while access.next_key_seed(DuplicateProbe { left: self.left, keys: Some(&mut keys) })?.is_some() {
            access.next_value_seed(DuplicateProbe { left: self.left, keys: None })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn anchors_merge_keys_and_duplicates_are_resolved() {
        let text = "base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\ntwice: 1\ntwice: 2\n";
        let (read, _) = read(text).unwrap();
        assert_eq!(read.value, json!({"base": {"x": 1, "y": 2}, "use": {"x": 1, "y": 3}, "twice": 2}));
        assert_eq!(read.duplicates, [DuplicateKey { path: "twice".into(), line: Some(6) }]);
    }

    /// In a file of hundreds of lines, the name alone does not lead to the key that is to be removed.
    #[test]
    fn duplicate_keys_have_paths_and_lines() {
        let text = "a: 1\n---\nspec:\n  tags:\n  - key: a\n    key: b\n  - {key: c, value: d,\n     value: e}\n  eks: {<<: {x: 1}, <<: {x: 2}}\nspec: {}\n1: a\n1: b\n";
        let duplicates = &read_all(text).expect("YAML")[1].duplicates;
        let found: Vec<_> = duplicates.iter().map(|found| (found.path.as_str(), found.line)).collect();
        let expected =
            [("spec.tags[0].key", Some(6)), ("spec.tags[1].value", Some(8)), ("spec", Some(10)), ("1", Some(12))];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_the_first_document_is_read() {
        for (text, has_more) in [
            ("a: 1\n---\n", false),
            ("---\na: 1\n---\n# end\n...\n", false),
            ("a: 1\n---\nb: 2\n", true),
            ("a: 1\n---\n[", true),
        ] {
            let (document, more) = read(text).unwrap();
            assert_eq!((document.value, more), (json!({"a": 1}), has_more), "{text:?}");
        }
        assert_eq!(read("").unwrap(), (YamlDocument::default(), false));
        assert!(read_all("a: 1\n---\n[").is_err());
    }

    #[test]
    fn alias_bomb_is_rejected() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(read(&text).unwrap_err().message.contains("too many values"), "{:?}", read(&text));
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 1000].join(","));
        assert!(read(&long).unwrap_err().message.contains("too much text"));
    }

    #[test]
    fn depth_and_size_have_limits() {
        assert!(read(&"[".repeat(500_000)).unwrap_err().message.contains("too deeply"));
        assert!(read(&"- ".repeat(200_000)).is_err());
        assert!(read(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_err());
        assert!(read(&"#".repeat(MAX_BYTES + 1)).unwrap_err().message.contains("longer"));
    }

    #[test]
    fn errors_and_values_have_lines() {
        assert_eq!(read("a: 1\nb: [\nc: 2\n").unwrap_err().line.map(|line| line > 1), Some(true));
        let text =
            "spec:\n  eks:\n    minSize: three\n    tags:\n    - key: a\n    - key: b\n      value: c\n  a.b/c: x\n";
        for (path, line) in
            [("spec.eks.minSize", 3), ("spec.eks.tags[1].value", 7), ("spec.eks.tags[1]", 6), ("spec.a.b/c", 8)]
        {
            assert_eq!(locate(text, 0, path), Some(line), "{path}");
        }
        assert_eq!(
            locate(text, 0, "spec.eks.maxSize"),
            Some(2),
            "a missing field is reported at the map that should contain it"
        );
        assert_eq!(locate(text, 0, "status"), None);
        assert_eq!(locate("a: 1\n---\n\nb: 2\n", 1, "b"), Some(4));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-a-z&*!|>:#'\"\\[\\]{},?%@` \n\t0-9.~<]{0,200}") {
            let _ = read_all(&text);
            let _ = locate(&text, 0, "a.b[0]");
        }
    }
}
