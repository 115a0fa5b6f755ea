//! The layout of `src`: imports have no cycles, and all provisioners have the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module's path from the crate's root, for example `["plan", "step"]`.
type Module = Vec<String>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn words(path: &str) -> Module {
    path.split("::").map(|word| word.trim().to_owned()).collect()
}

/// Flattens `a::{b, c::{d, e as f}}` to `a::b`, `a::c::d` and `a::c::e`, each with its local name.
fn flatten(prefix: &str, tree: &str, leaves: &mut Vec<(String, String)>) {
    let Some(open) = tree.find('{') else {
        let path = format!("{prefix}{}", tree.trim());
        let (path, name) = match path.split_once(" as ") {
            Some((path, name)) => (path.to_owned(), name.to_owned()),
            None => (path.clone(), path.rsplit("::").next().unwrap_or_default().to_owned()),
        };
        let path = path.trim_end_matches("::self").to_owned();
        let name = if name == "self" { path.rsplit("::").next().unwrap_or_default().to_owned() } else { name };
        return leaves.push((path, name));
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let (mut depth, mut start) = (0, open + 1);
    for (at, c) in tree.char_indices().skip_while(|(at, _)| *at <= open) {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                if !tree[start..at].trim().is_empty() {
                    flatten(&prefix, &tree[start..at], leaves);
                }
                start = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// The imports, re-exports, qualified names and child modules of one file.
#[derive(Default)]
struct Source {
    imports: Vec<(String, String)>,
    reexports: BTreeMap<String, String>,
    qualified: BTreeSet<String>,
    children: BTreeSet<String>,
}

/// The length in bytes of the comment or literal that a text begins with; 0 for other code.
fn literal_length(rest: &str) -> usize {
    let through = |start: usize, end: &str| rest[start..].find(end).map_or(rest.len(), |at| start + at + end.len());
    let hashes = rest.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
    let character = rest.strip_prefix('\'').filter(|c| c.starts_with('\\') || c.chars().nth(1) == Some('\''));
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        through(2, "*/")
    } else if rest.starts_with('r') && rest[1 + hashes..].starts_with('"') {
        through(2 + hashes, &format!("\"{}", "#".repeat(hashes)))
    } else if rest.starts_with('"') {
        quoted_length(rest, '"')
    } else {
        character.map_or(0, |_| quoted_length(rest, '\''))
    }
}

/// The length in bytes of the literal that a text begins with, including both quotes.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

/// The code without comments and literals, whose text may look like code.
fn without_literals(text: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = literal_length(rest);
        if length == 0 {
            code.push(c);
        }
        rest = &rest[length.max(c.len_utf8())..];
    }
    code
}

/// Splits a statement before the import that it ends with, if there is one.
fn split_import(statement: &str) -> (&str, Option<&str>) {
    let is_import = |line: &str| {
        let line = line.trim_start();
        let item = if line.starts_with("pub") { line.split_once(' ').map_or("", |(_, item)| item) } else { line };
        item.starts_with("use ")
    };
    let mut start = 0;
    for line in statement.split_inclusive('\n') {
        if is_import(line) {
            return (&statement[..start], Some(&statement[start..]));
        }
        start += line.len();
    }
    (statement, None)
}

fn parse(text: &str) -> Source {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    // `pub(in crate::a)` names a folder, and imports nothing.
    let code = without_literals(text).replace("pub(in crate::", "pub(");
    let (mut source, mut body) = (Source::default(), String::new());
    for statement in code.split(';') {
        let (before, import) = split_import(statement);
        body.extend([before, ";"]);
        if let Some((visibility, tree)) = import.and_then(|import| import.split_once("use ")) {
            let mut leaves = Vec::new();
            flatten("", tree, &mut leaves);
            if visibility.contains("pub") {
                source.reexports.extend(leaves.iter().map(|(path, name)| (name.clone(), path.clone())));
            } else {
                source.imports.extend(leaves);
            }
        } else if let Some((_, name)) = statement.rsplit('}').next().and_then(|line| line.rsplit_once("mod ")) {
            source.children.insert(name.trim().to_owned());
        }
    }
    for word in body.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':') {
        let word = word.trim_matches(':');
        if word.contains("::") {
            source.qualified.insert(word.to_owned());
        }
    }
    source
}

struct Crate {
    sources: BTreeMap<Module, (PathBuf, Source)>,
}

impl Crate {
    fn read() -> Self {
        let mut paths = Vec::new();
        sources(&root(), &mut paths);
        let is_test = |path: &PathBuf| path.iter().any(|part| part == "tests" || part == "tests.rs");
        let sources = (paths.into_iter())
            .filter(|path| !is_test(path) && !path.ends_with("main.rs") && !path.ends_with("lib.rs"))
            .map(|path| {
                let inside = path.strip_prefix(root()).expect("a path in src").with_extension("");
                let mut module: Module = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                if module.last().is_some_and(|last| last == "mod") {
                    module.pop();
                }
                let text = std::fs::read_to_string(&path).expect("the file is text");
                (module, (path, parse(&text)))
            })
            .collect();
        Crate { sources }
    }

    /// The absolute path of a name as written in a module; `None` for other crates.
    fn absolute(&self, module: &Module, path: &str) -> Option<Module> {
        let words = words(path);
        let mut base = module.clone();
        let skip = match words[0].as_str() {
            "crate" => {
                base.clear();
                1
            }
            "self" => 1,
            "super" => words.iter().take_while(|word| *word == "super").inspect(|_| drop(base.pop())).count(),
            first if self.sources[module].1.children.contains(first) => 0,
            _ => return None,
        };
        Some(base.into_iter().chain(words.into_iter().skip(skip)).collect())
    }

    /// The module that defines the item of an absolute path; follows every `pub use`.
    fn definition(&self, path: &Module, depth: usize) -> Option<Module> {
        let length = (1..=path.len()).rev().find(|n| self.sources.contains_key(&path[..*n]))?;
        let module = path[..length].to_vec();
        let Some(item) = path.get(length) else { return Some(module) };
        let reexport = self.sources[&module].1.reexports.get(item).filter(|_| depth > 0);
        let origin = reexport.and_then(|origin| self.absolute(&module, origin));
        origin.and_then(|origin| self.definition(&origin, depth - 1)).or(Some(module))
    }

    /// The modules that a module's code uses, without those that it only re-exports.
    fn dependencies(&self, module: &Module) -> BTreeSet<Module> {
        let source = &self.sources[module].1;
        let mut paths = BTreeSet::new();
        let mut modules = BTreeMap::new();
        for (path, name) in &source.imports {
            let Some(path) = self.absolute(module, path) else { continue };
            match self.sources.contains_key(&path) {
                true => drop(modules.insert(name.clone(), path)),
                false => drop(paths.insert(path)),
            }
        }
        for name in &source.qualified {
            let (first, rest) = name.split_once("::").expect("a qualified name");
            match modules.get(first) {
                Some(path) => drop(paths.insert(path.iter().cloned().chain(words(rest)).collect())),
                None => paths.extend(self.absolute(module, name).filter(|path| !source.is_reexport(path))),
            }
        }
        let mut found: BTreeSet<_> = paths.iter().filter_map(|path| self.definition(path, 8)).collect();
        found.remove(module);
        found
    }
}

impl Source {
    fn is_reexport(&self, path: &Module) -> bool {
        let text = path.join("::");
        self.reexports.values().any(|origin| text.ends_with(origin.trim_start_matches("super::")))
    }
}

fn reachable(edges: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        next.extend(edges[module].iter().filter(|to| found.insert((*to).clone())));
    }
    found
}

/// Groups of modules that depend on each other, each with the imports of its cycle.
fn cycles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<(Module, Module)>> {
    let reach: BTreeMap<_, _> = edges.keys().map(|module| (module, reachable(edges, module))).collect();
    let mut found: BTreeMap<BTreeSet<&Module>, Vec<(Module, Module)>> = BTreeMap::new();
    for (from, to) in edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to))) {
        if reach[to].contains(from) {
            let members = reach[from].iter().filter(|other| reach[other].contains(from)).collect();
            found.entry(members).or_default().push((from.clone(), to.clone()));
        }
    }
    found.into_values().collect()
}

#[test]
fn files_import_each_other_in_one_direction() {
    let all = Crate::read();
    let edges: BTreeMap<_, _> = all.sources.keys().map(|module| (module.clone(), all.dependencies(module))).collect();
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 500, "the parser finds the imports");
    let arrow = |(from, to): &(Module, Module)| format!("  {} -> {}", from.join("::"), to.join("::"));
    let text: Vec<_> =
        cycles(&edges).iter().map(|cycle| cycle.iter().map(arrow).collect::<Vec<_>>().join("\n")).collect();
    assert!(text.is_empty(), "these files import each other in a cycle:\n{}", text.join("\n\n"));
}

#[test]
fn cycle_of_two_files_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let edges = [("a", "b"), ("b", "a"), ("c", "a"), ("a", "d")];
    let mut graph: BTreeMap<Module, BTreeSet<Module>> =
        ["a", "b", "c", "d"].map(|n| (module(n), BTreeSet::new())).into();
    for (from, to) in edges {
        graph.get_mut(&module(from)).expect("a known module").insert(module(to));
    }
    let arrows = vec![(module("a"), module("b")), (module("b"), module("a"))];
    assert_eq!(cycles(&graph), [arrows]);
}

/// Files whose tests are in a file of their own declare it at the top.
#[test]
fn imports_behind_a_declaration_of_tests_are_found() {
    let source = parse("#[cfg(test)]\nmod tests;\nuse super::a::B;\n#[cfg(test)]\nmod tests {\n    use super::C;\n}\n");
    assert_eq!(source.imports, [("super::a::B".to_owned(), "B".to_owned())]);
}

/// A message or a name with the letters of `use` must not hide the paths beside it, and a message names no path.
#[test]
fn literals_and_names_are_not_taken_for_imports() {
    let code =
        "fn a<'x>() {\n    let cause = b::c(\"use d; mod e\", '\"', r#\"f::g\"#); // use i::j\n    use super::h;\n}\n";
    let source = parse(code);
    assert_eq!(source.qualified, BTreeSet::from(["b::c".to_owned()]));
    assert_eq!(source.imports, [("super::h".to_owned(), "h".to_owned())]);
    assert!(source.children.is_empty(), "{:?}", source.children);
}

#[test]
fn top_level_has_few_folders() {
    let entries = std::fs::read_dir(root()).expect("src can be read").count();
    assert!(entries <= 22, "src has {entries} entries");
}

#[test]
fn provisioners_have_the_same_files() {
    const SHARED: [&str; 15] = [
        "adopt",
        "apply",
        "delete",
        "desired",
        "input",
        "join",
        "names",
        "observe",
        "observed",
        "ownership",
        "plan",
        "record",
        "resolve",
        "simulate",
        "unchanged_parts",
    ];
    let architecture = std::fs::read_to_string(root().join("../docs/ARCHITECTURE.md")).expect("the page exists");
    let page = architecture.split_once("### A provisioner").expect("the section exists").1;
    for name in SHARED {
        assert!(page.contains(&format!("`{name}`")), "docs/ARCHITECTURE.md does not describe {name}");
    }
    for provisioner in ["eks", "nodegroup", "fargate"] {
        let folder = root().join("provisioner").join(provisioner);
        for name in SHARED {
            let exists = folder.join(name).join("mod.rs").exists() || folder.join(format!("{name}.rs")).exists();
            // EKS itself authorizes the role of a managed node group.
            assert!(exists || (provisioner, name) == ("nodegroup", "join"), "{provisioner} has no {name}");
        }
    }
}
