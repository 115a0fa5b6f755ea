//! Windows: one PowerShell script around EKS's `Start-EKSBootstrap.ps1`, which EC2Launch runs.

use std::net::IpAddr;

use super::arguments::windows_arguments;
use super::error::UserDataError;
use super::input::BootstrapInput;
use super::quote::powershell_quoted;
use super::stages::{DecodedStage, StageKind, concatenated};
use super::validate;
use super::validate::dns_address;

/// The service ranges that EKS assigns by default (Amazon EKS API Reference, "KubernetesNetworkConfigRequest").
const DEFAULT_RANGES: [&str; 2] = ["10.100.0.0/16", "172.20.0.0/16"];

/// The service range that the bootstrap script assumes in a VPC with these IPv4 ranges, if it is given the endpoint and no
/// range: 172.20.0.0/16 if a range begins with `10.` ("Start-EKSBootstrap.ps1", Initialize-DefaultValues; it "should maintain
/// close parity with" bootstrap.sh of amazon-eks-ami, which has the same rule). `None` if no range is known.
pub(crate) fn assumed_service_cidr<'a>(vpc_ranges: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let has_ten = vpc_ranges.map(|range| range.starts_with("10.")).reduce(|any, is_ten| any || is_ten)?;
    Some(DEFAULT_RANGES[usize::from(has_ten)])
}

/// Finds the bootstrap script, and whether the instance launches into a warm pool. The first two variables have the names
/// of AWS's own templates, and scripts of later stages may use them.
const PREAMBLE: &str = r#"$EKSBinDir = "$env:ProgramFiles\Amazon\EKS"
$EKSBootstrapScriptFile = "$EKSBinDir\Start-EKSBootstrap.ps1"
$IMDSToken = Invoke-RestMethod -Method Put -Uri 'http://169.254.169.254/latest/api/token' -Headers @{ 'X-aws-ec2-metadata-token-ttl-seconds' = '21600' }
$Lifecycle = Invoke-RestMethod -Uri 'http://169.254.169.254/latest/meta-data/autoscaling/target-lifecycle-state' -Headers @{ 'X-aws-ec2-metadata-token' = $IMDSToken }
"#;

/// EC2Launch runs user data once. On a warm instance it is scheduled to run again at the next start. The command is
/// that of EC2Launch v1 if it is installed, else of v2.
const WARM_CHECK: &str = r#"if ($Lifecycle -like '*Warmed*') {
  $EC2LaunchScript = 'C:\ProgramData\Amazon\EC2-Windows\Launch\Scripts\InitializeInstance.ps1'
  if (Test-Path $EC2LaunchScript) {
    & $EC2LaunchScript -Schedule
  } else {
    & "$env:ProgramFiles\Amazon\EC2Launch\EC2Launch.exe" reset
  }
} else {
"#;

pub(super) fn encode(input: &BootstrapInput, stages: &[DecodedStage]) -> Result<Vec<u8>, UserDataError> {
    validate::check_windows(input)?;
    validate::service_cidr_address(&input.service_cidr)?;
    validate::check_runtime(input)?;
    if let Some(stage) = stages.iter().find(|stage| ends_script(&stage.data)) {
        return Err(UserDataError::EndsScript { stage: stage.field.clone() });
    }
    if let Some(stage) = stages.iter().find(|stage| is_binary(&stage.data)) {
        return Err(UserDataError::Binary { stage: stage.field.clone() });
    }
    let mut out = b"<powershell>\n".to_vec();
    out.extend(concatenated(stages, StageKind::Pre));
    out.push(b'\n');
    out.extend_from_slice(PREAMBLE.as_bytes());
    out.extend_from_slice(WARM_CHECK.as_bytes());
    out.extend_from_slice(format!("& $EKSBootstrapScriptFile {}\n", bootstrap_parameters(input)).as_bytes());
    out.extend(concatenated(stages, StageKind::Post));
    out.extend_from_slice(b"\n}\n</powershell>\n");
    Ok(out)
}

/// The address of the cluster's DNS service, if the bootstrap script would not find it: without the parameters, the script
/// uses one of the two ranges that EKS assigns by default ("Start-EKSBootstrap.ps1", Amazon EKS User Guide, "Create nodes
/// with optimized Windows AMIs").
pub(crate) fn custom_dns_address(service_cidr: &str, assumed: Option<&str>) -> Option<String> {
    let is_found = match assumed {
        Some(assumed) => service_cidr == assumed,
        None => DEFAULT_RANGES.contains(&service_cidr),
    };
    match validate::service_cidr_address(service_cidr) {
        Ok(Some(IpAddr::V4(base))) if !is_found => Some(dns_address(base)),
        _ => None,
    }
}

/// EC2Launch runs the text between the tags as a script, and AWS documents no compression (Amazon EC2 User Guide, "Run
/// commands when you launch an EC2 instance with user data input"). Text in another encoding than UTF-8 is left to PowerShell.
fn is_binary(data: &[u8]) -> bool {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    data.starts_with(GZIP) || data.contains(&0)
}

/// EC2Launch runs the text up to the first end tag, wherever it stands.
fn ends_script(data: &[u8]) -> bool {
    const END: &[u8] = b"</powershell>";
    data.windows(END.len()).any(|at| at.eq_ignore_ascii_case(END))
}

/// The parameters of the bootstrap script. The other output streams are redirected into EC2Launch's log.
fn bootstrap_parameters(input: &BootstrapInput) -> String {
    let dns = custom_dns_address(&input.service_cidr, input.assumed_service_cidr);
    let range = if dns.is_some() { input.service_cidr.as_str() } else { "" };
    // containerd is the only runtime, and the scripts of the AMIs have no parameter for it.
    let parameters = [
        ("-EKSClusterName", input.cluster.as_str()),
        ("-Base64ClusterCA", &input.ca_base64),
        ("-APIServerEndpoint", &input.endpoint),
        ("-DNSClusterIP", dns.as_deref().unwrap_or_default()),
        ("-ServiceCIDR", range),
        ("-KubeletExtraArgs", &windows_arguments(input)),
    ];
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let words: String = given.map(|(name, value)| format!("{name} {} ", powershell_quoted(value))).collect();
    format!("{words}3>&1 4>&1 5>&1 6>&1")
}
