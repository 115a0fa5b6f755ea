//! Pure modules contain no I/O, clocks, environment or logs.

use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    entries.flatten().flat_map(|entry| files(&entry.path())).collect()
}

/// Modules that only decide.
const PURE_MODULES: [&str; 12] = [
    "src/api/spec_error.rs",
    "src/auth",
    "src/boundaries",
    "src/controller/report",
    "src/ownership.rs",
    "src/plan",
    "src/provisioner",
    "src/rollout",
    "src/rotation",
    "src/util/calendar.rs",
    "src/util/digest.rs",
    "src/util/similar.rs",
];

/// The files or folders of a provisioner that do I/O.
const IO_MODULES: [&str; 2] = ["observe", "apply"];

/// Names that stand for I/O, clocks, the environment and logs.
const FORBIDDEN: [&str; 18] = [
    "kube::Api",
    "kube::api",
    "kube::Client",
    "kube::runtime",
    "kube::{",
    "tokio",
    "reqwest",
    "aws_sdk",
    "aws_config",
    "tracing",
    "std::env",
    "std::fs",
    "TcpStream",
    "std::time::SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "rand::",
];

#[test]
fn pure_modules_have_no_io() {
    for file in PURE_MODULES.iter().flat_map(|path| files(&root(path))) {
        let inside = file.strip_prefix(root("src")).expect("a path in src").with_extension("");
        let named = |name: &str| inside.iter().any(|part| part == name);
        if named("tests") || IO_MODULES.into_iter().any(named) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("the file is text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = FORBIDDEN.iter().find(|word| line.contains(*word));
            assert!(found.is_none(), "{}: {found:?} in a pure module: {line}", file.display());
        }
    }
}

/// Where the annotations of an InstanceGroup may be read before the merge with the boundaries, and why.
const RAW_ANNOTATIONS: [(&str, &str); 9] = [
    ("src/boundaries", "merges them"),
    ("src/cli/explain", "prints those after the merge"),
    ("src/cli/render.rs", "prints those after the merge"),
    ("src/cli/input", "passes them to the merge"),
    (
        "src/controller/planner",
        "passes them to the merge, reports those without effect, and reads the confirmation of a deletion",
    ),
    ("src/controller/rollout", "selects the wave of a group by them, as conditionals select groups"),
    ("src/controller/stores.rs", "passes them to the merge, for the lock"),
    ("src/k8s", "reads the lock again, and annotations of other objects"),
    ("src/rotation/crd", "writes annotations of strategy resources"),
];

/// Files that read annotations of other kinds of objects.
const OTHER_OBJECTS: [&str; 8] = [
    "src/cli/plan/snapshot.rs",
    "src/cli/rollout",
    "src/controller/revisions.rs",
    "src/cli/status",
    "src/controller/watches",
    "src/index/nodes",
    "src/leader",
    "src/provisioner/eks/observe/crd_strategy.rs",
];

/// An annotation that is read before the merge takes effect past an admin's boundary. `MergedAnnotations` has no other
/// source than the merge, so only raw reads must be found.
#[test]
fn annotations_of_groups_are_read_after_the_merge() {
    let allowed = || RAW_ANNOTATIONS.iter().map(|(path, _)| *path).chain(OTHER_OBJECTS);
    allowed().for_each(|path| assert!(root(path).exists(), "{path} was moved"));
    for file in files(&root("src")).into_iter().filter(|file| !allowed().any(|path| file.starts_with(root(path)))) {
        let text = std::fs::read_to_string(&file).expect("the file is text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let is_raw = [".annotations()", "meta.annotations", "metadata.annotations.", "[\"annotations\"]"];
            let is_raw = is_raw.iter().any(|word| line.contains(word)) && !line.contains("\"metadata.annotations");
            assert!(!is_raw, "{}: annotations before the merge: {line}", file.display());
        }
    }
}
