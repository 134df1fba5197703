"""Which analyses are compared, as the address of the page says it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.http import QueryDict
from django.urls import reverse

FEWEST = 2
MOST = 10
_LONGEST_ID = 18
"""Digits; longer numbers are beyond what a database can look for."""


@dataclass(frozen=True)
class Choice:
    """What an address asks for.

    Attributes:
        ids: The analyses, in the order of their columns.
        base: The one that the others are held against; always one of ``ids`` if there are any.
        only_differences: Whether rows that are alike in all columns are left out.
        problems: What is wrong with the address, a sentence each.
    """

    ids: tuple[int, ...] = ()
    base: int | None = None
    only_differences: bool = False
    problems: tuple[str, ...] = ()

    @classmethod
    def read(cls, query: QueryDict) -> Choice:
        """Read an untrusted address.

        ``ids`` may be one list with commas, as links have it, or come several times, as a form with
        checkboxes sends it.
        """
        words = [word.strip() for part in query.getlist("ids") for word in part.split(",")]
        wanted = list(dict.fromkeys(word for word in words if word))
        wrong = [word for word in wanted if not _is_id(word)]
        ids = list(dict.fromkeys(int(word) for word in wanted if _is_id(word)))
        problems = []
        if wrong:
            problems.append(f"Not a number of an analysis: {', '.join(map(_cut, wrong))}.")
        if len(ids) > MOST:
            problems.append(
                f"At most {MOST} analyses are compared at once; left out: {_listed(ids[MOST:])}."
            )
        base = query.get("base", "").strip()
        choice = cls(tuple(ids[:MOST]), None, query.get("diff") == "1", tuple(problems))
        return choice.with_base(int(base) if _is_id(base) else None, named=_cut(base))

    def of_those_found(self, found: Iterable[int]) -> Choice:
        """The choice without the analyses that there are not, which it says."""
        there = set(found)
        missing = [pk for pk in self.ids if pk not in there]
        if not missing:
            return self
        none = "There is no analysis" if len(missing) == 1 else "There are no analyses"
        problems = (*self.problems, f"{none} {_listed(missing)}.")
        ids = tuple(pk for pk in self.ids if pk in there)
        base = self.base if self.base in there else next(iter(ids), None)
        return replace(self, ids=ids, base=base, problems=problems)

    def with_base(self, base: int | None, named: str = "") -> Choice:
        """The choice with another baseline; the first analysis where that is none of them."""
        first = next(iter(self.ids), None)
        if base in self.ids:
            return replace(self, base=base)
        said = f"The baseline {named} is none of these analyses; analysis {first} is taken."
        return replace(
            self, base=first, problems=(*self.problems, said) if named and first else self.problems
        )

    def without(self, pk: int) -> Choice:
        """The choice with a column fewer."""
        ids = tuple(other for other in self.ids if other != pk)
        return replace(self, ids=ids, base=self.base if pk != self.base else next(iter(ids), None))

    def address(self, name: str = "analyses:compare") -> str:
        """Where it is shown; the same for everybody in the lab."""
        if not self.ids:
            return reverse(name)
        query = f"ids={','.join(map(str, self.ids))}&base={self.base}"
        return f"{reverse(name)}?{query}{'&diff=1' * self.only_differences}"


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _LONGEST_ID


def _cut(word: str) -> str:
    return word if len(word) <= 20 else f"{word[:20]}…"


def _listed(ids: Sequence[int]) -> str:
    *rest, last = map(str, ids)
    return f"{', '.join(rest)} and {last}" if rest else last
