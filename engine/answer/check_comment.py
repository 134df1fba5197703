"""The check of a training run as Markdown, for a comment that says what a change to it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..core.markdown import plain, table
from ..core.numbers import UNKNOWN, difference, share, signed, whole
from ..core.sizes import gib, gib_number
from ..interface.trial import Source
from ..versions.software import format_versions
from .check import Check
from .figures import LARGEST_BATCH, RECOMMENDED_BATCH, STEP_TIME
from .step_differences import about_peaks, differences_by_tensor

MARK = "<!-- memorymark check -->"
"""Begins every comment, by which the next check finds it."""

Cells = Sequence[str]


def check_comment(check: Check, base: Check | None = None) -> str:
    """The comment.

    Args:
        check: The check of the change.
        base: The same check before the change; ``None`` if it has no answer there.
    """
    outcome = "passes" if check.passed else "fails"
    parts = [MARK, f"### MemoryMark: {outcome}", plain(check.verdict)]
    rows = list(_rows(check, base))
    if base is None:
        parts += [table(["", "now"], rows), "There is no answer for the base to compare with."]
    elif all(before == now for _, before, now, _ in rows):
        parts.append("Nothing changed from the base.")
    else:
        parts.append(table(["", "base", "now", "change"], rows))
    if base is not None and (changed := _parts(base, check)):
        title = "Where the memory at the peak changed"
        parts.append(f"<details><summary>{title}</summary>\n\n{changed}\n\n</details>")
    if check.source in (Source.PREDICTED, Source.COMPUTED):
        parts.append("Predicted: nothing was run on a GPU.")
    return "\n\n".join(parts) + "\n"


def _rows(check: Check, base: Check | None) -> Iterator[Cells]:
    """The numbers: their label, before the change if that is known, now, and the difference."""
    for label, number, text in _NUMBERS:
        now, before = number(check), None if base is None else number(base)
        if now is None and before is None:
            continue
        cells = [label, text(now)]
        if base is not None:
            changed = difference(now / before) if now and before else ""
            cells = [label, text(before), text(now), "" if changed == "same" else changed]
        yield cells
    if base is None or base.software != check.software:
        versions = [check] if base is None else [base, check]
        named = [format_versions(one.software) or UNKNOWN for one in versions]
        yield ["Software", *named, *([""] if base else [])]


def _high(check: Check) -> int | None:
    """The memory that decides: the high end of a prediction."""
    return check.device_used_high_bytes or check.device_used_bytes


_NUMBERS: tuple[tuple[str, Callable[[Check], float | None], Callable[[float | None], str]], ...] = (
    ("Batch size", lambda check: check.current_batch_size, whole),
    ("Memory needed", lambda check: check.device_used_bytes, gib),
    ("Memory needed at most", _high, gib),
    ("Memory of the GPU", lambda check: check.total_bytes, gib),
    (LARGEST_BATCH.full_label, lambda check: check.largest_batch_size, LARGEST_BATCH.number),
    (STEP_TIME.label, lambda check: check.step_seconds, STEP_TIME.with_unit),
    (RECOMMENDED_BATCH.label, lambda check: check.recommended_batch_size, RECOMMENDED_BATCH.number),
    ("Speed, of that at the recommended", lambda check: check.share_of_recommended_speed, share),
)


def _parts(base: Check, check: Check) -> str:
    """The largest differences at the peak as a table; empty if there are none."""
    if base.profile is None or check.profile is None:
        return ""
    rows = [
        [
            one.module,
            one.operation,
            one.category.replace("_", " "),
            gib(one.before_bytes),
            gib(one.after_bytes),
            signed(one.added_bytes, gib_number),
        ]
        for one in differences_by_tensor(base.profile, check.profile)
    ]
    heads = ["module", "operation", "category", "base", "now", "GiB added"]
    moved = about_peaks(base.profile, check.profile)
    return "\n\n".join(filter(None, [table(heads, rows), moved])) if rows else ""
