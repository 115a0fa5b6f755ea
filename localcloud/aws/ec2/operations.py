"""EC2 operations that replace those of moto: launch templates, tags, filters, console output and termination."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import moto.ec2.utils as ec2_utils
from moto.core.responses import ActionResult
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.general import General
from moto.ec2.responses.launch_templates import LaunchTemplates as LaunchTemplatesResponse
from moto.ec2.responses.tags import TagResponse
from moto.ec2.utils import random_launch_template_id

from localcloud.aws.ec2.filters import PAGE, check_filters, matches, page
from localcloud.aws.ec2.launch_templates import (
    LaunchTemplate,
    LaunchTemplateVersion,
    LaunchTemplates,
    check_data,
    check_name,
    check_tags,
    get_version,
)
from localcloud.aws.errors import AwsError
from localcloud.aws.parameters import to_plain
from localcloud.aws.settings import ACCOUNT

CREATED_BY = f"arn:aws:iam::{ACCOUNT}:root"


def describe(template: LaunchTemplate, tags: dict[str, str]) -> dict[str, Any]:
    """A launch template as DescribeLaunchTemplates returns it."""
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "CreateTime": template.created,
        "CreatedBy": CREATED_BY,
        "DefaultVersionNumber": template.default,
        "LatestVersionNumber": max(template.versions),
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }


def describe_version(template: LaunchTemplate, version: LaunchTemplateVersion) -> dict[str, Any]:
    """A version as DescribeLaunchTemplateVersions returns it."""
    return {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "VersionNumber": version.number,
        "VersionDescription": version.description,
        "CreateTime": version.created,
        "CreatedBy": CREATED_BY,
        "DefaultVersion": version.number == template.default,
        "LaunchTemplateData": version.data,
    }


def page_size(value: int | None) -> int:
    """Check MaxResults. Without it, EC2 returns 200 items."""
    if value is not None and not 1 <= value <= PAGE:
        message = f"Value ( {value} ) for parameter maxResults is invalid. Expecting a value between 1 and 200."
        raise AwsError("InvalidParameterValue", message)
    return value or PAGE


class LaunchTemplateOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def create_launch_template(self) -> ActionResult:
        templates, params = template_store(self), to_plain(self._get_params())
        name = check_name(params.get("LaunchTemplateName"))
        data = check_data(params.get("LaunchTemplateData", {}), params.get("VersionDescription"))
        tags: dict[str, str] = {}
        for specification in params.get("TagSpecifications", []):
            if specification.get("ResourceType") != "launch-template":
                message = f"'{specification.get('ResourceType')}' is not a valid taggable resource type for this operation."
                raise AwsError("InvalidParameterValue", message)
            tags = check_tags(specification.get("Tags", []))

        def create() -> dict[str, Any]:
            if templates.by_name(name):
                raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
            template = LaunchTemplate(random_launch_template_id(), name, datetime.now(UTC))
            template.add(data, params.get("VersionDescription"))
            templates.by_id[template.id] = template
            if tags:
                self.ec2_backend.create_tags([template.id], tags)
            return {"LaunchTemplate": describe(template, tags)}

        self.error_on_dryrun()
        token = params.pop("ClientToken", None)
        return ActionResult(templates.run_once("CreateLaunchTemplate", token, params, create))

    def create_launch_template_version(self) -> ActionResult:
        templates, params = template_store(self), to_plain(self._get_params())
        template = templates.get(params.get("LaunchTemplateId"), params.get("LaunchTemplateName"))
        description = params.get("VersionDescription")
        data = check_data(params.get("LaunchTemplateData", {}), description)
        if params.get("SourceVersion"):
            data = get_version(template, str(params["SourceVersion"])).data | data

        def create() -> dict[str, Any]:
            return {"LaunchTemplateVersion": describe_version(template, template.add(data, description))}

        self.error_on_dryrun()
        token = params.pop("ClientToken", None)
        return ActionResult(templates.run_once("CreateLaunchTemplateVersion", token, params, create))

    def modify_launch_template(self) -> ActionResult:
        params = to_plain(self._get_params())
        template = template_store(self).get(params.get("LaunchTemplateId"), params.get("LaunchTemplateName"))
        wanted = params.get("DefaultVersion") or params.get("SetDefaultVersion")
        found = get_version(template, str(wanted)) if wanted is not None else None
        self.error_on_dryrun()
        if found:
            template.default = found.number
        return ActionResult({"LaunchTemplate": describe(template, tags_of(self, template))})

    def delete_launch_template(self) -> ActionResult:
        params = to_plain(self._get_params())
        templates = template_store(self)
        template = templates.get(params.get("LaunchTemplateId"), params.get("LaunchTemplateName"))
        self.error_on_dryrun()
        result = describe(template, tags_of(self, template))
        del templates.by_id[template.id]
        self.ec2_backend.tags.pop(template.id, None)
        return ActionResult({"LaunchTemplate": result})

    def delete_launch_template_versions(self) -> ActionResult:
        params = to_plain(self._get_params())
        template = template_store(self).get(params.get("LaunchTemplateId"), params.get("LaunchTemplateName"))
        wanted = [str(version) for version in params.get("Versions", [])]
        if not wanted:
            raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateVersion")
        if len(wanted) > 200:
            raise AwsError("InvalidParameterValue", "The maximum number of versions that can be deleted is 200.")
        self.error_on_dryrun()
        done, failed = [], []
        for text in wanted:
            number = int(text) if text.isdigit() else None
            item = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "VersionNumber": number}
            if number not in template.versions:
                failed.append(
                    item
                    | {
                        "ResponseError": {
                            "Code": "launchTemplateVersionDoesNotExist",
                            "Message": f"The specified launch template version {text} does not exist.",
                        }
                    }
                )
            elif number == template.default:
                failed.append(
                    item
                    | {
                        "ResponseError": {
                            "Code": "unexpectedError",
                            "Message": "You cannot delete the default version of a launch template.",
                        }
                    }
                )
            else:
                del template.versions[number]
                done.append(item)
        return ActionResult({"SuccessfullyDeletedLaunchTemplateVersions": done, "UnsuccessfullyDeletedLaunchTemplateVersions": failed})

    def describe_launch_templates(self) -> ActionResult:
        self.error_on_dryrun()
        params, templates = to_plain(self._get_params()), template_store(self)
        ids, names = params.get("LaunchTemplateIds", []), params.get("LaunchTemplateNames", [])
        found = [templates.get(i, None) for i in ids] + [templates.get(None, n) for n in names]
        found = found or [] if ids or names else list(templates.by_id.values())
        for condition in check_filters(params.get("Filters", [])):
            found = [t for t in found if template_matches(self, t, condition["Name"], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), page_size(params.get("MaxResults")))
        return ActionResult({"LaunchTemplates": [describe(t, tags_of(self, t)) for t in found], "NextToken": token})

    def describe_launch_template_versions(self) -> ActionResult:
        self.error_on_dryrun()
        params, templates = to_plain(self._get_params()), template_store(self)
        wanted = [str(version) for version in params.get("Versions", [])]
        identifier, name = params.get("LaunchTemplateId"), params.get("LaunchTemplateName")
        if identifier or name:
            template = templates.get(identifier, name)
            if wanted:
                found = [(template, get_version(template, version)) for version in wanted]
            else:
                low, high = int(params.get("MinVersion") or 0), int(params.get("MaxVersion") or template.latest)
                numbers = sorted((n for n in template.versions if low <= n <= high), reverse=True)
                found = [(template, template.versions[number]) for number in numbers]
        elif not wanted or not set(wanted) <= {"$Latest", "$Default"}:
            message = (
                "To describe the launch template data for all your launch templates, specify '$Latest', '$Default', or both "
                "for the versions and omit launch template ID and name."
            )
            raise AwsError("MissingParameter" if not wanted else "InvalidParameterValue", message)
        else:
            found = [(t, t.find(version)) for t in templates.by_id.values() for version in wanted]
        for condition in check_filters(params.get("Filters", [])):
            found = [pair for pair in found if version_matches(*pair, condition["Name"], condition.get("Values", []))]
        unique = {(t.id, v.number): (t, v) for t, v in found}
        found, token = page(list(unique.values()), params.get("NextToken"), page_size(params.get("MaxResults")))
        return ActionResult({"LaunchTemplateVersions": [describe_version(t, v) for t, v in found], "NextToken": token})


def template_matches(response: Any, template: LaunchTemplate, name: str, values: list[str]) -> bool:
    """Whether a template matches one filter of DescribeLaunchTemplates."""
    tags = tags_of(response, template)
    if name == "launch-template-name":
        return matches(template.name, values)
    if name == "tag-key":
        return any(matches(key, values) for key in tags)
    if name.startswith("tag:"):
        return name[4:] in tags and matches(tags[name[4:]], values)
    raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")


def version_matches(template: LaunchTemplate, version: LaunchTemplateVersion, name: str, values: list[str]) -> bool:
    """Whether a version matches one filter of DescribeLaunchTemplateVersions."""
    match name:
        case "is-default-version":
            return str(version.number == template.default).lower() in values
        case "image-id":
            return matches(version.data.get("ImageId", ""), values)
        case "instance-type":
            return matches(version.data.get("InstanceType", ""), values)
    raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")


def template_store(response: Any) -> LaunchTemplates:
    """The launch templates of the account that a response object belongs to."""
    return response.ec2_backend.local_templates


def tags_of(response: Any, template: LaunchTemplate) -> dict[str, str]:
    """The tags of a template, from moto's EC2 tag store."""
    return dict(response.ec2_backend.tags.get(template.id, {}))


def install(simulator: Any) -> None:
    """Replace moto's operations."""
    for name, method in vars(LaunchTemplateOperations).items():
        if not name.startswith("__"):
            setattr(LaunchTemplatesResponse, name, method)

    def get_console_output(self: Any) -> ActionResult:
        identifier = self._get_param("InstanceId")
        self.ec2_backend.get_instance(identifier)
        text = "\n".join(simulator.console.get(identifier, []))
        output = base64.b64encode(text.encode()).decode()
        return ActionResult({"InstanceId": identifier, "Timestamp": datetime.now(UTC), "Output": output})

    General.get_console_output = get_console_output
    # moto rejects this filter.
    ec2_utils.filter_dict_attribute_mapping["iam-instance-profile.arn"] = "iam_instance_profile.arn"
    create_tags = TagResponse.create_tags

    def checked_create_tags(self: Any) -> ActionResult:
        check_tags(to_plain(self._get_param("Tags", [])))
        return create_tags(self)

    TagResponse.create_tags = checked_create_tags
    filters = EC2BaseResponse._filters_from_querystring

    def checked_filters(self: Any) -> dict[str, Any]:
        check_filters(to_plain(self._get_param("Filters", [])) or [])
        return filters(self)

    EC2BaseResponse._filters_from_querystring = checked_filters
    install_state_changes(simulator)


def install_state_changes(simulator: Any) -> None:
    """Notify the scaling groups when an instance is terminated or stopped through EC2."""
    from moto.ec2.models.instances import InstanceBackend

    original = InstanceBackend.terminate_instances

    def terminate_instances(self: Any, instance_ids: list[str]) -> Any:
        members = [i for i in instance_ids if simulator.engine.member(i)]
        others = [i for i in instance_ids if i not in members]
        result = original(self, others) if others or not members else []
        for identifier in others:
            simulator.kubelets.on_shutting_down(identifier)
            simulator.kubelets.on_terminated(identifier)
        for identifier in members:
            instance = self.get_instance(identifier)
            before = type(instance._state)(instance._state.name, instance._state.code)
            simulator.engine.terminate_externally(identifier)
            result.append((instance, before))
        return result

    InstanceBackend.terminate_instances = terminate_instances
    stop = InstanceBackend.stop_instances

    def stop_instances(self: Any, instance_ids: list[str]) -> Any:
        result = stop(self, instance_ids)
        for identifier in instance_ids:
            simulator.engine.on_stopped_externally(identifier)
        return result

    InstanceBackend.stop_instances = stop_instances
