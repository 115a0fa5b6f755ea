"""Why user data makes no node."""


class InvalidUserData(Exception):
    """The node's software would refuse this user data, for this reason."""
