"""``python -m engine run``: analyses and lookups for another program, by JSON lines.

Torch is loaded before the first request is read, and the process waits for the next one when it
has answered, so that a parent may keep one warm and ask when there is something to ask.
"""

from __future__ import annotations

import json
import select
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from engine.errors import EngineError, InvalidInput
from engine.events import Answer, Event, to_json_line
from engine.gpus import LOCAL
from engine.lifeline import lines_of
from engine.request import AnalysisRequest
from engine.result import Source, Trial

if TYPE_CHECKING:
    from engine.prediction.analysis import TraceRequest

Asked = Mapping[str, Any]
Emit = Callable[[Event], None]


def run(requests: IO[str], events: IO[str], *, keep_traces: bool = False) -> int:
    """Answer one request after the other, until nobody asks any more.

    Args:
        requests: A pipe with a line of JSON for each request: an object with ``request``, the
            fields of ``AnalysisRequest``, and two that may be left out: ``ask``, a name of
            :data:`ASKS`, and ``trials``, those of an analysis known from an earlier try. Its end
            means that nobody waits for an answer, and ends the process at once.
        events: Receives the events, one JSON object a line. The last of a request is its
            ``result``, its ``answer`` or its ``error``.
        keep_traces: Whether to keep the traces of the last workloads, for a parent that asks about
            them again: at other batch sizes, or on several GPUs in turn. The first answer takes
            longer, the others are quick.

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


def _answer(line: str, emit: Emit, traced: TraceRequest | None) -> Event:
    try:
        asked = _asked(line)
        return ASKS[asked.get("ask", ANALYZE)](asked, emit, traced)
    except EngineError as error:
        return error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return EngineError(f"the engine failed: {type(error).__name__}: {error}")


def _asked(line: str) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except ValueError as error:
        raise InvalidInput({"request": f"not JSON: {error}"}) from error
    if not isinstance(asked, dict) or not isinstance(asked.get("request"), dict):
        raise InvalidInput({"request": "not a JSON object with the object 'request'"})
    if asked.get("ask", ANALYZE) not in list(ASKS):  # what was sent may not be hashable
        raise InvalidInput({"ask": f"choose one of {', '.join(ASKS)}"})
    return asked


def _analyze(asked: Asked, emit: Emit, traced: TraceRequest | None) -> Event:
    from engine.analysis import analyze

    request = AnalysisRequest.parse(asked["request"])
    return analyze(request, emit, [_trial(row) for row in asked.get("trials", [])], traced)


def _predict(asked: Asked, emit: Emit, traced: TraceRequest | None) -> Event:
    from engine.prediction.analysis import predict_batch

    request = AnalysisRequest.parse(asked["request"])
    if request.gpu == LOCAL:
        raise InvalidInput({"gpu": f"{LOCAL} is measured, not predicted"})
    gpu, trial = predict_batch(request, emit, traced)
    return Answer({"gpu": asdict(gpu), "trial": asdict(trial)})


def _plan(asked: Asked, emit: Emit, _traced: TraceRequest | None) -> Event:
    from engine.advice.plan import plan

    return Answer(plan(AnalysisRequest.parse(asked["request"]), emit).to_dict())


ANALYZE, PREDICT, PLAN = "analyze", "predict", "plan"
ASKS: Mapping[str, Callable[[Asked, Emit, TraceRequest | None], Event]] = {
    ANALYZE: _analyze,
    PREDICT: _predict,
    PLAN: _plan,
}
"""What can be asked, by the word for it; without one it is an analysis."""


def _trial(row: dict[str, Any]) -> Trial:
    try:
        return Trial(**(row | {"source": Source(row["source"])}))
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidInput({"trials": f"not a trial: {error}"}) from error
