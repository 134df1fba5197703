"""``analyze --push`` and ``push``: what was found on this machine enters the lab's history."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from engine.client import Delivery, Lab
from engine.request import AnalysisRequest
from engine.result import AnalysisResult

_RAN = "python -m engine analyze"
_SEND_AGAIN = "`python -m engine push` sends it again"


def add_push_flag(parser: Any) -> None:
    """Let a command put its answer into the lab's history."""
    parser.add_argument(
        "--push",
        action="store_true",
        help="put the answer into the lab's history (MEMORYMARK_URL, MEMORYMARK_TOKEN)",
    )


def push_analysis(
    lab: Lab,
    request: AnalysisRequest,
    result: AnalysisResult,
    given: Mapping[str, object],
    started_at: datetime,
) -> bool:
    """Send an answer, and say on stderr what became of it.

    Args:
        lab: Where to.
        request: What was asked.
        result: What came out.
        given: The flags as they were written: the lab fills in the assumptions they leave out.
        started_at: When the work began.

    Returns:
        Whether the lab has it, or gets it later: false if it was refused.
    """
    try:
        delivery = lab.push(
            request,
            result,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            ran=_RAN,
            assumed=given,
        )
    except OSError as error:
        _say(f"error: not pushed, as the outbox cannot be used: {error}; set MEMORYMARK_OUTBOX")
        return False
    _tell_refused(delivery)
    if delivery.answer is not None:
        _say(f"pushed: {lab.url}/{delivery.answer['id']}/")
    elif delivery.waiting:
        _say(f"not pushed yet: {delivery.problem or 'another process sends it'}")
        _say(f"it is kept in {lab.outbox_folder}; {_SEND_AGAIN}")
    return not delivery.refusal


def push_what_waits() -> bool:
    """Answer ``push``: send the outbox; whether nothing is left and nothing was refused.

    Raises:
        Misconfigured: If it is not known where to.
    """
    lab = Lab()
    delivery = lab.send_outbox()
    _tell_refused(delivery)
    _say(f"sent {len(delivery.answers)}, refused {len(delivery.rejected)}, {_left(delivery)}")
    return not (delivery.waiting or delivery.rejected)


def _left(delivery: Delivery) -> str:
    return f"{delivery.waiting} left" + (f": {delivery.problem}" if delivery.problem else "")


def _tell_refused(delivery: Delivery) -> None:
    for path, reason in delivery.rejected.items():
        _say(f"error: the lab refused {path}: {reason}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
