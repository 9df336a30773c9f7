"""The one exception for mistakes a user can mend, and text that is safe to show.

The command line prints its message without a stack trace and exits with code 2.
"""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"  # inside words and emoji
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (such as text direction), surrogate, line and paragraph


class UserError(Exception):
    """What is wrong, where, and what is allowed, in words for a person.

    >>> from recbole_denoiser import DenoiserConfig
    >>> try:
    ...     DenoiserConfig(max_length=50, estimator="arms")
    ... except UserError as error:
    ...     print(error)
    Denoiser setting estimator is 'arms'; allowed: ...
    """


class NonFiniteLossError(UserError):
    """A loss that is NaN or infinite; a trainer may skip such a step."""


def printable(text: str, keep: str = "\n") -> str:
    """``text`` with control and direction characters written out: a title from a file must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        sign.encode("unicode_escape").decode("ascii")
        if sign not in keep and sign not in _JOINERS and unicodedata.category(sign) in _UNSEEN
        else sign
        for sign in text
    )
