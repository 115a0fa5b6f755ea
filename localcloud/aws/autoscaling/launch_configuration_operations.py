"""The Auto Scaling operations on launch configurations."""

from __future__ import annotations

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.autoscaling.descriptions import page
from localcloud.aws.autoscaling.lookup import engine, request_params
from localcloud.aws.errors import AwsError


class LaunchConfigurationOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def create_launch_configuration(self) -> ActionResult:
        self.simulator.launch_configurations.create(self.simulator, request_params(self))
        return EmptyResult()

    def describe_launch_configurations(self) -> ActionResult:
        params, known = request_params(self), self.simulator.launch_configurations.by_name
        wanted = params.get("LaunchConfigurationNames", [])
        found = [known[name] for name in (dict.fromkeys(wanted) if wanted else sorted(known)) if name in known]
        found, token = page(found, params.get("NextToken"), params.get("MaxRecords"))
        return ActionResult({"LaunchConfigurations": [configuration.describe() for configuration in found], "NextToken": token})

    def delete_launch_configuration(self) -> ActionResult:
        launch_configurations = self.simulator.launch_configurations
        name = launch_configurations.get(request_params(self).get("LaunchConfigurationName") or "").name
        user = next((group for group in engine(self).groups.values() if group.configuration == name), None)
        if user:
            message = f"Cannot delete launch configuration {name} because it is attached to AutoScalingGroup {user.name}"
            raise AwsError("ResourceInUse", message)
        del launch_configurations.by_name[name]
        return EmptyResult()
