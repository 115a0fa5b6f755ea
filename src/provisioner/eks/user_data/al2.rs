//! Amazon Linux 2: one shell script around `/etc/eks/bootstrap.sh`.

use std::net::IpAddr;

use super::arguments::environment_arguments;
use super::error::UserDataError;
use super::input::BootstrapInput;
use super::quote::{shell_quoted, single_quoted};
use super::stages::{DecodedStage, StageKind, concatenated};
use super::{mounts, validate};

/// Exits before the bootstrap on a warm instance, so that cloud-init runs the script again when Auto Scaling puts the
/// instance in service. Scripts of later stages rely on the names of the variables. `stop_commands` adds commands that
/// keep the node from joining.
fn warm_check(stop_commands: &str) -> String {
    format!(
        r#"if command -v aws >/dev/null 2>&1 && command -v jq >/dev/null 2>&1; then
  TOKEN=$(curl -s -X PUT http://169.254.169.254/latest/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600')
  INSTANCE_ID=$(curl -s -H "X-aws-ec2-metadata-token: $TOKEN" http://169.254.169.254/latest/meta-data/instance-id)
  REGION=$(curl -s -H "X-aws-ec2-metadata-token: $TOKEN" http://169.254.169.254/latest/meta-data/placement/region)
  LIFECYCLE=$(curl -s -H "X-aws-ec2-metadata-token: $TOKEN" http://169.254.169.254/latest/meta-data/autoscaling/target-lifecycle-state)
  if [[ $LIFECYCLE == *Warmed* ]]; then
    rm -f "/var/lib/cloud/instances/$INSTANCE_ID/sem/config_scripts_user"
{stop_commands}    exit 0
  fi
fi
"#
    )
}

pub(super) fn encode(input: &BootstrapInput, stages: &[DecodedStage]) -> Result<Vec<u8>, UserDataError> {
    validate::check_systemd_arguments(input)?;
    validate::check_runtime(input)?;
    validate::check_text(stages)?;
    let mut out = before_bootstrap(input, stages, "");
    let command = bootstrap_command(input)?;
    out.extend_from_slice(format!("set -o xtrace\n/etc/eks/bootstrap.sh {command}\nset +o xtrace\n").as_bytes());
    out.extend(concatenated(stages, StageKind::Post));
    Ok(out)
}

/// The shebang line, the stages before the bootstrap, the mounts and the warm pool check.
pub(super) fn before_bootstrap(input: &BootstrapInput, stages: &[DecodedStage], stop_commands: &str) -> Vec<u8> {
    let mut out = b"#!/bin/bash\n".to_vec();
    out.extend(concatenated(stages, StageKind::Pre));
    out.push(b'\n');
    out.extend_from_slice(mounts::mount_script(&input.mounts).as_bytes());
    out.extend_from_slice(warm_check(stop_commands).as_bytes());
    out
}

fn bootstrap_command(input: &BootstrapInput) -> Result<String, UserDataError> {
    let mut words = vec![shell_quoted(&input.cluster)];
    let mut flag = |name: &str, value: &str| words.extend([name.to_owned(), shell_quoted(value)]);
    if input.max_pods.is_some() {
        flag("--use-max-pods", "false");
    }
    if let Some(runtime) = input.container_runtime.as_deref().filter(|text| !text.is_empty()) {
        flag("--container-runtime", runtime);
    }
    flag("--b64-cluster-ca", &input.ca_base64);
    flag("--apiserver-endpoint", &input.endpoint);
    match validate::service_cidr_address(&input.service_cidr)? {
        Some(IpAddr::V4(address)) => {
            flag("--dns-cluster-ip", &validate::dns_address(address));
        }
        Some(IpAddr::V6(_)) => {
            flag("--ip-family", "ipv6");
            flag("--service-ipv6-cidr", &input.service_cidr);
        }
        None => {}
    }
    words.extend(["--kubelet-extra-args".to_owned(), single_quoted(&environment_arguments(input))]);
    Ok(words.join(" "))
}
