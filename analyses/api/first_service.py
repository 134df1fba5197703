"""``GET /models`` and ``POST /analyze`` in the shapes of the first MemoryMark service.

Its programs go on working with a token added. ``docs/first-service.md`` says how each number is
meant; everything else is under ``/api/v1/``. Its ``GET /health`` is the site's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from django.http import HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import (
    HTTP_400_BAD_REQUEST,
    HTTP_422_UNPROCESSABLE_ENTITY,
    HTTP_503_SERVICE_UNAVAILABLE,
)
from rest_framework.views import APIView

from analyses import services
from analyses.api.limits import ENGINE_COST
from analyses.api.problems import KINDS, QUEUE_SECONDS, QueueIsFull, handle_exception
from analyses.api.views import MAX_WAIT_SECONDS, member_of, wait_for_decision
from analyses.bodies import storable
from analyses.jobs import lab_state
from analyses.jobs.plans import awaited
from analyses.models import Analysis
from analyses.results.decided import decided_moves, own_result
from engine.answer.amounts import trial_at
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.core.sizes import in_gib
from engine.gpus import catalogue_name
from engine.interface.result import AnalysisResult
from engine.interface.trial import Trial
from engine.models.presets import PRESETS

MODEL = "model_name"
USUAL_GPU = "a10"
"""Predicted for where no GPU is named and no node has one."""
_OF_THE_FRAMEWORK = (401, 405, 406, 415)
"""Errors whose text is REST framework's, which says what was wrong and not what to do."""


WAIT_SECONDS = MAX_WAIT_SECONDS * 3 / 4
"""Many programs and proxies give up after a minute, and get no answer then."""


class _View(APIView):
    """A view whose errors are ``{"error": message}``."""

    schema = None  # of the API's own description, which is of /api/v1/

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        return _failed


class Models(_View):
    """The models that can be analyzed by name."""

    def get(self, _request: Request) -> Response:
        return Response({"models": [
            {
                "id": preset.name,
                "name": preset.display_name,
                "type": preset.kind,
                "hub_id": preset.hub_id,
                "description": preset.description,
            }
            for preset in PRESETS.values()
        ]})  # fmt: skip

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """A browser that lacks the last slash gets the page of that name."""
        is_program = "Authorization" in request.headers or not request.accepts("text/html")
        if is_program or "text/html" not in request.headers.get("Accept", ""):
            return super().dispatch(request, *args, **kwargs)
        return HttpResponseRedirect(reverse("analyses:models"))


class Analyze(_View):
    """Submits an analysis, waits for its decision, and answers in the old fields.

    Sent again while that one runs, it waits for the same: its programs repeat what takes too long.
    """

    costs = MappingProxyType({"POST": ENGINE_COST})

    def post(self, request: Request) -> Response:
        try:
            analysis = services.submit(member_of(request), _fields(request.data), join=True)
        except services.QueueFull as error:
            raise QueueIsFull(f"Not queued: {error.fields['queue']}.") from error
        except InvalidInput as error:
            named = {
                MODEL if name == "model" else name: text for name, text in error.fields.items()
            }
            message = "; ".join(f"{name}: {text}" for name, text in named.items())
            return _error(message, HTTP_400_BAD_REQUEST)
        wait_for_decision(analysis.pk, WAIT_SECONDS)
        analysis.refresh_from_db()
        address = request.build_absolute_uri(reverse("analyses:detail", args=[analysis.pk]))
        result = own_result(analysis)
        if result is not None:
            return Response(_answer(result) | _decision(analysis) | {"url": address})
        if analysis.is_final:
            why = analysis.failure_reason or f"The analysis was {analysis.status}"
            return _error(f"{why.rstrip('.')}. See {address}", HTTP_422_UNPROCESSABLE_ENTITY)
        late = _error(f"not finished yet; it goes on at {address}", HTTP_503_SERVICE_UNAVAILABLE)
        late["Retry-After"] = str(QUEUE_SECONDS)
        return late


def _fields(body: object) -> dict[str, object]:
    """The fields of a request, which are the old one's and any of ``/api/v1/analyses/``.

    Raises:
        InvalidInput: If it is no object that names a model.
    """
    if not isinstance(body, Mapping):
        raise InvalidInput({"body": "send one JSON object"})
    fields = dict(body)
    if not isinstance(model := fields.pop(MODEL, None), str) or "model" in fields:
        raise InvalidInput({MODEL: "enter the model's id, as /models lists it, as text"})
    if not fields.get("gpu"):
        fields["gpu"] = _gpu_here()
    if fields.get("goal", Goal.BATCH) != Goal.BATCH:
        raise InvalidInput({"goal": "/analyze finds batches; POST others to /api/v1/analyses/"})
    return fields | {"model": model}


def _gpu_here() -> str:
    """The catalogue's name of the first GPU in the lab; else the usual one."""
    gpus = (node.gpu_name for node in lab_state.nodes_online() if node.gpu_name)
    return next(filter(None, map(catalogue_name, gpus)), USUAL_GPU)


def _answer(result: AnalysisResult) -> dict[str, Any]:
    """The old fields: of another batch alone, as its programs change nothing else."""
    optimal = trial_at(result, result.recommended_batch_size)
    headroom, total = result.current_headroom_bytes, result.gpu.total_bytes
    return {
        MODEL: result.model_name,
        "gpu_name": result.gpu.name,
        "source": result.source,
        "optimal_batch_size": result.recommended_batch_size,
        "optimal_memory_gb": _gib(_used(optimal)) if optimal else None,
        "current_batch_size": result.current_batch_size,
        "waste_gb": _gib(headroom),
        "waste_percent": None if headroom is None else round(100 * headroom / total, 1),
        "speedup": result.speedup,
        "cost_savings_annual": result.savings.usd_per_year if result.savings else 0.0,
        "results": [
            {
                "batch_size": trial.batch_size,
                "fits": trial.fits,
                "memory_gb": _gib(_used(trial)),
                "samples_per_second": trial.samples_per_second,
                "source": trial.source,
            }
            for trial in sorted(result.trials, key=lambda trial: trial.batch_size)
        ],
    }


def _decision(analysis: Analysis) -> dict[str, Any]:
    """The advice on the page of the analysis, which may be more than another batch."""
    result = analysis.result or {}
    return {
        "analysis_id": analysis.pk,
        "decision": result.get("decision") or result.get("verdict") or "",
        "decision_is_final": awaited(analysis) is None,
        "moves": decided_moves(analysis),
    }


def _used(trial: Trial) -> int | None:
    """Device memory in use; what tensors take where that is not known, as on a CPU."""
    used = trial.device_used_bytes
    return trial.peak_allocated_bytes if used is None else used


def _gib(size: int | None) -> float | None:
    return None if size is None else in_gib(size, 2)


def _error(message: str, status: int) -> Response:
    return Response({"error": storable(message)}, status)


def _failed(error: Exception, context: dict[str, Any]) -> Response:
    """An error of the API, in the old shape, with what to do where it came before our code."""
    said = handle_exception(error, context)
    message = said.data["detail"]
    if said.status_code in _OF_THE_FRAMEWORK:
        message = f"{message} {KINDS[said.status_code].meaning}"
    kept = {
        name: said[name] for name in ("WWW-Authenticate", "Retry-After", "Allow") if name in said
    }
    return Response({"error": message}, said.status_code, headers=kept)
