"""Perturbations of the controller's AWS calls: refused, failed, lost, late, and answered from the past."""

from campaign.perturbations import perturbation
from campaign.scenario import is_wide

SERVICES = ["*", "autoscaling", "ec2", "iam", "eks", "ssm"]
KINDS = ["any", "read", "write"]
READS = ["DescribeAutoScalingGroups", "DescribeLaunchTemplateVersions", "DescribeInstances", "DescribeSubnets", "GetRole", "GetInstanceProfile", "DescribeCluster",
         "DescribeNodegroup", "DescribeFargateProfile", "DescribeScalingActivities", "ListAttachedRolePolicies", "DescribeAccessEntry", "GetParameters"]  # fmt: skip
WRITES = ["CreateAutoScalingGroup", "UpdateAutoScalingGroup", "DeleteAutoScalingGroup", "TerminateInstanceInAutoScalingGroup", "CreateOrUpdateTags", "PutLifecycleHook",
          "EnterStandby", "SuspendProcesses", "ResumeProcesses", "PutWarmPool", "SetInstanceHealth", "CreateLaunchTemplate", "CreateLaunchTemplateVersion",
          "DeleteLaunchTemplate", "CreateRole", "DeleteRole", "AttachRolePolicy", "DetachRolePolicy", "CreateInstanceProfile", "AddRoleToInstanceProfile",
          "DeleteInstanceProfile", "CreateAccessEntry", "DeleteAccessEntry", "CreateNodegroup", "UpdateNodegroupConfig", "DeleteNodegroup", "CreateFargateProfile",
          "DeleteFargateProfile"]  # fmt: skip
RARE_READS = ["DescribeImages", "DescribeInstanceRefreshes", "DescribeInstanceTypeOfferings", "DescribeInstanceTypes", "DescribeLaunchConfigurations",
              "DescribeLaunchTemplates", "DescribeLifecycleHooks", "DescribeRouteTables", "DescribeSecurityGroups", "DescribeUpdate", "DescribeWarmPool",
              "ListAccessEntries", "ListEntitiesForPolicy", "ListFargateProfiles", "ListInstanceProfiles", "ListInstanceProfilesForRole", "ListNodegroups",
              "ListRolePolicies", "SimulatePrincipalPolicy"]  # fmt: skip
RARE_WRITES = ["CreateTags", "DeleteLaunchConfiguration", "DeleteLaunchTemplateVersions", "DeleteLifecycleHook", "DeleteTags", "DeleteWarmPool",
               "DisableMetricsCollection", "EnableMetricsCollection", "RemoveRoleFromInstanceProfile", "TagInstanceProfile", "TagResource", "TagRole",
               "UntagResource", "UpdateAssumeRolePolicy", "UpdateNodegroupVersion"]  # fmt: skip
"""The other operations that the controller calls, each of which wide worlds refuse alone: the draws of the fixed seeds stay."""
CREDENTIALS = {"ec2": "RequestExpired", "autoscaling": "ExpiredToken", "iam": "ExpiredToken", "eks": "ExpiredTokenException"}
"""With which code a service refuses credentials that have expired."""


@perturbation("AWS throttles", service=SERVICES, kind=KINDS, seconds=[3, 12])
def aws_throttles(runner, service, kind, seconds):
    """Others in the account use the rate up."""
    runner.fault(seconds, action="throttle", service=service, kind=kind, count=-1)


@perturbation("AWS throttles some calls", service=SERVICES, after=range(6), count=[1, 4, 12])
def aws_throttles_some_calls(runner, service, after, count):
    """A burst is over the limit, and the rest of the pass is not."""
    runner.fault(action="throttle", service=service, after=after, count=count)


@perturbation("AWS fails", service=SERVICES, kind=KINDS, seconds=[3, 12])
def aws_fails(runner, service, kind, seconds):
    """A service has an outage of minutes; nothing is performed."""
    runner.fault(seconds, action="error5xx", service=service, kind=kind, count=-1)


@perturbation("AWS unreachable", service=SERVICES, seconds=[3, 12])
def aws_unreachable(runner, service, seconds):
    """Connections end without an answer, and nothing is performed."""
    runner.fault(seconds, action="lose", before=True, service=service, count=-1)


@perturbation("AWS slow", service=SERVICES, kind=KINDS, seconds=[5, 15], each=[0.5, 2])
def aws_slow(runner, service, kind, seconds, each):
    """Every answer comes late."""
    runner.fault(seconds, action="delay", service=service, kind=kind, seconds=each, count=-1)


@perturbation("AWS answers lost", service=SERVICES[:5], after=range(6), count=[1, 3])
def aws_answers_lost(runner, service, after, count):
    """AWS performs writes, and their responses are lost."""
    runner.fault(action="lose", kind="write", service=service, after=after, count=count)


@perturbation("AWS performs a write late", service=SERVICES[:5], after=range(6), seconds=[2, 8, 15])
def aws_performs_a_write_late(runner, service, after, seconds):
    """A call is on its way while everything else continues, and then it is performed."""
    fault = runner.fault(seconds, action="hold", before=True, kind="write", service=service, after=after)
    runner.undo(lambda: runner.release(lose=False, fault=fault), after=seconds)


@perturbation("AWS denies a read", operation=READS, seconds=[4, 15])
def aws_denies_a_read(runner, operation, seconds):
    """A line of the IAM policy is gone."""
    runner.fault(seconds, action="deny", operation=operation, count=-1)


@perturbation("AWS denies a write", operation=WRITES, seconds=[4, 15])
def aws_denies_a_write(runner, operation, seconds):
    """A line of the IAM policy is gone, and comes back."""
    runner.fault(seconds, action="deny", operation=operation, count=-1)


@perturbation("AWS denies a rare read", when=is_wide, operation=RARE_READS, seconds=[4, 15])
def aws_denies_a_rare_read(runner, operation, seconds):
    """The same for a read that few passes make."""
    runner.fault(seconds, action="deny", operation=operation, count=-1)


@perturbation("AWS denies a rare write", when=is_wide, operation=RARE_WRITES, seconds=[4, 15])
def aws_denies_a_rare_write(runner, operation, seconds):
    """The same for a write that few passes make."""
    runner.fault(seconds, action="deny", operation=operation, count=-1)


@perturbation("AWS denies everything", service=SERVICES[:5], kind=KINDS, seconds=[4, 15])
def aws_denies_everything(runner, service, kind, seconds):
    """A service control policy, or a role without policies."""
    runner.fault(seconds, action="deny", service=service, kind=kind, count=-1)


@perturbation("AWS credentials expired", service=list(CREDENTIALS), seconds=[4, 15])
def aws_credentials_expired(runner, service, seconds):
    """The token was not renewed, or the clock is wrong."""
    runner.fault(seconds, action="error", service=service, code=CREDENTIALS[service], message="The security token included in the request is expired", status=403, count=-1)


@perturbation("AWS answers some writes old", service=["*", "autoscaling", "ec2"], writes=[1, 2, 3, 5], seconds=[5, 15])
def aws_answers_some_writes_old(runner, service, writes, seconds):
    """Reads do not show the last writes yet: what was created is missing, what was deleted is there."""
    runner.fault(seconds, action="stale", service=service, writes=writes, count=-1)


@perturbation("AWS answers from the past", service=SERVICES[:5], seconds=[1, 3, 6])
def aws_answers_from_the_past(runner, service, seconds):
    """Reads show for a while what was there at its begin: a new role, group or profile cannot be seen."""
    runner.fault(seconds, action="stale", service=service, count=-1)


@perturbation("one AWS read from the past", operation=READS, count=[1, 2, 4])
def one_aws_read_from_the_past(runner, operation, count):
    """One of the servers of a service is behind the others."""
    runner.fault(action="stale", operation=operation, count=count)


@perturbation("one rare AWS read from the past", when=is_wide, operation=RARE_READS, count=[1, 2, 4])
def one_rare_aws_read_from_the_past(runner, operation, count):
    """The same for a read that few passes make."""
    runner.fault(action="stale", operation=operation, count=count)
