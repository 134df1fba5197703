"""``memorymark run``: analyses, predictions and plans for another program, as JSON lines.

The process loads torch before it reads the first order, and stays for further orders, so that a
parent can keep it warm. While there is no order, it answers the request that the form offers first:
that loads what any answer needs, and this one's traces are on disk from then on.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any

from .core.border import read_json
from .core.choices import Goal
from .core.errors import EngineError, InvalidInput
from .core.loading import has_line, turn
from .core.process import lines_of
from .events import Answer, Emit, Event, to_json_line
from .gpus import LOCAL, Gpu, with_added, with_prices
from .gpus.checked import SelfCheck
from .gpus.known import using
from .interface.first_request import FIRST_REQUEST
from .interface.request import AnalysisRequest
from .interface.trial import GpuFacts, Trial
from .prediction.timing.intervals import Residual
from .traces.trace_files import trace_files
from .versions.releases import check_releases

if TYPE_CHECKING:
    from .traces.workloads import KeptTraces


_FIRST_ORDER = json.dumps({"request": FIRST_REQUEST.to_dict()})


class Command(StrEnum):
    """Kind of order."""

    ANALYZE = "analyze"
    PREDICT = "predict"
    PLAN = "plan"
    SELF_CHECK = "self-check"


@dataclass(frozen=True)
class Order:
    """One line from the parent.

    Attributes:
        request: The fields of an :class:`~engine.interface.request.AnalysisRequest`; none for a
        self-check.
        trials: Trials of an earlier attempt at the analysis.
        measured: Steps that were measured elsewhere in the lab.
        prices: Prices of the lab, in USD per GPU-hour by name, in place of the catalogue's.
        checks: The self-checks of the lab's nodes.
        gpus: GPUs that the lab has added to the catalogue.
    """

    request: dict[str, Any] = field(default_factory=dict)
    ask: Command = Command.ANALYZE
    trials: list[Trial] = field(default_factory=list)
    measured: list[Residual] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    checks: list[SelfCheck] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)


@dataclass(frozen=True)
class Predicted:
    """The answer to ``predict``; ``software`` and ``caveats`` are those of an analysis's result."""

    gpu: GpuFacts
    trial: Trial
    software: dict[str, str] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)


def run(requests: IO[str], events: IO[str], *, keep_traces: bool = False) -> int:
    """Carry out one order after another, until the parent closes the pipe; returns status 0.

    Args:
        requests: A pipe with an :class:`Order` per line, as JSON. If it ends during an order, this
            process ends at once.
        events: Receives one JSON object per line. The last event of an order is its ``result``,
            ``answer`` or ``error``.
        keep_traces: Whether to keep the traces of the last workloads, for the same workloads at
            other batch sizes or on other GPUs. The first answer takes longer, the others less.
    """

    def emit(event: Event) -> None:
        events.write(to_json_line(event) + "\n")
        events.flush()

    try:
        check_releases()
    except EngineError as refused:
        for _ in lines_of(requests):
            emit(refused)
        return 0
    files = trace_files()
    with turn(files.folder if files else None, requests):
        # This loads torch; see above.
        from .traces.workloads import KeptTraces

        traced = KeptTraces() if keep_traces else None
        if not has_line(requests):
            _answer(_FIRST_ORDER, lambda _: None, traced)
    for line in lines_of(requests):
        emit(_answer(line, emit, traced))
    return 0


def _answer(line: str, emit: Emit, traced: KeptTraces | None) -> Event:
    try:
        order = _order(line)
        if order.ask is Command.SELF_CHECK:
            from .selfcheck.check import self_check

            return Answer(self_check(emit).to_dict())
        with with_added(order.gpus), with_prices(order.prices), using(order.checks):
            return _ANSWERS[order.ask](order, AnalysisRequest.parse(order.request), emit, traced)
    except EngineError as error:
        return error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return EngineError(f"the engine failed: {type(error).__name__}: {error}")


def _order(line: str) -> Order:
    try:
        return read_json(Order, line)
    except InvalidInput as error:
        known = Order.__dataclass_fields__
        wrong = {}
        for path, message in error.fields.items():
            name = path.partition(".")[0]
            wrong[name if name in known else "request"] = f"{path}: {message}"
        raise InvalidInput(wrong) from error


def _analyze(
    order: Order, request: AnalysisRequest, emit: Emit, traced: KeptTraces | None
) -> Event:
    from .analysis import analyze
    from .prediction.texts.text_analyses import analyze_texts

    if request.goal is not Goal.BATCH:
        return analyze_texts(request, emit)
    return analyze(request, emit, order.trials, traced, order.measured)


def _predict(
    order: Order, request: AnalysisRequest, emit: Emit, traced: KeptTraces | None
) -> Event:
    from .prediction.one_batch import predict_batch
    from .prediction.timing.correction import Experience

    if request.gpu == LOCAL:
        raise InvalidInput({"gpu": f"{LOCAL} is measured, not predicted"})
    made = predict_batch(request, emit, traced, Experience.here(order.measured))
    used = request.workload.versions_here
    return Answer(asdict(Predicted(made.gpu, made.trial, used, made.caveats)))


def _plan(order: Order, request: AnalysisRequest, emit: Emit, traced: KeptTraces | None) -> Event:
    from .prediction.plans.plan import plan
    from .prediction.timing.correction import Experience

    return Answer(plan(request, emit, Experience.here(order.measured), traced).to_dict())


_ANSWERS: Mapping[Command, Callable[[Order, AnalysisRequest, Emit, KeptTraces | None], Event]] = {
    Command.ANALYZE: _analyze,
    Command.PREDICT: _predict,
    Command.PLAN: _plan,
}
