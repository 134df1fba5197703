"""User names: which of them people, and the count of wrong passwords, take for the same."""

from __future__ import annotations

import unicodedata

from django.contrib.auth.models import User

_LONGEST = 150
"""Characters of a user name, as Django has it."""

LIKE_ANOTHER = "There is a member of this name, or of one that is read like it; choose another."


def folded(name: str) -> str:
    """A name without what tells it apart from others only in writing: ``Strauß`` is ``strauss``.

    What is longer than any name is cut first. Who is not signed in sends it, and putting the marks
    of 100,000 characters in order takes many seconds, in which nothing else of the process runs.
    """
    return unicodedata.normalize("NFKC", name.strip()[:_LONGEST]).strip().casefold()


def is_taken(name: str) -> bool:
    """Whether an account has this name, or one that folds to the same.

    Wrong passwords are counted by folded names and forgotten at a right one: who had two of the
    same could guess the password of the other without end.
    """
    names = User.objects.values_list("username", flat=True)
    return folded(name) in {folded(taken) for taken in names}
