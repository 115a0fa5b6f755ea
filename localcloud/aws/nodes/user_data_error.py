"""The error for user data that cannot start a node."""


class InvalidUserData(Exception):
    """The node's software rejects this user data, for this reason."""
