"""The columns of an analysis that its request fills."""

from __future__ import annotations

import hashlib
import json

from analyses.gpus.added_gpus import basis_of
from analyses.jobs.measured_steps import newest
from analyses.jobs.nodes import engine_version
from analyses.lab.settings import Settled, prices_for, settle
from analyses.models import Analysis, QueryKind
from analyses.results.stored import Result
from analyses.savings.aggregation import workload_key
from engine.gpus import ANY, LOCAL, catalogue_name
from engine.interface.program import AnyRequest, ProgramRequest
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.models.presets import PRESETS


def request_columns(settled: Settled, measured_gpu: str = "") -> dict[str, object]:
    """The columns that a request fills."""
    request = settled.request
    subject, stored = request.subject, request.to_dict()
    return {
        "request": stored,
        "goal": request.goal,
        "assumed_by": settled.assumed_by,
        "model": subject.name,
        "program_hash": subject.program_hash,
        "gpu": request.gpu,
        "precision": subject.precision,
        "optimizer": subject.optimizer,
        "software": subject.software,
        "current_batch_size": request.current_batch_size,
        "request_hash": request_hash(request),
        "measured_gpu": measured_gpu,
        "workload_key": workload_key(stored, measured_gpu),
    }


def request_hash(request: AnyRequest, ask: str = "") -> str:
    """A hash that is equal for requests with equal answers; empty if that cannot be known.

    Args:
        request: A request on a catalogue GPU.
        ask: The kind of query, if it is not an analysis.
    """
    if isinstance(request, ProgramRequest):  # it ran outside the lab
        return ""
    workload = request.workload
    from_hub = workload.config is None and workload.model not in PRESETS  # may change there
    if request.gpu in (LOCAL, ANY) or from_hub:  # any: prices may change
        return ""
    asked = json.dumps(request.to_dict(), sort_keys=True)
    compares_all = ask == QueryKind.PLAN
    added = basis_of(request.gpu, compares_all=compares_all)
    prices = _prices_of_all(request) if compares_all else ""
    basis = f"{engine_version()} {newest(request.gpu)} {added}{prices}{ask}{asked}"
    return hashlib.sha256(basis.encode()).hexdigest()


def _prices_of_all(request: AnalysisRequest) -> str:
    """The prices that the catalogue's GPUs are compared by."""
    priced = prices_for(request.to_dict())
    return json.dumps({gpu: price.usd for gpu, price in priced.items()}, sort_keys=True)


def chosen_columns(number: int, result: Result) -> dict[str, object]:
    """The columns of an analysis submitted for any GPU, once its result names one.

    From then on it is an analysis of that GPU, at the lab's price.

    Args:
        number: Id of the analysis.
        result: Its result.
    """
    if not isinstance(result, AnalysisResult):
        return {}
    row = Analysis.objects.filter(pk=number, gpu=ANY).only("request").first()
    gpu = catalogue_name(result.gpu.name)
    if row is None or gpu is None:
        return {}
    given = row.request | {"gpu": gpu, "most_usd_per_hour": None, "most_hours_per_million": None}
    return request_columns(settle(AnalysisRequest.parse(given), given))
