//! Rules of the house that a compiler does not know.

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

/// Everything that decides.
const PURE: [&str; 54] = [
    "src/boundaries",
    "src/config.rs",
    "src/digest.rs",
    "src/plan.rs",
    "src/plan",
    "src/problem.rs",
    "src/report.rs",
    "src/upgrade",
    "src/auth",
    "src/provisioner/mod.rs",
    "src/provisioner/ownership.rs",
    "src/provisioner/rolling_update.rs",
    "src/provisioner/seen.rs",
    "src/provisioner/eks/configuration.rs",
    "src/provisioner/eks/create.rs",
    "src/provisioner/eks/delete.rs",
    "src/provisioner/eks/drift.rs",
    "src/provisioner/eks/foresee.rs",
    "src/provisioner/eks/hash.rs",
    "src/provisioner/eks/join.rs",
    "src/provisioner/eks/names.rs",
    "src/provisioner/eks/plan.rs",
    "src/provisioner/eks/resolve.rs",
    "src/provisioner/eks/rotate.rs",
    "src/provisioner/eks/standing.rs",
    "src/provisioner/eks/state.rs",
    "src/provisioner/eks/step.rs",
    "src/provisioner/eks/strategy.rs",
    "src/provisioner/eks/user_data",
    "src/provisioner/eks/wanted.rs",
    "src/provisioner/eks/wanted",
    "src/provisioner/eks/warm.rs",
    "src/provisioner/eks_managed/change.rs",
    "src/provisioner/eks_managed/delete.rs",
    "src/provisioner/eks_managed/foresee.rs",
    "src/provisioner/eks_managed/health.rs",
    "src/provisioner/eks_managed/names.rs",
    "src/provisioner/eks_managed/plan.rs",
    "src/provisioner/eks_managed/replace.rs",
    "src/provisioner/eks_managed/resolve.rs",
    "src/provisioner/eks_managed/state.rs",
    "src/provisioner/eks_managed/step.rs",
    "src/provisioner/eks_managed/wanted.rs",
    "src/provisioner/fargate/adopt.rs",
    "src/provisioner/fargate/delete.rs",
    "src/provisioner/fargate/foresee.rs",
    "src/provisioner/fargate/names.rs",
    "src/provisioner/fargate/plan.rs",
    "src/provisioner/fargate/resolve.rs",
    "src/provisioner/fargate/role.rs",
    "src/provisioner/fargate/state.rs",
    "src/provisioner/fargate/step.rs",
    "src/provisioner/fargate/turn.rs",
    "src/provisioner/fargate/wanted.rs",
];

/// What talks, tells the time, looks around or writes a log.
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
fn what_decides_has_no_client_no_clock_no_environment_and_no_log() {
    for file in PURE.iter().flat_map(|path| files(&root(path))) {
        if file.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("the file is text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = FORBIDDEN.iter().find(|word| line.contains(*word));
            assert!(found.is_none(), "{}: {found:?} in a module that only decides: {line}", file.display());
        }
    }
}
