"""The one exception for mistakes a user can mend.

The command line prints its message without a stack trace and exits with code 2.
"""


class UserError(Exception):
    """What is wrong, where, and what is allowed, in words for a person."""


class NonFiniteLossError(UserError):
    """A loss that is NaN or infinite; a trainer may skip such a step."""
