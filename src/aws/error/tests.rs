use super::*;
use AwsErrorKind::*;

#[test]
fn error_codes_are_classified() {
    let cases: &[(&str, &str, &str, &str, u16, AwsErrorKind)] = &[
        (
            "AutoScaling",
            "CreateAutoScalingGroup",
            "AlreadyExists",
            "AutoScalingGroup by this name already exists",
            400,
            AlreadyExists,
        ),
        (
            "AutoScaling",
            "CreateAutoScalingGroup",
            "ValidationError",
            "Invalid IamInstanceProfile: arn:aws:iam::1:instance-profile/x",
            400,
            InvalidProfile,
        ),
        (
            "AutoScaling",
            "CreateAutoScalingGroup",
            "ValidationError",
            "The subnet ID 'subnet-1' does not exist",
            400,
            Invalid,
        ),
        (
            "AutoScaling",
            "CreateAutoScalingGroup",
            "ValidationError",
            "The specified launch template, with template ID lt-1, does not exist.",
            400,
            Invalid,
        ),
        ("AutoScaling", "CreateAutoScalingGroup", "LimitExceeded", "You have reached the limit", 400, Quota),
        (
            "AutoScaling",
            "UpdateAutoScalingGroup",
            "ValidationError",
            "AutoScalingGroup name not found - no such group: x",
            400,
            NotFound,
        ),
        (
            "AutoScaling",
            "CreateOrUpdateTags",
            "ValidationError",
            "AutoScalingGroup not found - AutoScaling Group demo-team-web not found",
            400,
            NotFound,
        ),
        (
            "AutoScaling",
            "DeleteAutoScalingGroup",
            "ResourceInUse",
            "You cannot delete an AutoScalingGroup while there are instances",
            400,
            InUse,
        ),
        ("AutoScaling", "DeleteAutoScalingGroup", "ScalingActivityInProgress", "", 400, InUse),
        (
            "EKS",
            "CreateAccessEntry",
            "ResourceInUseException",
            "The specified access entry resource is already in use on this cluster.",
            409,
            AlreadyExists,
        ),
        (
            "EKS",
            "CreateAccessEntry",
            "InvalidParameterException",
            "The specified principalArn is invalid: invalid principal.",
            400,
            InvalidProfile,
        ),
        ("AutoScaling", "SuspendProcesses", "ResourceContention", "", 500, InUse),
        (
            "AutoScaling",
            "TerminateInstanceInAutoScalingGroup",
            "ValidationError",
            "Instance Id not found - No managed instance found for instance ID i-1",
            400,
            NotFound,
        ),
        ("AutoScaling", "DescribeAutoScalingGroups", "Throttling", "Rate exceeded", 400, Throttled),
        ("AutoScaling", "DescribeAutoScalingGroups", "InvalidNextToken", "", 400, Invalid),
        ("AutoScaling", "DescribeAutoScalingGroups", "AccessDenied", "User is not authorized", 403, Denied),
        ("AutoScaling", "DescribeAutoScalingGroups", "InternalFailure", "", 500, Unavailable),
        ("AutoScaling", "DescribeAutoScalingGroups", "", "", 504, Unavailable),
        ("EC2", "CreateLaunchTemplate", "InvalidLaunchTemplateName.AlreadyExistsException", "", 400, AlreadyExists),
        ("EC2", "DescribeLaunchTemplateVersions", "InvalidLaunchTemplateId.NotFound", "", 400, NotFound),
        ("EC2", "DescribeLaunchTemplateVersions", "InvalidLaunchTemplateId.VersionNotFound", "", 400, NotFound),
        ("EC2", "DeleteLaunchTemplate", "InvalidLaunchTemplateName.NotFoundException", "", 400, NotFound),
        ("EC2", "DeleteLaunchTemplate", "InvalidLaunchTemplateId.Malformed", "", 400, Invalid),
        ("EC2", "CreateLaunchTemplateVersion", "IdempotentParameterMismatch", "", 400, Invalid),
        ("EC2", "CreateLaunchTemplateVersion", "VersionLimitExceeded", "", 400, Quota),
        ("EC2", "DescribeSubnets", "RequestLimitExceeded", "Request limit exceeded.", 503, Throttled),
        ("EC2", "DescribeSubnets", "UnauthorizedOperation", "You are not authorized", 403, Denied),
        (
            "EC2",
            "DescribeSubnets",
            "AuthFailure",
            "AWS was not able to validate the provided access credentials",
            401,
            Other,
        ),
        ("EC2", "DescribeSubnets", "Unavailable", "", 503, Unavailable),
        (
            "EC2",
            "CreateLaunchTemplate",
            "InvalidParameterValue",
            "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
            400,
            InvalidProfile,
        ),
        ("IAM", "GetRole", "NoSuchEntity", "The role with name x cannot be found.", 404, NotFound),
        ("IAM", "CreateRole", "EntityAlreadyExists", "", 409, AlreadyExists),
        ("IAM", "DeleteRole", "DeleteConflict", "Cannot delete entity, must detach all policies first.", 409, InUse),
        ("IAM", "CreateRole", "ConcurrentModification", "", 409, InUse),
        ("IAM", "CreateRole", "LimitExceeded", "Cannot exceed quota for RolesPerAccount: 1000", 409, Quota),
        ("IAM", "CreateRole", "MalformedPolicyDocument", "", 400, Invalid),
        ("IAM", "CreateRole", "ServiceFailure", "", 500, Unavailable),
        (
            "IAM",
            "CreateRole",
            "InvalidClientTokenId",
            "The security token included in the request is invalid.",
            403,
            Other,
        ),
        ("EKS", "DescribeCluster", "ResourceNotFoundException", "No cluster found for name: x.", 404, NotFound),
        ("EKS", "DescribeCluster", "AccessDeniedException", "", 403, Denied),
        ("EKS", "DescribeCluster", "ServerException", "", 500, Unavailable),
        (
            "EKS",
            "DeleteFargateProfile",
            "InvalidRequestException",
            "Cannot Delete Fargate Profile x because cluster y currently has Fargate profile z in status DELETING",
            400,
            InUse,
        ),
        (
            "EKS",
            "CreateFargateProfile",
            "InvalidParameterException",
            "Misconfigured PodExecutionRole Trust Policy; Please add the eks-fargate-pods.amazonaws.com Service Principal",
            400,
            InvalidProfile,
        ),
        (
            "EKS",
            "CreateNodegroup",
            "ResourceInUseException",
            "NodeGroup already exists with name x",
            409,
            AlreadyExists,
        ),
        ("EKS", "CreateNodegroup", "ResourceLimitExceededException", "", 400, Quota),
        ("EKS", "DescribeCluster", "TooManyRequestsException", "", 429, Throttled),
        ("SSM", "GetParameters", "ThrottlingException", "Rate exceeded", 400, Throttled),
        ("SSM", "GetParameters", "ValidationException", "", 400, Invalid),
        ("SSM", "GetParameters", "InternalServerError", "", 500, Unavailable),
        ("SSM", "GetParameters", "SomethingNew", "", 400, Other),
        // A code that means "not found" in one service has no meaning in another.
        ("AutoScaling", "DescribeAutoScalingGroups", "NoSuchEntity", "", 404, Other),
        ("IAM", "GetRole", "", "<html>not found</html>", 404, Other),
    ];
    for (service, operation, code, message, status, kind) in cases {
        assert_eq!(classify(service, code, message, *status), *kind, "{service} {operation} {code} {message}");
    }
}

#[test]
fn encoded_authorization_message_is_removed() {
    let error = AwsError::from_response(
        "EC2",
        "CreateLaunchTemplate",
        "UnauthorizedOperation",
        "You are not authorized to perform this operation.\n Encoded authorization failure message: AAAABBBB",
        403,
    );
    assert_eq!(
        error.to_string(),
        "EC2 CreateLaunchTemplate: UnauthorizedOperation: You are not authorized to perform this operation",
        "another clause follows, such as `; correct what AWS rejects`"
    );
    assert_eq!(error.missing_permission().as_deref(), Some("ec2:CreateLaunchTemplate"));
}

#[test]
fn missing_permission_is_the_denied_action() {
    let denied =
        |message| AwsError::from_response("AutoScaling", "CreateAutoScalingGroup", "AccessDenied", message, 403);
    let pass_role_denied = denied(
        "User: arn:aws:sts::1:assumed-role/x/y is not authorized to perform: iam:PassRole on resource: arn:aws:iam::1:role/z",
    );
    assert_eq!(pass_role_denied.missing_permission().as_deref(), Some("iam:PassRole"));
    let unnamed = AwsError::from_response("AutoScaling", "SuspendProcesses", "AccessDenied", "no", 403);
    assert_eq!(unnamed.missing_permission().as_deref(), Some("autoscaling:SuspendProcesses"));
    let timeout = AwsError::no_response("IAM", "CreateRole", "Timeout", "no response within 90 s");
    assert_eq!(timeout.missing_permission(), None);
}

/// The role has autoscaling:UpdateAutoScalingGroup; who looks for it finds nothing to correct.
#[test]
fn refused_launch_template_names_what_a_launch_needs() {
    let refused = "You are not authorized to use launch template: lt-0123456789abcdef0";
    let own = "User: x is not authorized to perform: autoscaling:UpdateAutoScalingGroup on resource: y";
    for operation in ["CreateAutoScalingGroup", "UpdateAutoScalingGroup"] {
        let denied = |message| AwsError::from_response("AutoScaling", operation, "AccessDenied", message, 403);
        let missing = denied(refused).missing_permission().expect("a permission is missing");
        for action in ["ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "service control policy"] {
            assert!(missing.contains(action), "{missing}");
        }
        assert!(!missing.contains("autoscaling:"), "{missing}");
        assert_eq!(denied(own).missing_permission().as_deref(), Some("autoscaling:UpdateAutoScalingGroup"));
    }
}
