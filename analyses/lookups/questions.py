"""What is asked in a lookup: the request as it is put to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from analyses.models import Analysis, Ask, Status
from analyses.services import check_storable, measured_gpu, split_gpu
from analyses.store import question_of
from engine.errors import InvalidInput
from engine.gpus import LOCAL, catalogue_name
from engine.request import AnalysisRequest, Assumptions


def predictable(fields: Mapping[str, object]) -> AnalysisRequest:
    """The request for flat, untrusted fields, on a GPU that can be predicted.

    A GPU of the lab, ``local`` or ``local:NAME``, is taken from the catalogue.

    Raises:
        InvalidInput: With a message for each wrong field; or the GPU is measured only.
    """
    given, wanted = split_gpu(fields)
    request = AnalysisRequest.parse(given)
    check_storable(request.workload.config)
    if request.gpu != LOCAL:
        return request
    return AnalysisRequest.parse({**given, "gpu": catalogue_gpu(measured_gpu(wanted))})


def catalogue_gpu(kind: str) -> str:
    """The catalogue's name of a kind of GPU that a node has.

    Raises:
        InvalidInput: If the catalogue does not have it.
    """
    name = catalogue_name(kind)
    if name is None:
        raise InvalidInput(
            {"gpu": f"{kind} is measured, not predicted: the catalogue does not have it"}
        )
    return name


def lookup_question(ask: Ask, request: AnalysisRequest) -> str:
    """A word that is equal for two lookups if their answers are; empty where none can be known."""
    if ask == Ask.PREDICT:  # what time costs, and which other batches are allowed, does not matter
        request = replace(request, assumptions=Assumptions(), batch_multiple=1)
    return question_of(request, ask)


def plan_request(analysis: Analysis) -> AnalysisRequest:
    """The request of an analysis as a plan is asked for it: from a GPU of the catalogue.

    Raises:
        InvalidInput: If its GPU or its training is measured only.
    """
    gpu = catalogue_gpu(analysis.measured_gpu) if analysis.gpu == LOCAL else analysis.gpu
    return AnalysisRequest.parse({**analysis.request, "gpu": gpu})


def has_advice(analysis: Analysis) -> bool:
    """Whether a plan can be asked for: there is an answer, for a GPU that the catalogue has."""
    known = analysis.gpu != LOCAL or catalogue_name(analysis.measured_gpu) is not None
    return analysis.status == Status.SUCCEEDED and known
