"""Functions that the clients drill calls inside its lab."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count

from analyses.models import Analysis, Push, Status, TrainingRun
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope


def make_tokens(members: int, tokens_each: int) -> list[str]:
    """Create members with ``tokens_each`` write tokens each; returns all tokens."""
    owners = [User.objects.create_user(f"member-{number}") for number in range(members)]
    return [
        tokens.create(owner, f"client {number}", Scope.WRITE, 1)[1]
        for number in range(tokens_each)
        for owner in owners
    ]


def set_passwords(names: list[str], password: str) -> None:
    """Let members sign in with a password."""
    for member in User.objects.filter(username__in=names):
        member.set_password(password)
        member.save()


def make_member(name: str, password: str) -> None:
    """A member who signs in with a password."""
    User.objects.create_user(name, password=password)


def stored_ids() -> dict[str, list[str]]:
    """The ids of all stored documents, by kind; duplicates are listed twice."""
    tables: dict[str, Any] = {"analysis": Push, "training": TrainingRun}
    return {
        kind: [str(found) for found in table.objects.values_list("document_id", flat=True)]
        for kind, table in tables.items()
    }


def whole_pushes(trials: int) -> int:
    """The number of pushed analyses stored with all their parts, including all trials."""
    whole = Analysis.objects.annotate(found=Count("trials")).filter(found=trials)
    return whole.filter(status=Status.SUCCEEDED, push__isnull=False, result__isnull=False).count()
