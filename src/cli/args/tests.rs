use clap::CommandFactory;

use super::*;
use crate::cli::settings::settings;
use crate::settings::{Settings, Timing};

fn normalized(line: &str) -> String {
    let args = std::iter::once("im").chain(line.split_whitespace());
    let out = normalize_args(args.map(OsString::from));
    let out: Vec<_> = out[1..].iter().map(|arg| arg.to_string_lossy()).collect();
    out.join(" ")
}

fn cli(line: &str) -> Result<Command, clap::Error> {
    let args = std::iter::once("im").chain(line.split_whitespace());
    parse(args.map(OsString::from)).map(|cli| cli.command)
}

fn run(line: &str) -> RunArgs {
    match cli(line) {
        Ok(Command::Run(args)) => *args,
        other => panic!("{line}: {other:?}"),
    }
}

fn plan(line: &str) -> PlanArgs {
    match cli(line) {
        Ok(Command::Plan(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn flags_are_normalized() {
    for (line, expected) in [
        ("", "run"),
        ("run", "run"),
        ("-max-workers=5", "run --max-workers=5"),
        ("-max-workers 5", "run --max-workers=5"),
        ("--max-workers 5", "run --max-workers=5"),
        ("run --max-workers 5", "run --max-workers=5"),
        ("-node-relabel", "run --node-relabel"),
        ("--node-relabel --max-workers 3", "run --node-relabel --max-workers=3"),
        ("-node-relabel=false -kubeconfig /k", "run --node-relabel=false --kubeconfig=/k"),
        ("-enable-leader-election false", "run --enable-leader-election false"),
        ("-config-namespace -x", "run --config-namespace=-x"),
        ("-max-workers", "run --max-workers"),
        ("-unknown 5", "run --unknown 5"),
        ("-h", "-h"),
        ("--help", "--help"),
        ("--version", "--version"),
        ("-help", "run --help"),
        ("run -h", "run -h"),
        ("-- -max-workers", "run -- -max-workers"),
        ("plan -n team web -ojson", "plan -n team web -ojson"),
        ("unknown -x", "unknown -x"),
    ] {
        assert_eq!(normalized(line), expected, "{line}");
    }
}

#[test]
fn defaults_without_flags() {
    let args = run("");
    assert_eq!(args.max_workers, 5);
    assert_eq!(args.max_api_retries, 12);
    assert_eq!(args.metrics_addr, ":8080".parse().unwrap());
    assert_eq!(args.resync_period, Duration::from_secs(300));
    let settings = settings(&args.cluster, Timing::default(), args.resync_period);
    assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
    assert!(args.node_relabel && args.enable_leader_election);
    let cluster = args.cluster;
    assert_eq!(cluster.config_retention, 2);
    assert_eq!(cluster.spot_recommendation_time, Duration::from_secs(600));
    assert_eq!(cluster.config_namespace, "instance-manager");
    let kind = cluster.default_scaling_configuration.as_str();
    assert_eq!(kind, "LaunchTemplate");
    assert!(!cluster.disable_windows_cluster_ca_injection);
    assert_eq!((cluster.connection.kubeconfig, cluster.cluster_name), (None, None));
}

#[test]
fn flags_of_a_keiko_deployment_are_accepted() {
    let args = run("--max-workers 7 -max-api-retries=3 --config-retention 4 --spot-recommendation-time=2.5 \
         --config-namespace kube-system --metrics-addr 127.0.0.1:9090 --node-relabel=f \
         --disable-windows-cluster-ca-injection --default-scaling-configuration launchconfiguration \
         --kubeconfig /k --enable-leader-election=0");
    assert_eq!((args.max_workers, args.max_api_retries), (7, 3));
    assert_eq!(args.metrics_addr.0.unwrap().to_string(), "127.0.0.1:9090");
    assert!(!args.node_relabel && !args.enable_leader_election);
    let cluster = args.cluster;
    assert_eq!(cluster.config_retention, 4);
    assert_eq!(cluster.spot_recommendation_time, Duration::from_secs(150));
    assert_eq!(cluster.config_namespace, "kube-system");
    let kind = cluster.default_scaling_configuration.as_str();
    assert_eq!(kind, "LaunchConfiguration");
    assert!(cluster.disable_windows_cluster_ca_injection);
}

/// A password in a flag is in the Deployment, in `ps` and in the error of each failed call.
#[test]
fn prometheus_url_is_an_address_without_a_password() {
    let parsed = |url: &str| parse(["instance-manager", "run", "--prometheus-url", url].map(Into::into).into_iter());
    for url in ["http://localhost:9090", "https://thanos.example.com/prefix/", "http://[::1]:9090"] {
        assert!(parsed(url).is_ok(), "{url}");
    }
    for (url, message) in [
        ("https://admin:secret@prometheus", "--prometheus-token-file"),
        ("http://prometheus/api/v1/query?query=up", "without /api/v1/query"),
        ("prometheus:9090", "begins with http:// or https://"),
        ("/prometheus", "begins with http:// or https://"),
        ("ftp://prometheus", "begins with http:// or https://"),
        ("http://a b", "expected a URL"),
        ("", "expected a URL"),
    ] {
        let error = parsed(url).expect_err(url).to_string();
        assert!(error.contains(message), "{url}: {error}");
    }
    let alone = ["instance-manager", "run", "--prometheus-token-file", "/token"].map(Into::into);
    assert!(parse(alone.into_iter()).expect_err("no URL").to_string().contains("--prometheus-url"));
}

#[test]
fn booleans_accept_the_spellings_of_go() {
    for (value, expected) in [
        ("1", true),
        ("t", true),
        ("T", true),
        ("true", true),
        ("TRUE", true),
        ("True", true),
        ("0", false),
        ("f", false),
        ("F", false),
        ("false", false),
        ("FALSE", false),
        ("False", false),
    ] {
        assert_eq!(run(&format!("-node-relabel={value}")).node_relabel, expected, "{value}");
    }
    assert!(cli("-node-relabel=yes").is_err());
    assert!(cli("-node-relabel false").is_err(), "a boolean takes no value after a space");
}

#[test]
fn last_of_two_equal_flags_wins() {
    assert_eq!(run("-max-workers 1 --max-workers=2").max_workers, 2);
    assert!(!run("-node-relabel -node-relabel=false").node_relabel);
}

#[test]
fn durations_and_addresses_have_the_syntax_of_go() {
    for (text, seconds) in [("5m", 300), ("300s", 300), ("1h30m", 5400)] {
        let args = run(&format!("--resync-period {text}"));
        assert_eq!(args.resync_period, Duration::from_secs(seconds));
    }
    for (text, address) in [
        (":8080", Some("[::]:8080")),
        ("0.0.0.0:80", Some("0.0.0.0:80")),
        ("[::1]:80", Some("[::1]:80")),
        ("localhost:80", Some("127.0.0.1:80")),
        ("0", None),
    ] {
        let listen = run(&format!("-metrics-addr {text}")).metrics_addr.0;
        assert_eq!(listen.map(|address| address.to_string()).as_deref(), address);
    }
}

#[test]
fn invalid_value_names_the_flag_and_the_expected_form() {
    for (line, flag, hint) in [
        ("--resync-period 5", "--resync-period", "1h30m"),
        ("--resync-period 0s", "--resync-period", "1h30m"),
        ("--metrics-addr 8080", "--metrics-addr", ":8080"),
        ("--max-workers 0", "--max-workers", "1.."),
        ("--spot-recommendation-time -1", "--spot-recommendation-time", "minutes"),
        ("--default-scaling-configuration x", "--default-scaling-configuration", "LaunchTemplate"),
        ("--max-worker 1", "--max-worker", "--max-workers"),
        ("plan a/b/c", "GROUP", "NAMESPACE/NAME"),
    ] {
        let error = cli(line).unwrap_err().to_string();
        assert!(error.contains(flag) && error.contains(hint), "{line}: {error}");
    }
}

#[test]
fn plan_is_for_one_group_or_for_all() {
    let target = |line| plan(line).target().unwrap();
    let group = |namespace: Option<&str>, name: &str| Target::Group(namespace.map(str::to_owned), name.to_owned());
    assert_eq!(target("plan team/web"), group(Some("team"), "web"));
    assert_eq!(target("plan -n team web"), group(Some("team"), "web"));
    assert_eq!(target("plan web"), group(None, "web"));
    assert_eq!(target("plan -A"), Target::All);
    assert_eq!(target("plan -n team"), Target::Namespace(Some("team".to_owned())));
    let message = plan("plan").target().unwrap_err().to_string();
    assert!(message.contains("NAMESPACE/NAME") && message.contains("-A for all groups"), "{message}");
    assert!(plan("plan -n other team/web").target().is_err());
    assert!(cli("plan -A team/web").is_err());
    let args = plan("plan -A --config new.yaml -o json --config-namespace im");
    assert_eq!(args.config, Some(PathBuf::from("new.yaml")));
    assert_eq!(args.output, OutputFormat::Json);
    assert_eq!(args.cluster.config_namespace, "im");
}

#[test]
fn command_line_definition_is_valid() {
    Cli::command().debug_assert();
}

/// Every command except `run` with its names, such as `rollout status`.
fn commands(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
    let mut all = Vec::new();
    for sub in command.get_subcommands().filter(|sub| !["run", "help"].contains(&sub.get_name())) {
        let name = format!("{name} {}", sub.get_name());
        all.push((name.clone(), sub.clone()));
        all.extend(commands(sub, &name));
    }
    all
}

/// A reader copies the example, so it must be one that the command accepts.
#[test]
fn each_command_has_examples_that_parse() {
    use clap::CommandFactory;

    for (name, command) in commands(&Cli::command(), "instance-manager") {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().map(str::trim).filter(|line| line.starts_with("instance-manager"));
        let examples: Vec<_> = lines.collect();
        assert!(!examples.is_empty(), "{name} has no example");
        for example in examples {
            let arguments =
                example.split(" #").next().and_then(|text| text.split(['>', '|']).next()).expect("a command");
            assert!(arguments.starts_with(&name), "{arguments}: an example of {name}");
            let parsed = parse(arguments.split_whitespace().map(OsString::from));
            assert!(parsed.is_ok(), "{arguments}: {parsed:?}");
        }
    }
}

/// The short text of a command replaces the long text of its arguments, and with it the exit statuses.
#[test]
fn help_of_commands_that_judge_says_their_exit_statuses() {
    use clap::CommandFactory;

    for (name, command) in commands(&Cli::command(), "instance-manager") {
        let judges = ["plan", "preflight", "release", "reconcile", "render", "explain", "lint", "admission", "wait"];
        if judges.contains(&command.get_name()) {
            let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(long.contains("Exit status: 0 "), "{name}: {long}");
        }
    }
}
