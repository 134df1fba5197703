"""What the drill of the clients does and asks within its lab."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count

from analyses.models import Analysis, Push, Status, Training
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope


def make_tokens(members: int, tokens_each: int) -> list[str]:
    """Tokens to write, so many of each of so many members."""
    owners = [User.objects.create_user(f"member-{number}") for number in range(members)]
    return [
        tokens.create(owner, f"client {number}", Scope.WRITE, 1)[1]
        for number in range(tokens_each)
        for owner in owners
    ]


def kept_ids() -> dict[str, list[str]]:
    """The ids of the documents that the lab has, by kind; one that it has twice, twice."""
    tables: dict[str, Any] = {"analysis": Push, "training": Training}
    return {
        kind: [str(found) for found in table.objects.values_list("document_id", flat=True)]
        for kind, table in tables.items()
    }


def whole_pushes(trials: int) -> int:
    """How many analyses there are with all that a push consists of, so many trials among it."""
    whole = Analysis.objects.annotate(found=Count("trials")).filter(found=trials)
    return whole.filter(status=Status.SUCCEEDED, push__isnull=False, result__isnull=False).count()
