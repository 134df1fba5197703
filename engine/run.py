"""``python -m engine run``: one analysis for another program, by JSON lines.

Torch is loaded before the request is read, so that a parent may start this ahead of time and ask
when there is something to ask.
"""

from __future__ import annotations

import json
import select
import sys
import traceback
from typing import IO

from engine.errors import EngineError, InvalidInput
from engine.events import Event, to_json_line
from engine.lifeline import end_with
from engine.request import AnalysisRequest


def run(requests: IO[str], events: IO[str]) -> int:
    """Answer one request.

    Args:
        requests: A pipe with one line of JSON, the fields of ``AnalysisRequest``. Its end
            afterwards means that nobody waits for the answer any more, and ends the process.
        events: Receives the events, one JSON object a line.

    Returns:
        The exit status: 0 answered, 2 invalid input, 1 any other failure.
    """
    # These load torch; see above.
    from engine.analysis import analyze
    from engine.tracing.tracer import warm_up

    def emit(event: Event) -> None:
        events.write(to_json_line(event) + "\n")
        events.flush()

    if not select.select([requests], [], [], 0)[0]:  # nobody asks yet: there is time
        warm_up()
    line = requests.readline()
    if not line:
        return 0
    end_with(requests)
    try:
        emit(analyze(_parse(line), emit))
    except EngineError as error:
        emit(error)
        return 2 if isinstance(error, InvalidInput) else 1
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        emit(EngineError(f"the engine failed: {type(error).__name__}: {error}"))
        return 1
    return 0


def _parse(line: str) -> AnalysisRequest:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InvalidInput({"request": f"not JSON: {error}"}) from error
    if not isinstance(fields, dict):
        raise InvalidInput({"request": "not a JSON object"})
    return AnalysisRequest.parse(fields)
