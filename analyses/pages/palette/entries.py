"""The entries of the command palette, each of which leads to an address, best first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.urls import reverse

from analyses.formatting import gpu_of, model_name
from analyses.models import Analysis
from analyses.pages.history import in_use
from analyses.pages.history.search import matching
from analyses.pages.history.terms import UnknownTerm
from analyses.pages.history.views import views_of
from analyses.permissions import may_see_lab, may_work
from analyses.selectors import slice_of, visible_to
from engine.models.coverage import model_types
from engine.models.presets import PRESETS
from memorymark_site.accounts.roles import Role, has_role

MAX_OF_A_KIND = 6
"""Entries of one kind; more would hide the other kinds."""

_MAX_DIGITS = 9
_ANALYSIS, _PAGE, _VIEW, _MODEL, _MEMBER = "Analysis", "Page", "Saved view", "Model", "Member"


class Rank(IntEnum):
    """How well an entry matches, best first."""

    EXACT = 0
    PREFIX = 1
    CONTAINS = 2


@dataclass(frozen=True)
class Entry:
    """One line of the palette.

    Attributes:
        kind: Kind of the thing it leads to, such as ``Model``.
        title: Its name.
        note: Further words about it; may be empty.
    """

    rank: Rank
    kind: str
    title: str
    note: str
    address: str


@dataclass(frozen=True)
class _Page:
    """A page of the site.

    Attributes:
        view: Name of its view.
        words: Other words to find it by.
        role: Least role that may open it.
    """

    title: str
    view: str
    words: str = ""
    role: Role = Role.VIEWER


PAGES = (
    _Page("Overview", "analyses:overview", "home"),
    _Page("Analyses", "analyses:list", "history"),
    _Page("New analysis", "analyses:new", "analyze predict batch", Role.MEMBER),
    _Page("Savings", "analyses:savings", "money cost adopted"),
    _Page("Savings report", "analyses:savings-report", "month print"),
    _Page("GPUs", "analyses:gpus", "nodes prices catalogue"),
    _Page("Models", "analyses:models", "types tasks presets"),
    _Page("Your account", "accounts:account", "password e-mail passkeys sessions"),
    _Page("Notifications", "analyses:notifications", "webhook e-mail"),
    _Page("API tokens", "accounts:tokens", "scripts access"),
    _Page("API documentation", "api-docs", "rest openapi"),
    _Page("Lab settings", "analyses:lab", "defaults hours sharing", Role.ADMIN),
    _Page("Members", "accounts:members", "invite roles people", Role.ADMIN),
    _Page("Audit log", "accounts:audit", "changes", Role.ADMIN),
    _Page("Add a GPU", "analyses:gpu-add", "data sheet", Role.ADMIN),
)


def entries_for(user: User, text: str) -> list[Entry]:
    """The entries that match a text, best first: whole names, beginnings, parts.

    Args:
        user: Sees nothing here that other pages would not show.
        text: What is searched, in the words of the history's search; ``#145`` is an analysis.
            Empty for pages and the user's latest analyses.
    """
    if not may_see_lab(user):
        return []
    words = text.lower().split()
    if not words:
        kinds = (_latest_of(user), _pages(user, words), _views(user, words))
        return [entry for kind in kinds for entry in _best(kind)]
    matches = (
        _pages(user, words),
        _views(user, words),
        _models(user, words),
        _members(words),
        _analyses(user, text),
    )
    found = (entry for kind in matches for entry in _best(kind))
    return [*sorted(found, key=lambda entry: entry.rank), _all_analyses(text)]


def _best(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.rank)[:MAX_OF_A_KIND]


def _rank(words: list[str], name: str, others: str = "") -> Rank | None:
    """The rank of something with this name and other words; ``None`` if it does not match."""
    name, typed = name.lower(), " ".join(words)
    if name == typed:
        return Rank.EXACT
    if name.startswith(typed):
        return Rank.PREFIX
    everything = f"{name} {others}".lower()
    return Rank.CONTAINS if all(word in everything for word in words) else None


def _pages(user: User, words: list[str]) -> Iterator[Entry]:
    for page in PAGES:
        rank = _rank(words, page.title, page.words)
        if rank is not None and has_role(user, page.role):
            yield Entry(rank, _PAGE, page.title, "", reverse(page.view))


def _views(user: User, words: list[str]) -> Iterator[Entry]:
    for view in views_of(user):
        rank = _rank(words, view.name)
        if rank is not None:
            by = "" if view.owner_id == user.pk else f"by {view.owner.get_username()}"
            query = f"?{view.query}" if view.query else ""
            yield Entry(rank, _VIEW, view.name, by, f"{reverse('analyses:list')}{query}")


def _models(user: User, words: list[str]) -> Iterator[Entry]:
    """The lab's own models, then the presets to analyze, then types of transformers."""
    for model in in_use.models():
        title = model_name(model)
        if (rank := _rank(words, title, model)) is not None:
            yield Entry(rank, _MODEL, title, "its analyses", _address("list", model=model))
    for preset in PRESETS.values() if may_work(user) else ():
        rank = _rank(words, preset.display_name, f"{preset.name} {preset.hub_id}")
        if rank is not None:
            address = _address("new", model=preset.name)
            yield Entry(rank, _MODEL, preset.display_name, "new analysis", address)
    for one in model_types():
        if (rank := _rank(words, one.name)) is not None:
            note = "type of transformers: what is predicted"
            rank = max(rank, Rank.PREFIX)  # below what the lab trains
            yield Entry(rank, _MODEL, one.name, note, _address("models", q=one.name))


def _members(words: list[str]) -> Iterator[Entry]:
    for name in in_use.members():
        if (rank := _rank(words, name)) is not None:
            yield Entry(rank, _MEMBER, name, "their analyses", _address("list", member=name))


def _all_analyses(text: str) -> Entry:
    """The history, searched for the same text."""
    title = f"All analyses for “{text}”"
    return Entry(Rank.CONTAINS, _PAGE, title, "history", _address("list", q=text))


def _latest_of(user: User) -> Iterator[Entry]:
    own = visible_to(user).filter(owner=user).order_by("-pk")
    ids = list(own.values_list("pk", flat=True)[:MAX_OF_A_KIND])
    return _entries_of(user, dict.fromkeys(ids, Rank.EXACT))


def _analyses(user: User, text: str) -> Iterator[Entry]:
    """The analyses whose number is or begins with the text, then those that the history finds."""
    visible = visible_to(user)
    number = text.removeprefix("#")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    ranks = _numbered(visible, int(number)) if is_number else {}
    try:
        found = slice_of(matching(visible, text), 0, MAX_OF_A_KIND).ids
    except UnknownTerm:
        found = []  # the history's page says what its search takes
    return _entries_of(user, dict.fromkeys(found, Rank.CONTAINS) | ranks)


def _numbered(analyses: QuerySet[Analysis], number: int) -> dict[int, Rank]:
    """The ranks of ids that begin with these digits."""
    beginning = Q(pk=number)
    low, high = number, number
    for _ in range(_MAX_DIGITS - len(str(number)) if number else 0):
        low, high = 10 * low, 10 * high + 9
        beginning |= Q(pk__range=(low, high))
    found = analyses.filter(beginning).order_by("pk").values_list("pk", flat=True)
    return {pk: Rank.EXACT if pk == number else Rank.PREFIX for pk in found[:MAX_OF_A_KIND]}


def _entries_of(user: User, ranks: Mapping[int, Rank]) -> Iterator[Entry]:
    """Entries of these analyses, in their order."""
    rows = visible_to(user).select_related(None).select_related("owner")
    shown = rows.only("model", "gpu", "measured_gpu", "status", "queued_at", "owner__username")
    found = shown.in_bulk(list(ranks))
    for analysis in (found[pk] for pk in ranks if pk in found):
        parts = (
            gpu_of(analysis),
            analysis.owner.get_username(),
            f"{analysis.queued_at:%Y-%m-%d}",
            analysis.get_status_display().lower(),
        )
        yield Entry(
            ranks[analysis.pk],
            _ANALYSIS,
            f"#{analysis.pk} {model_name(analysis.model)}",
            " · ".join(parts),
            reverse("analyses:detail", args=[analysis.pk]),
        )


def _address(view: str, **query: str) -> str:
    return f"{reverse(f'analyses:{view}')}?{urlencode(query)}"
