"""The lab's rule for who has to have a second factor; who lacks one sets it up before all else.

It is held for browsers, on pages and in the API. API tokens are no passwords that somebody could
have learned, and keep working.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User

from memorymark_site.accounts.factors.of_member import has_factor

V = TypeVar("V", bound=Callable[..., object])

WORDS = "Set up a second factor first, on the page Account: your lab asks for one."

_MARK = "needs_no_factor"


class Rule(StrEnum):
    """Of whom the lab asks a second factor."""

    NONE = "none"
    ADMINS = "admins"
    ALL = "all"


def lacks_factor(user: User | AnonymousUser) -> bool:
    """Whether the rule asks somebody for a factor that they have not; without one, no query."""
    if settings.REQUIRE_MFA == Rule.NONE or not isinstance(user, User):
        return False
    if settings.REQUIRE_MFA == Rule.ADMINS and not user.is_staff:
        return False
    return not has_factor(user)


def needs_no_factor(view: V) -> V:
    """Mark a view by which one gets a factor, or goes away: it is open to who lacks one."""
    setattr(view, _MARK, True)
    return view


def is_open(view: object) -> bool:
    """Whether a view is marked so."""
    return bool(getattr(view, _MARK, False))
