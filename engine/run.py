"""``python -m engine run``: analyses for another program, by JSON lines.

Torch is loaded before the first request is read, and the process waits for the next one when it
has answered, so that a parent may keep one warm and ask when there is something to ask.
"""

from __future__ import annotations

import json
import select
import sys
import traceback
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from engine.errors import EngineError, InvalidInput
from engine.events import Event, to_json_line
from engine.lifeline import lines_of
from engine.request import AnalysisRequest
from engine.result import Source, Trial

if TYPE_CHECKING:
    from engine.prediction.analysis import TraceRequest


def run(requests: IO[str], events: IO[str], *, keep_traces: bool = False) -> int:
    """Answer one request after the other, until nobody asks any more.

    Args:
        requests: A pipe with a line of JSON for each request: an object with ``request``, the
            fields of ``AnalysisRequest``, and ``trials``, those known from an earlier try (may be
            left out). Its end means that nobody waits for an answer, and ends the process at once.
        events: Receives the events, one JSON object a line. The last of a request is its ``result``
            or its ``error``.
        keep_traces: Whether to keep the traces of the last workload, for a parent that asks about
            it on several GPUs in turn: the first answer takes longer, the others are quick.

    Returns:
        The exit status 0.
    """
    # These load torch; see above.
    from engine.prediction.reuse import KeptTraces
    from engine.tracing.tracer import warm_up

    def emit(event: Event) -> None:
        events.write(to_json_line(event) + "\n")
        events.flush()

    if not select.select([requests], [], [], 0)[0]:  # nobody asks yet: there is time
        warm_up()
    traced = KeptTraces() if keep_traces else None
    for line in lines_of(requests):
        emit(_answer(line, emit, traced))
    return 0


def _answer(line: str, emit: Callable[[Event], None], traced: TraceRequest | None) -> Event:
    from engine.analysis import analyze

    try:
        request, known = _parse(line)
        return analyze(request, emit, known, traced)
    except EngineError as error:
        return error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return EngineError(f"the engine failed: {type(error).__name__}: {error}")


def _parse(line: str) -> tuple[AnalysisRequest, list[Trial]]:
    try:
        asked = json.loads(line)
    except ValueError as error:
        raise InvalidInput({"request": f"not JSON: {error}"}) from error
    if not isinstance(asked, dict) or not isinstance(asked.get("request"), dict):
        raise InvalidInput({"request": "not a JSON object with the object 'request'"})
    return AnalysisRequest.parse(asked["request"]), [_trial(row) for row in asked.get("trials", [])]


def _trial(row: dict[str, Any]) -> Trial:
    try:
        return Trial(**(row | {"source": Source(row["source"])}))
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidInput({"trials": f"not a trial: {error}"}) from error
