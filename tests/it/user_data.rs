//! Independent readers parse the rendered user data: a real shell, a TOML parser, a YAML parser.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use instance_manager::provisioner::eks::user_data::{
    BootstrapInput, IgnoredField, MAX_BYTES, Mount, OsFamily, Stage, StageKind, Taint, UserData, UserDataError, render,
};
use proptest::prelude::*;

use crate::systemd::{words_of_environment_file, words_of_unit};

fn plain() -> BootstrapInput {
    BootstrapInput {
        cluster: "bench".into(),
        endpoint: "https://EXAMPLE.gr7.us-west-2.eks.amazonaws.com".into(),
        ca_base64: "LS0tLS1CRUdJTg==".into(),
        service_cidr: "172.20.0.0/16".into(),
        labels: labels(&[("node.kubernetes.io/role", "web"), ("team", "search")]),
        ..BootstrapInput::default()
    }
}

/// The least that nodeadm decodes.
const NODE_CONFIG: &str = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig";

fn full() -> BootstrapInput {
    BootstrapInput {
        taints: vec![
            taint("gpu", "", "PreferNoSchedule"),
            taint("dedicated", "search", "NoSchedule"),
            taint("dedicated", "search", "noexecute"),
        ],
        max_pods: Some(58),
        container_runtime: Some("containerd".into()),
        bootstrap_arguments: "--eviction-hard=memory.available<300Mi,nodefs.available<5% -v=2".to_owned().into(),
        mounts: vec![mount("/dev/xvdb", "xfs", "/data", true), mount("/dev/xvdc", "EXT4", "/my scratch", false)],
        ..plain()
    }
}

fn with_scripts(input: BootstrapInput) -> BootstrapInput {
    let stages = vec![
        Stage::new("first", StageKind::Pre, "echo pre \"$HOSTNAME\"\n"),
        Stage::new("second", StageKind::Pre, "echo more"),
        Stage::new("last", StageKind::Post, "ZWNobyBwb3N0"),
    ];
    BootstrapInput { stages, ..input }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.into(), value: value.into(), effect: effect.into() }
}

fn mount(device: &str, file_system: &str, path: &str, persist: bool) -> Mount {
    Mount { device: device.into(), file_system: file_system.into(), path: path.into(), persist }
}

fn golden(name: &str, family: OsFamily, input: &BootstrapInput) {
    let rendered = render(family, input).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/user_data");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, rendered.expose()).unwrap();
    }
    let stored = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; set UPDATE_GOLDEN=1", path.display()));
    assert_eq!(rendered.text(), stored, "{name} differs; UPDATE_GOLDEN=1 regenerates it");
}

#[test]
fn user_data_matches_golden_files() {
    golden("al2_plain", OsFamily::AmazonLinux2, &plain());
    golden("al2_full", OsFamily::AmazonLinux2, &with_scripts(full()));
    let ipv6 = BootstrapInput { service_cidr: "fd30:1c53:5f8a::/108".into(), ..plain() };
    golden("al2_ipv6", OsFamily::AmazonLinux2, &ipv6);
    golden("al2023_ipv6", OsFamily::AmazonLinux2023, &ipv6);
    let custom = BootstrapInput { service_cidr: "10.96.0.0/16".into(), ..plain() };
    golden("windows_custom_range", OsFamily::Windows, &custom);
    golden("al2023_plain", OsFamily::AmazonLinux2023, &plain());
    let mut input = with_scripts(full());
    let config = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  instance:\n    \
                  localStorage:\n      strategy: RAID0\n";
    input.stages.push(Stage::new("nodeadm", StageKind::NodeConfig, config));
    golden("al2023_full", OsFamily::AmazonLinux2, &input);
    golden("bottlerocket_plain", OsFamily::Bottlerocket, &plain());
    let pre = "[settings.host-containers.admin]\nenabled = true\n";
    let post = "[settings.kernel.sysctl]\n\"vm.max_map_count\" = \"262144\"\n";
    let stages = vec![Stage::new("admin", StageKind::Pre, pre), Stage::new("sysctl", StageKind::Post, post)];
    golden("bottlerocket_full", OsFamily::Bottlerocket, &BootstrapInput { stages, ..full() });
    let asking = BootstrapInput { endpoint: String::new(), ca_base64: String::new(), ..plain() };
    golden("windows_asking", OsFamily::Windows, &asking);
    let pre = Stage::new("first", StageKind::Pre, "Write-Host pre # to the end of this line");
    let post = Stage::new("last", StageKind::Post, "V3JpdGUtSG9zdCBwb3N0");
    golden("windows_full", OsFamily::Windows, &BootstrapInput { stages: vec![pre, post], ..full() });
}

#[test]
fn unsupported_fields_are_reported() {
    let ignored = |family, input: &BootstrapInput| render(family, input).unwrap().ignored;
    let input = BootstrapInput { container_runtime: Some("dockerd".into()), ..full() };
    assert_eq!(
        ignored(OsFamily::Bottlerocket, &input),
        [IgnoredField::BootstrapArguments, IgnoredField::ContainerRuntime, IgnoredField::Mounts]
    );
    assert_eq!(ignored(OsFamily::AmazonLinux2023, &input), [IgnoredField::ContainerRuntime]);
    assert_eq!(ignored(OsFamily::AmazonLinux2, &full()), []);
    assert_eq!(ignored(OsFamily::Windows, &full()), [IgnoredField::Mounts]);
}

/// bootstrap.sh of Amazon Linux 2 exits on every other word (awslabs/amazon-eks-ami, issue 1024).
#[test]
fn other_runtime_than_containerd_is_rejected() {
    for runtime in ["dockerd", "docker", "Containerd", "containerd ", "x; reboot"] {
        let input = BootstrapInput { container_runtime: Some(runtime.into()), ..plain() };
        for family in [OsFamily::AmazonLinux2, OsFamily::Windows] {
            let message = render(family, &input).unwrap_err().to_string();
            assert!(message.contains("containerRuntime") && message.contains("remove it"), "{message}");
        }
    }
    // keikoproj/instance-manager accepts dockerd too, and groups run with it where it has no effect.
    for family in [OsFamily::AmazonLinux2023, OsFamily::Bottlerocket] {
        let runtime = |text: &str| render(family, &BootstrapInput { container_runtime: Some(text.into()), ..plain() });
        assert_eq!(runtime("dockerd").unwrap().ignored, [IgnoredField::ContainerRuntime]);
        assert_eq!(runtime("containerd").unwrap().ignored, []);
        for unknown in ["docker", "Containerd", "cri-o", "containerd\n"] {
            let message = runtime(unknown).unwrap_err().to_string();
            assert!(message.contains("containerRuntime") && message.contains("remove it"), "{message}");
        }
    }
    let named = render(OsFamily::Windows, &BootstrapInput { container_runtime: Some("containerd".into()), ..plain() });
    assert_eq!(named, render(OsFamily::Windows, &plain()), "the script of the AMIs has no parameter for it");
}

/// The kubelet exits: "duplicated taints with the same key and effect" (k8s.io/kubernetes, pkg/util/taints).
#[test]
fn repeated_taints_are_rejected() {
    let repeated = vec![taint("a", "x", "NoSchedule"), taint("a", "y", "noschedule")];
    let different = vec![taint("a", "x", "NoSchedule"), taint("a", "x", "NoExecute"), taint("b", "x", "NoSchedule")];
    for family in [OsFamily::AmazonLinux2, OsFamily::AmazonLinux2023, OsFamily::Bottlerocket, OsFamily::Windows] {
        let message = render(family, &BootstrapInput { taints: repeated.clone(), ..plain() }).unwrap_err().to_string();
        assert!(message.contains("taints") && message.contains("twice"), "{message}");
        assert!(render(family, &BootstrapInput { taints: different.clone(), ..plain() }).is_ok());
    }
}

/// cloud-init decodes user data as UTF-8 and stops at other bytes (canonical/cloud-init, cloudinit/util.py).
#[test]
fn stages_of_amazon_linux_are_utf_8() {
    for kind in [StageKind::Pre, StageKind::Post] {
        // The base64 of `echo \xff`.
        let input = BootstrapInput { stages: vec![Stage::new("mine", kind, "ZWNobyD/")], ..plain() };
        for family in [OsFamily::AmazonLinux2, OsFamily::AmazonLinux2023] {
            let message = render(family, &input).unwrap_err().to_string();
            assert!(message.contains("`mine`") && message.contains("UTF-8"), "{message}");
        }
        assert!(render(OsFamily::Windows, &input).is_ok());
    }
}

/// Text that gzip hardly compresses.
fn noise(bytes: usize) -> String {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + (state >> 33) as u8 % 95)
    };
    std::iter::once('#').chain(std::iter::repeat_with(&mut next)).take(bytes).collect()
}

/// The bytes that AWS counts: those of the launch template, compressed or not.
fn transmitted_bytes(rendered: &UserData) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(rendered.base64()).unwrap()
}

#[test]
fn oversized_user_data_names_the_largest_part() {
    let mut input = plain();
    let spare = MAX_BYTES - transmitted_bytes(&render(OsFamily::Windows, &input).unwrap()).len();
    input.stages.push(Stage::new("big", StageKind::Post, "#".repeat(spare)));
    assert_eq!(transmitted_bytes(&render(OsFamily::Windows, &input).unwrap()).len(), MAX_BYTES);
    input.stages.push(Stage::new("one more", StageKind::Post, "#"));
    let message = render(OsFamily::Windows, &input).unwrap_err().to_string();
    assert!(message.contains("16385") && message.contains("`big`"), "{message}");
    for (size, expect) in [(30_000, "although they are compressed"), (200_000, "before they are compressed")] {
        let stages =
            vec![Stage::new("big", StageKind::Post, noise(size)), Stage::new("small", StageKind::Pre, "true && true")];
        let message = render(OsFamily::AmazonLinux2, &BootstrapInput { stages, ..plain() }).unwrap_err().to_string();
        assert!(message.contains(expect) && message.contains("`big`"), "{message}");
    }
}

/// The user data of a launch template, unpacked by the program `gzip`.
fn unpacked(base64: &str) -> Vec<u8> {
    let packed = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(packed.path(), base64::engine::general_purpose::STANDARD.decode(base64).unwrap()).unwrap();
    let out = Command::new("gzip").args(["-dc"]).stdin(std::fs::File::open(packed.path()).unwrap()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

#[test]
fn only_large_user_data_is_compressed() {
    let with = |data: String, kind| BootstrapInput { stages: vec![Stage::new("s", kind, data)], ..plain() };
    let lines = "# a line that many scripts have\n".repeat(1_000);
    for family in [OsFamily::AmazonLinux2, OsFamily::AmazonLinux2023, OsFamily::Bottlerocket] {
        let rendered = render(family, &with(lines.clone(), StageKind::Post)).unwrap();
        assert!(transmitted_bytes(&rendered).len() <= MAX_BYTES && rendered.text().contains(&lines), "{family}");
        assert_eq!(unpacked(&rendered.base64()), rendered.expose(), "{family}");
        assert_eq!(
            render(family, &with(lines.clone(), StageKind::Post)).unwrap(),
            rendered,
            "rendering is deterministic"
        );
        let small = render(family, &with("# one line\n".into(), StageKind::Post)).unwrap();
        let plain = base64::engine::general_purpose::STANDARD.encode(small.expose());
        assert_eq!(small.base64(), plain, "{family}");
    }
    let message = render(OsFamily::Windows, &with(lines, StageKind::Post)).unwrap_err().to_string();
    assert!(message.contains("on this OS family"), "{message}");
}

#[test]
fn invalid_stages_are_reported_without_content() {
    let stage = |kind, data: &str| BootstrapInput { stages: vec![Stage::new("mine", kind, data)], ..plain() };
    let problem = |family, input| render(family, &input).unwrap_err().to_string();
    for (family, kind, data, expect) in [
        (OsFamily::AmazonLinux2, StageKind::NodeConfig, "a: 1\ncanary: [", "NodeConfig"),
        (OsFamily::AmazonLinux2, StageKind::NodeConfig, "- canary", "single mapping"),
        (OsFamily::Bottlerocket, StageKind::Pre, "a = 1\ncanary", "line 2"),
        (OsFamily::Bottlerocket, StageKind::Pre, "abcdefgh", "UTF-8"),
        (OsFamily::Windows, StageKind::Post, "# canary </PowerShell>", "</powershell>"),
        (OsFamily::Windows, StageKind::Post, "H4sIAAAAAAAA/w==", "compressed"),
        (OsFamily::Windows, StageKind::Pre, "//5lAGMAaABvAA==", "compressed or binary"),
    ] {
        let message = problem(family, stage(kind, data));
        assert!(message.contains("`mine`") && message.contains(expect), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }
    let twice = stage(StageKind::Post, "[settings.kubernetes]\nmax-pods = 5\n");
    assert_eq!(render(OsFamily::Bottlerocket, &twice), Err(UserDataError::TomlConflict));
}

#[test]
fn kubelet_arguments_may_span_lines() {
    let with = |text: &str| BootstrapInput { bootstrap_arguments: text.to_owned().into(), ..full() };
    let al2 = |text: &str| bootstrap_words(&render(OsFamily::AmazonLinux2, &with(text)).unwrap()).pop().unwrap();
    let one_line = al2("--a=b -v=2");
    for text in [
        "--a=b\n-v=2",
        "--a=b -v=2\n",
        "\n --a=b \r\n\t-v=2",
        "--a=b \\\n-v=2\n",
        "--a=b\u{a0}-v=2",
        "--a=b \\ \n-v=2",
        "--a=b \\ -v=2",
        "--a=b -v=2 \\",
    ] {
        assert_eq!(al2(text), one_line, "{text:?}");
        let windows = |text| render(OsFamily::Windows, &with(text)).unwrap();
        if text.is_ascii() && !text.contains('\\') {
            assert_eq!(windows(text), windows("--a=b -v=2"), "{text:?}");
        }
        let al2023 = |text| render(OsFamily::AmazonLinux2023, &with(text)).unwrap();
        if !text.contains('\\') {
            assert_eq!(al2023(text), al2023("--a=b -v=2"), "{text:?}");
        }
    }
    // What systemd reads as it is stays unchanged.
    for text in ["--a=b  -v=2", " --a=b\t-v=2 ", "--a=b \\\n-v=2", "--a=\"b c\"", "--a=memory<5%,disk<7% -v=2"] {
        assert!(al2(text).contains(text), "{text:?}");
        assert!(words_of_unit(&al2(text)).unwrap()[0].starts_with("--node-labels="), "{text:?}");
    }
    assert_eq!(words_of_unit(&al2("--a='b c' --d=5%n")).unwrap()[2..4], ["--a=b c", "--d=5%n"]);
}

#[test]
fn arguments_that_systemd_changes_are_rejected() {
    for (text, expect) in [
        ("--a=canary\\d", "backslash"),
        ("--a=canary\\n --b", "backslash"),
        ("--a='canary", "without its pair"),
        ("--a=\"canary' --b", "without its pair"),
        ("--a=canary\u{7}", "control character"),
    ] {
        let input = BootstrapInput { bootstrap_arguments: text.to_owned().into(), ..plain() };
        for family in [OsFamily::AmazonLinux2, OsFamily::AmazonLinux2023] {
            let message = render(family, &input).unwrap_err().to_string();
            assert!(message.contains("bootstrapArguments") && message.contains(expect), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
    let windows = |text: &str| {
        let input = BootstrapInput { bootstrap_arguments: text.to_owned().into(), ..plain() };
        render(OsFamily::Windows, &input).map_err(|error| error.to_string())
    };
    for text in [r"--root-dir=C:\k", r#"--root-dir="C:\my k""#, r#"--root-dir="C:\k\\""#, "--a=it's"] {
        assert!(windows(text).is_ok(), "{text}");
    }
    for text in ["--a=\"b", r#"--root-dir="C:\k\""#] {
        assert!(windows(text).unwrap_err().contains("without its pair"), "{text}");
    }
}

#[test]
fn scripts_that_are_not_ascii_are_encoded() {
    let stage = |kind, text: &str| Stage::new("s", kind, text);
    let config = &format!("{NODE_CONFIG} # \u{fc}");
    let stages = vec![
        stage(StageKind::Pre, "# Gr\u{fc}\u{df}e \u{2019}\n"),
        stage(StageKind::NodeConfig, config),
        stage(StageKind::Post, "echo plain\n"),
    ];
    let rendered = render(OsFamily::AmazonLinux2023, &BootstrapInput { stages, ..plain() }).unwrap();
    let parts = mime_parts(&rendered.text());
    assert!(parts[0].0.contains("\nContent-Transfer-Encoding: base64"));
    assert!(parts[0].1.is_ascii() && parts[0].1.lines().all(|line| line.len() <= 76));
    assert!(shell_script(&parts[0]).starts_with("#!/bin/bash\n# Gr\u{fc}\u{df}e \u{2019}\n"));
    assert_eq!(parts[1].1, *config, "nodeadm reads raw UTF-8");
    assert!(parts[3].1.ends_with("echo plain\n") && !parts[3].0.contains("base64"));
}

#[test]
fn windows_rejects_text_that_quoting_cannot_protect() {
    for (text, expect) in
        [("--a=<script>canary</script>", "a tag"), ("</powershell>", "a tag"), ("--a=\u{2019}", "ASCII")]
    {
        let input = BootstrapInput { bootstrap_arguments: text.to_owned().into(), ..plain() };
        let message = render(OsFamily::Windows, &input).unwrap_err().to_string();
        assert!(message.contains("bootstrapArguments") && message.contains(expect), "{message}");
        assert!(!message.contains("canary"), "{message}");
    }
    assert!(render(OsFamily::Windows, &full()).is_ok(), "a threshold such as <300Mi is not a tag");
}

#[test]
fn user_data_is_redacted() {
    let input = BootstrapInput { stages: vec![Stage::new("s", StageKind::Pre, "canary")], ..plain() };
    let rendered = render(OsFamily::AmazonLinux2, &input).unwrap();
    let json = serde_json::to_string(&rendered).unwrap();
    assert!(!format!("{input:?} {rendered:?} {json}").contains("canary"));
    assert!(rendered.text().contains("canary"));
}

/// Runs a script with functions in place of every program, and returns its output.
fn run_shell(functions: &str, script: &str) -> String {
    let text = format!("PATH=/nonexistent\n{functions}\n{script}");
    let check = Command::new("bash").args(["-n", "-c", &text]).output().unwrap();
    assert!(check.status.success(), "bash -n rejects:\n{text}");
    let output = Command::new("bash").args(["--norc", "--noprofile", "-c", &text]).output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The arguments of `/etc/eks/bootstrap.sh`.
fn bootstrap_words(user_data: &UserData) -> Vec<String> {
    let functions = "/etc/eks/bootstrap.sh() { printf '%s\\0' \"$@\"; }";
    let printed = run_shell(functions, &user_data.text());
    printed.split_terminator('\0').map(str::to_owned).collect()
}

/// The program calls of the mounts, one per line, and `/etc/fstab`, when `blkid` exits with the given code.
fn mount_calls(mounts: Vec<Mount>, blkid: i32) -> (String, String) {
    let fstab = tempfile::NamedTempFile::new().unwrap();
    let functions = format!(
        "say() {{ printf '%s|' \"$@\"; printf '\\n'; }}\n\
         blkid() {{ return {blkid}; }}\n\
         mkfs.xfs() {{ say mkfs.xfs \"$@\"; }}\n\
         mkfs.ext4() {{ say mkfs.ext4 \"$@\"; }}\n\
         mkdir() {{ say mkdir \"$@\"; }}\n\
         mountpoint() {{ return 1; }}\n\
         mount() {{ say mount \"$@\"; }}\n\
         grep() {{ return 1; }}\n\
         /etc/eks/bootstrap.sh() {{ :; }}\n\
         set -euo pipefail"
    );
    let rendered = render(OsFamily::AmazonLinux2, &BootstrapInput { mounts, ..plain() }).unwrap();
    let script = rendered.text().replace("/etc/fstab", fstab.path().to_str().unwrap());
    let calls = run_shell(&functions, &script);
    (calls, std::fs::read_to_string(fstab.path()).unwrap())
}

#[test]
fn only_devices_without_file_system_are_formatted() {
    let mounts = || vec![mount("/dev/xvdb", "xfs", "/it's mine", true), mount("sdc", "Ext4", "/b", false)];
    let rest = "mkdir|-p|/it's mine|\nmount|/dev/xvdb|/it's mine|\n";
    let (calls, fstab) = mount_calls(mounts(), 2);
    let formatted = "mkfs.ext4|/dev/sdc|\nmkdir|-p|/b|\nmount|/dev/sdc|/b|\n";
    assert_eq!(calls, format!("mkfs.xfs|/dev/xvdb|\n{rest}{formatted}"));
    assert_eq!(fstab, "/dev/xvdb    /it's\\040mine    xfs    defaults    0    2\n");
    for other in [0, 4, 8] {
        let (calls, _) = mount_calls(mounts(), other);
        assert!(!calls.contains("mkfs"), "blkid {other}: {calls}");
        assert!(calls.starts_with(rest));
    }
}

#[test]
fn warm_instance_does_not_join() {
    let input = with_scripts(plain());
    let rendered = render(OsFamily::AmazonLinux2, &input).unwrap();
    let run = |state: &str| {
        let functions = format!(
            "aws() {{ :; }}\njq() {{ :; }}\ncurl() {{ printf '%s' '{state}'; }}\n\
             rm() {{ printf 'rm %s;' \"$2\"; }}\n\
             /etc/eks/bootstrap.sh() {{ printf 'joined;'; }}"
        );
        run_shell(&functions, &rendered.text())
    };
    let warm = run("Warmed:Stopped");
    assert!(warm.ends_with("/sem/config_scripts_user;"), "{warm}");
    assert!(!warm.contains("joined") && !warm.contains("post"));
    assert_eq!(run("InService").lines().last().unwrap(), "joined;post");
}

#[test]
fn warm_al2023_instance_stops_nodeadm_and_skips_later_scripts() {
    let rendered = render(OsFamily::AmazonLinux2023, &with_scripts(plain())).unwrap();
    let run_directory = tempfile::tempdir().unwrap();
    // Like cloud-init: each script runs in its own shell, even if an earlier one failed.
    let boot = |state: &str| {
        let functions = format!(
            "aws() {{ :; }}\njq() {{ :; }}\ncurl() {{ printf '%s' '{state}'; }}\nrm() {{ :; }}\n\
             mkdir() {{ /bin/mkdir \"$@\"; }}\nsystemctl() {{ printf '%s ' \"$@\"; }}"
        );
        let scripts = mime_parts(&rendered.text()).into_iter().filter(|(kind, _)| kind.contains("shellscript"));
        let redirected =
            |(_, script): (String, String)| script.replace("/run/", &format!("{}/", run_directory.path().display()));
        let last = |output: String| output.lines().last().unwrap_or_default().trim().to_owned();
        scripts.map(|part| last(run_shell(&functions, &redirected(part)))).collect::<Vec<_>>()
    };
    assert_eq!(boot("Warmed:Stopped"), ["daemon-reload", ""]);
    // A runtime mask would have no effect: the unit is in /etc/systemd/system.
    let drop_in = run_directory.path().join("systemd/system/nodeadm-run.service.d/90-instance-manager.conf");
    let marker = run_directory.path().join("instance-manager-warmed");
    let condition = format!("[Unit]\nConditionPathExists=!{}\n", marker.display());
    assert_eq!(std::fs::read_to_string(drop_in).expect("a drop-in"), condition);
    assert!(marker.exists());
    std::fs::remove_file(run_directory.path().join("instance-manager-warmed")).expect("the next boot clears /run");
    assert_eq!(boot("InService"), ["more", "post"]);
}

#[test]
fn warm_bottlerocket_instance_waits() {
    let text = |waits_for_service| {
        render(OsFamily::Bottlerocket, &BootstrapInput { waits_for_service, ..full() }).unwrap().text().to_string()
    };
    let waiting: toml::Table = text(true).parse().unwrap();
    assert_eq!(waiting["settings"]["autoscaling"]["should-wait"].as_bool(), Some(true));
    assert!(!text(false).contains("autoscaling"));
}

/// The words after a command of a PowerShell script up to the end of the statement (PowerShell documentation,
/// about_Quoting_Rules and about_Redirection).
fn powershell_words(script: &str, command: &str) -> Vec<String> {
    let mut rest = script.split_once(command).unwrap().1.chars().peekable();
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    while let Some(c) = rest.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().expect("the string ends") {
                        '\'' if rest.next_if_eq(&'\'').is_none() => break,
                        c => word.push(c),
                    }
                }
            }
            ' ' => words.extend(word.take()),
            '\n' => break,
            c => {
                // Redirections follow the last argument.
                let is_redirection = c == '&' && words.iter().any(|word| word == "-KubeletExtraArgs");
                assert!(!"\"`$;|&(){}@#".contains(c) || is_redirection, "{c:?} outside of quotes");
                word.get_or_insert_default().push(c);
            }
        }
    }
    words.extend(word);
    words
}

/// Parts of a MIME message: content type and content.
fn mime_parts(text: &str) -> Vec<(String, String)> {
    let (head, body) = text.split_once("\n\n").unwrap();
    let boundary = head.split("boundary=\"").nth(1).unwrap().trim_end_matches('"');
    let (start, end) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<Vec<&str>> = Vec::new();
    for line in body.split('\n') {
        if line == end {
            break;
        }
        match parts.last_mut() {
            _ if line == start => parts.push(Vec::new()),
            Some(part) => part.push(line),
            None => panic!("text before the first part: {line:?}"),
        }
    }
    let split = |lines: Vec<&str>| {
        let part = lines.join("\n");
        let (head, content) = part.split_once("\n\n").unwrap();
        (head.trim_start_matches("Content-Type: ").to_owned(), content.to_owned())
    };
    parts.into_iter().map(split).collect()
}

/// The value of a kubelet flag.
fn read_flag<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn read_labels(flag: &str) -> BTreeMap<String, String> {
    let pair = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    flag.split(',').filter(|text| !text.is_empty()).map(pair).collect()
}

fn written_taints(input: &BootstrapInput) -> Vec<String> {
    let mut taints: Vec<_> =
        input.taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect)).collect();
    taints.sort();
    taints
}

fn read_taints(flag: Option<&str>) -> Vec<String> {
    let mut taints: Vec<_> =
        flag.unwrap_or_default().split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
    taints.sort();
    taints
}

/// The words of arguments in the order that the kubelet must get them, without quotation marks.
fn plain_words(arguments: &str) -> Vec<String> {
    let (mut text, mut quote, mut rest) = (String::new(), None, arguments.chars().peekable());
    while let Some(c) = rest.next() {
        match (c, quote) {
            (_, Some(open)) if open == c => quote = None,
            ('\'' | '"', None) => quote = Some(c),
            ('\\', _) if rest.peek().is_none_or(|next| next.is_whitespace()) => text.push(' '),
            _ => text.push(c),
        }
    }
    text.split_whitespace().map(str::to_owned).collect()
}

/// The script of a MIME part, decoded.
fn shell_script((header, content): &(String, String)) -> String {
    if !header.contains("base64") {
        return content.clone();
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(content.replace('\n', "")).unwrap();
    String::from_utf8(decoded).unwrap()
}

/// Mostly valid text, sometimes arbitrary text.
fn text(valid: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![20 => valid, 1 => "\\PC{0,12}", 1 => "[ '\"`$;&|\\\\\n,=:%#]{1,6}"]
}

prop_compose! {
    fn any_taint()(
        key in text("[a-z]([a-z0-9.-]{0,8}[a-z0-9])?"),
        value in text("([A-Za-z0-9]{1,8})?"),
        effect in prop_oneof![Just("NoSchedule"), Just("PreferNoSchedule"), Just("NoExecute")],
    ) -> Taint {
        Taint { key, value, effect: effect.to_owned() }
    }
}

prop_compose! {
    fn any_input()(
        cluster in prop_oneof!["\\PC{0,20}", "[ -~]{0,20}"],
        endpoint in prop_oneof!["\\PC{0,20}", "[ -~]{0,20}"],
        ca_base64 in prop_oneof!["\\PC{0,20}", "[ -~]{0,20}"],
        labels in prop::collection::btree_map(
            text("[a-z][a-z0-9]{0,8}(/[A-Za-z0-9]{1,5})?"), text("([A-Za-z0-9._-]{0,4}[A-Za-z0-9])?"), 0..4),
        taints in prop::collection::vec(any_taint(), 0..4),
        max_pods in prop::option::of(1..250u32),
        container_runtime in prop::option::of(prop_oneof![4 => Just("containerd".to_owned()), 1 => "\\PC{1,10}"]),
        bootstrap_arguments in prop_oneof![any::<String>(), "[a%n'\" \\\\\n\r\t]{0,12}", Just(String::new())],
    ) -> BootstrapInput {
        BootstrapInput {
            cluster, endpoint, ca_base64, labels, taints, max_pods, container_runtime,
            bootstrap_arguments: bootstrap_arguments.into(), service_cidr: "10.100.0.0/16".into(), assumed_service_cidr: None,
            mounts: Vec::new(), stages: Vec::new(), waits_for_service: false,
        }
    }
}

fn expected_words(input: &BootstrapInput) -> Vec<String> {
    let mut words = vec![input.cluster.clone()];
    if input.max_pods.is_some() {
        words.extend(["--use-max-pods".into(), "false".into()]);
    }
    if let Some(runtime) = &input.container_runtime {
        words.extend(["--container-runtime".into(), runtime.clone()]);
    }
    words.extend(["--b64-cluster-ca".into(), input.ca_base64.clone()]);
    words.extend(["--apiserver-endpoint".into(), input.endpoint.clone()]);
    words.extend(["--dns-cluster-ip".into(), "10.100.0.10".into()]);
    words.push("--kubelet-extra-args".into());
    words
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn shell_round_trip(input in any_input()) {
        let Ok(rendered) = render(OsFamily::AmazonLinux2, &input) else { return Ok(()) };
        let mut words = bootstrap_words(&rendered);
        let kubelet = words.pop().unwrap();
        prop_assert_eq!(words, expected_words(&input));
        let Some(read) = words_of_unit(&kubelet) else { panic!("{kubelet:?} of {:?}", input.bootstrap_arguments.expose()) };
        let flags: Vec<_> = read.iter().map(String::as_str).collect();
        prop_assert_eq!(&read_labels(read_flag(&flags[..1], "--node-labels").unwrap()), &input.labels);
        let taints = read_taints(read_flag(&flags[1..2], "--register-with-taints"));
        prop_assert_eq!(taints, written_taints(&input));
        let mut expected = plain_words(input.bootstrap_arguments.expose());
        expected.extend(input.max_pods.map(|pods| format!("--max-pods={pods}")));
        let read = flags[2..].join(" ");
        prop_assert_eq!(read.split_whitespace().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn yaml_in_mime_round_trip(
        input in any_input(),
        script in "(--BOUNDARY(1|2|--)?\n|\\PC{0,10}\n){0,6}",
    ) {
        let stages = vec![
            Stage::new("a", StageKind::Pre, format!("# {script}")),
            Stage::new("b", StageKind::Post, format!("# {script}")),
            Stage::new("c", StageKind::NodeConfig, NODE_CONFIG),
        ];
        let input = BootstrapInput { stages, ..input };
        let Ok(rendered) = render(OsFamily::AmazonLinux2, &input) else { return Ok(()) };
        let parts = mime_parts(&rendered.text());
        prop_assert_eq!(parts.len(), 4);
        prop_assert!(shell_script(&parts[0]).contains(&script) && shell_script(&parts[3]).contains(&script));
        prop_assert_eq!(&parts[1].1, NODE_CONFIG);
        prop_assert_eq!(&parts[2].0, "application/node.eks.aws");
        let config: serde_yaml::Value = serde_yaml::from_str(&parts[2].1).unwrap();
        let cluster = &config["spec"]["cluster"];
        prop_assert_eq!(cluster["name"].as_str(), Some(input.cluster.as_str()));
        prop_assert_eq!(cluster["apiServerEndpoint"].as_str(), Some(input.endpoint.as_str()));
        prop_assert_eq!(cluster["certificateAuthority"].as_str(), Some(input.ca_base64.as_str()));
        prop_assert_eq!(cluster["cidr"].as_str(), Some("10.100.0.0/16"));
        let kubelet = &config["spec"]["kubelet"];
        let max_pods = kubelet.get("config").and_then(|config| config["maxPods"].as_u64());
        prop_assert_eq!(max_pods, input.max_pods.map(u64::from));
        let flags: Vec<_> =
            kubelet["flags"].as_sequence().unwrap().iter().map(|flag| flag.as_str().unwrap()).collect();
        prop_assert_eq!(&read_labels(read_flag(&flags[..1], "--node-labels").unwrap()), &input.labels);
        let own = 1 + usize::from(!input.taints.is_empty());
        prop_assert_eq!(read_taints(read_flag(&flags[1..own], "--register-with-taints")), written_taints(&input));
        let read = words_of_environment_file(&flags)[own..].join(" ");
        prop_assert_eq!(read.split_whitespace().collect::<Vec<_>>(), plain_words(input.bootstrap_arguments.expose()));
    }

    #[test]
    fn powershell_round_trip(input in any_input(), arguments in "[ -~\n]{0,20}") {
        let input = BootstrapInput { bootstrap_arguments: arguments.into(), ..input };
        let Ok(rendered) = render(OsFamily::Windows, &input) else { return Ok(()) };
        let mut words = powershell_words(&rendered.text(), "\n& $EKSBootstrapScriptFile ");
        prop_assert_eq!(words.split_off(words.len() - 4), ["3>&1", "4>&1", "5>&1", "6>&1"]);
        let kubelet = words.pop().unwrap();
        let mut expected = Vec::new();
        for (name, value) in [
            ("-EKSClusterName", input.cluster.as_str()),
            ("-Base64ClusterCA", &input.ca_base64),
            ("-APIServerEndpoint", &input.endpoint),
        ] {
            expected.extend([name, value].into_iter().filter(|_| !value.is_empty()));
        }
        expected.push("-KubeletExtraArgs");
        prop_assert_eq!(words, expected);
        let flags: Vec<_> = kubelet.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
        let written = input.bootstrap_arguments.expose().split_whitespace();
        let arguments: Vec<_> = written.filter(|word| *word != "\\").collect();
        prop_assert_eq!(&flags[2..2 + arguments.len()], &arguments[..]);
        prop_assert_eq!(&read_labels(read_flag(&flags[..1], "--node-labels").unwrap()), &input.labels);
        prop_assert_eq!(read_taints(read_flag(&flags[1..2], "--register-with-taints")), written_taints(&input));
        let last = input.max_pods.map(|pods| format!("--max-pods={pods}"));
        prop_assert!(last.is_none_or(|last| kubelet.ends_with(&last)));
    }

    #[test]
    fn toml_round_trip(input in any_input()) {
        let Ok(rendered) = render(OsFamily::Bottlerocket, &input) else { return Ok(()) };
        let table: toml::Table = rendered.text().parse().unwrap();
        let settings = table["settings"]["kubernetes"].as_table().unwrap();
        prop_assert_eq!(settings["cluster-name"].as_str(), Some(input.cluster.as_str()));
        prop_assert_eq!(settings["api-server"].as_str(), Some(input.endpoint.as_str()));
        prop_assert_eq!(settings["cluster-certificate"].as_str(), Some(input.ca_base64.as_str()));
        let max_pods = settings.get("max-pods").and_then(toml::Value::as_integer);
        prop_assert_eq!(max_pods, input.max_pods.map(i64::from));
        let read: BTreeMap<String, String> = settings["node-labels"].as_table().unwrap().iter()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
        prop_assert_eq!(&read, &input.labels);
        let mut taints: Vec<String> = settings["node-taints"].as_table().unwrap().iter()
            .flat_map(|(key, value)| match value {
                toml::Value::Array(many) => many.clone(),
                one => vec![one.clone()],
            }.into_iter().map(move |value| format!("{key}={}", value.as_str().unwrap())))
            .collect();
        taints.sort();
        prop_assert_eq!(taints, written_taints(&input));
    }
}

proptest! {
    #[test]
    fn no_input_panics(
        values in prop::collection::vec(any::<String>(), 10),
        family in prop_oneof![Just(OsFamily::AmazonLinux2), Just(OsFamily::AmazonLinux2023),
            Just(OsFamily::Bottlerocket), Just(OsFamily::Windows)],
        kind in prop_oneof![Just(StageKind::Pre), Just(StageKind::Post), Just(StageKind::NodeConfig)],
    ) {
        let input = BootstrapInput {
            cluster: values[0].clone(),
            endpoint: values[1].clone(),
            service_cidr: values[2].clone(),
            labels: labels(&[(&values[3], &values[4])]),
            bootstrap_arguments: values[5].clone().into(),
            stages: vec![Stage::new(values[6].clone(), kind, values[7].clone())],
            mounts: vec![mount(&values[8], "xfs", &values[9], true)],
            ..BootstrapInput::default()
        };
        let _ = render(family, &input);
        let bare = BootstrapInput { stages: input.stages, ..plain() };
        let _ = render(family, &bare);
    }
}
