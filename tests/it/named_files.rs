//! Files and items that the pages for contributors name exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGES: [&str; 2] = ["CONTRIBUTING.md", "docs/ARCHITECTURE.md"];

/// Folders and files at the top of the repository in which the pages name something.
const PLACES: [&str; 15] = [
    "src",
    "tests",
    "localcloud",
    "campaign",
    "demo",
    "docs",
    "deploy",
    "crds",
    "boundaries",
    "examples",
    "tools",
    ".ci",
    "deny.toml",
    "Cargo.toml",
    "CONTRIBUTING.md",
];

/// What the pages name and the repository does not hold: generated folders, an environment variable of a user.
const ELSEWHERE: [&str; 3] = ["target/docs/html", "target/test-logs", "KEIKO_RECORDINGS"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(path: PathBuf, found: &mut BTreeSet<String>) {
    let name = path.strip_prefix(root()).expect("a path of the repository").display().to_string();
    if path.is_dir() {
        let entries = std::fs::read_dir(&path).expect("the folder can be read").flatten();
        entries.for_each(|entry| collect(entry.path(), found));
    }
    found.insert(name);
}

/// The code spans of a page, outside of code blocks.
fn code_spans(page: &str) -> Vec<String> {
    let prose = page.split("\n```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether a path exists whose end is `name`. `<...>` and `*` stand for any part of a name, and modules may lack `.rs`.
fn exists(name: &str, paths: &BTreeSet<String>) -> bool {
    let name = name.trim_end_matches('/');
    let pattern: Vec<Vec<&str>> = name
        .split('/')
        .map(|part| {
            if part.starts_with('<') {
                vec!["", part.rsplit('>').next().unwrap_or_default()]
            } else {
                part.split('*').collect()
            }
        })
        .collect();
    let fits = |path: &str| {
        let parts: Vec<_> = path.split('/').rev().collect();
        parts.len() >= pattern.len() && pattern.iter().rev().zip(parts).all(|(pattern, part)| fits_part(pattern, part))
    };
    paths.iter().any(|path| fits(path) || path.strip_suffix(".rs").is_some_and(fits))
}

fn fits_part(pattern: &[&str], part: &str) -> bool {
    match pattern {
        [exact] => part == *exact,
        [start, end] => part.starts_with(start) && part.ends_with(end),
        _ => false,
    }
}

fn is_path(span: &str) -> bool {
    let is_file = [".rs", ".py", ".md", ".yaml", ".json", ".toml"].iter().any(|end| span.ends_with(end));
    is_file || (PLACES.iter().any(|place| span.starts_with(&format!("{place}/"))) && !span.contains(' '))
}

/// A name of an item, such as `is_needed`, `ROLE_PATHS` or `PlanBuilder`.
fn is_item(span: &str) -> bool {
    let is_word = span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_camel =
        span.chars().zip(span.chars().skip(1)).any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    is_word && (span.contains('_') || is_camel)
}

/// A recipe that names a file that was moved sends its reader astray.
#[test]
fn pages_for_contributors_name_what_exists() {
    let mut paths = BTreeSet::new();
    PLACES.iter().for_each(|place| collect(root().join(place), &mut paths));
    let is_source = |path: &&String| path.starts_with("src/") || path.starts_with("tests/it/");
    let texts: String =
        paths.iter().filter(is_source).filter_map(|path| std::fs::read_to_string(root().join(path)).ok()).collect();
    let words: BTreeSet<_> = texts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut missing = Vec::new();
    for page in PAGES {
        let spans = code_spans(&std::fs::read_to_string(root().join(page)).expect("the page exists"));
        assert!(spans.len() > 50, "{page}: the code spans are found");
        let is_missing =
            |span: &&String| is_path(span) && !exists(span, &paths) || is_item(span) && !words.contains(span.as_str());
        let found = spans.iter().filter(is_missing).filter(|span| !ELSEWHERE.contains(&span.as_str()));
        missing.extend(found.map(|span| format!("{page}: {span}")));
    }
    assert!(missing.is_empty(), "the repository has no {missing:#?}");
}

#[test]
fn patterns_of_the_recipes_match_whole_parts_of_paths() {
    let paths: BTreeSet<String> =
        ["src/provisioner/eks/apply/mod.rs", "src/provisioner/eks/apply", "src/api/spec_eks.rs"]
            .map(str::to_owned)
            .into();
    for name in
        ["src/provisioner/<kind>/apply", "src/api/spec*.rs", "spec_eks.rs", "src/provisioner/<kind>/<topic>/mod.rs"]
    {
        assert!(exists(name, &paths), "{name}");
    }
    for name in ["eks.rs", "src/provisioner/<kind>/plan", "src/api/status*.rs", "choose.rs"] {
        assert!(!exists(name, &paths), "{name}");
    }
}
