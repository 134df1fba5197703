"""The document of an imported analysis, and the check that its parts are consistent.

An imported result enters the same history and the same savings as the lab's own, so everything
that follows from its trials is computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from analyses.bodies import MAX_NAME_LENGTH, STORABLE, Id, JsonObject, Moment, Name, Stored
from analyses.importing.checks import (
    MAX_TRIALS,
    kind_of,
    of_a_ladder,
    of_a_rung,
    of_a_trial,
    of_an_offer,
    of_the_global_batch,
    of_the_goal,
    of_the_gpu,
    of_the_kept_batch,
    of_the_optimizer_step,
    of_the_profile,
    of_the_program,
    of_the_savings,
    of_the_workload,
    rises,
)
from analyses.importing.pushed_texts import contradictions_of_texts
from analyses.lab.projects import project_name
from analyses.models import Project
from analyses.results.stored import Result, read_result
from engine.answer.economics import speedup_in_turn
from engine.answer.ladder import MAX_RUNGS, Rung
from engine.core.border import read_body, read_json
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.core.parsing import shown
from engine.gpus import LOCAL
from engine.interface.program import AnyRequest, ProgramRequest, read_request
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.interface.texts import TextResult
from engine.interface.trial import Source, Trial

SCHEMA_VERSION = 1
MAX_VERSIONS = 32
MAX_POINTS = 2_000
_TOLERANCE = 1e-6
"""JSON keeps floats exactly; only the order of two divisions may differ."""

_MAY_BE_NEGATIVE = "kwh_per_year_low"
"""A faster batch may draw so much more power that it saves no energy."""


def _known_version(value: object) -> object:
    if value != SCHEMA_VERSION:
        raise ValueError(
            f"{shown(value)} is not supported here, {SCHEMA_VERSION} is; bring client and site to "
            "the same version"
        )
    return value


def _few(versions: dict[str, str]) -> dict[str, str]:
    if len(versions) > MAX_VERSIONS or any(
        len(text) > MAX_NAME_LENGTH for text in [*versions, *versions.values()]
    ):
        raise ValueError(f"send at most {MAX_VERSIONS} names, each with a version, as text")
    return versions


def _no_negatives(value: dict[str, Any]) -> dict[str, Any]:
    left: list[object] = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += [part for name, part in item.items() if name != _MAY_BE_NEGATIVE]
        elif isinstance(item, list):
            left += item
        elif isinstance(item, int | float) and item < 0:
            raise ValueError(f"{shown(item)} is below zero, as no other number of a result is")
    return value


class Origin(BaseModel):
    """The machine and program that ran it."""

    model_config = ConfigDict(extra="forbid")

    host: Annotated[Name, Field(description="That machine's host name.")]
    ran: Annotated[Name, Field(description="What ran there.")]


class DocumentBody(BaseModel):
    """An analysis that ran elsewhere, whole."""

    schema_version: Annotated[
        int,
        BeforeValidator(_known_version),
        Field(description="Of this form.", json_schema_extra={"enum": [SCHEMA_VERSION]}),
    ]
    id: Id
    request: Annotated[
        JsonObject,
        Stored((AnalysisRequest, ProgramRequest)),
        Field(
            description="Its settings, of a model or of your own script; gpu is local for a "
            "measurement."
        ),
    ]
    result: Annotated[
        JsonObject,
        AfterValidator(_no_negatives),
        Stored((AnalysisResult, TextResult)),
        Field(description="Its result, with every trial; another one where the goal is texts."),
    ]
    ladder: Annotated[
        list[Annotated[JsonObject, AfterValidator(_no_negatives)]],
        Stored((Rung,)),
        Field(
            description="For a script, the rungs of its plan on its GPU, in order, the one without "
            "a move first; empty without a plan.",
            max_length=MAX_RUNGS,
        ),
    ] = []
    started_at: Moment
    finished_at: Moment
    origin: Origin
    environment: Annotated[
        dict[str, str],
        STORABLE,
        AfterValidator(_few),
        Field(description="Versions of the software it ran with, by name."),
    ]
    project: Annotated[
        str,
        AfterValidator(project_name),
        Field(
            description="Name of a lab project, made if it is new.",
            json_schema_extra={"maxLength": Project.MAX_LENGTH, "pattern": r"^[^\x00]*$"},
        ),
    ] = ""


@dataclass(frozen=True)
class Document:
    """An analysis that ran elsewhere, checked.

    Attributes:
        body: The body as sent. The lab's assumptions replace those that its request leaves out.
        digest: Digest of everything in it, to distinguish it from another one with its id.
        measured_gpu: Empty for a prediction.
        ladder: The rungs of a script's plan, in order; empty without one.
    """

    body: DocumentBody
    digest: str
    request: AnyRequest
    result: Result
    measured_gpu: str
    ladder: list[Rung] = field(default_factory=list)


def read_document(given: Mapping[str, Any]) -> Document:
    """Read and check what a client sent.

    Raises:
        InvalidInput: With a message for each wrong, unknown or missing field.
    """
    body = read_body(DocumentBody, given)
    wrong: dict[str, str] = {}
    request = _request(body.request, wrong)
    result = _result(body.result, wrong)
    if request and result:
        wrong |= (
            contradictions(request, result)
            if isinstance(result, AnalysisResult)
            else _contradictions_of_texts(request, result)
        )
    ladder = _ladder(body.ladder, request, wrong)
    if body.finished_at < body.started_at:
        wrong["finished_at"] = "it is before started_at"
    if wrong or not (request and result):
        raise InvalidInput(wrong)
    text = json.dumps(given, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Document(body, digest, request, result, measured_gpu_of(request, result), ladder)


def _request(given: Mapping[str, object], wrong: dict[str, str]) -> AnyRequest | None:
    try:
        return read_request(given)
    except InvalidInput as error:
        wrong |= {f"request.{name}": message for name, message in error.fields.items()}
        return None


def _result(given: Mapping[str, Any], wrong: dict[str, str]) -> Result | None:
    try:
        return read_result(given)
    except InvalidInput as error:
        wrong["result"] = f"cannot be read ({error!s:.300}); client and site may differ in version"
        return None


def _ladder(
    given: Iterable[Mapping[str, Any]], request: AnyRequest | None, wrong: dict[str, str]
) -> list[Rung]:
    """The rungs of a plan, each consistent with the request and with its own result."""
    rungs: list[Rung] = []
    for index, one in enumerate(given):
        name = f"ladder.{index}"
        try:
            rungs.append(rung := read_json(Rung, one))
        except InvalidInput as error:
            wrong[name] = f"cannot be read ({error!s:.300}); client and site may differ in version"
            continue
        if problem := of_a_rung(rung):
            wrong[name] = problem
        if request is not None and rung.result is not None:
            found = contradictions(request, rung.result)
            wrong |= {f"{name}.{path}": text for path, text in found.items()}
    if problem := of_a_ladder(rungs):
        wrong["ladder"] = problem
    if rungs and isinstance(request, AnalysisRequest):
        wrong["ladder"] = "only a script has one; the lab plans models itself"
    return rungs


def _contradictions_of_texts(request: AnyRequest, result: TextResult) -> dict[str, str]:
    if isinstance(request, ProgramRequest):
        return {"result.goal": "a script's is a batch"}
    return contradictions_of_texts(request, result)


def contradictions(request: AnyRequest, result: AnalysisResult) -> dict[str, str]:
    """Inconsistencies, by field; empty if there are none."""
    wrong: dict[str, str] = {}
    for name, problem in (
        ("result.goal", of_the_goal(request, Goal.BATCH)),
        ("result.workload", of_the_workload(request, result.workload)),
        ("result.program_hash", of_the_program(request, result)),
        ("result.compared_gpus", next(filter(None, map(of_an_offer, result.compared_gpus)), "")),
        ("result.gpu", of_the_gpu(request, result.gpu)),
        ("result.source", _of_the_source(request, result)),
        ("result.trials", _of_the_trials(result)),
        ("result.today", _of_today(request, result.today)),
        ("result.largest_batch_size", _of_the_limit(result)),
        ("result.recommended_batch_size", _of_the_recommendation(request, result)),
        ("result.current_batch_size", _of_the_current(request, result)),
        ("result.speedup", _of_the_speedup(result)),
        ("result.savings", of_the_savings(result.savings)),
        ("result.global_batch", of_the_global_batch(result.global_batch)),
        ("result.profile", of_the_profile(result)),
        ("result.optimizer_step", of_the_optimizer_step(request, result.optimizer_step)),
        ("result.kept_batch", of_the_kept_batch(result, result.kept_batch)),
    ):
        if problem:
            wrong[name] = problem
    return wrong


def measured_gpu_of(request: AnyRequest, result: Result) -> str:
    """The kind of GPU that was measured on; empty for a prediction."""
    if request.gpu != LOCAL or not isinstance(result, AnalysisResult):
        return ""
    return kind_of(result.gpu)


def _of_the_source(request: AnyRequest, result: AnalysisResult) -> str:
    measured = request.gpu == LOCAL
    expected = (Source.MEASURED,) if measured else (Source.PREDICTED, Source.COMPUTED)
    if any(source not in expected for source in _sources(result)):
        return f"for the GPU {request.gpu}, result and trials are {' or '.join(expected)}"
    if not measured and (result.measured_on or result.comparison):
        return "a prediction has no measurements"
    return ""


def _sources(result: AnalysisResult) -> Iterator[Source]:
    yield result.source
    yield from (trial.source for trial in result.trials)


def _of_the_trials(result: AnalysisResult) -> str:
    if not 0 < len(result.trials) <= MAX_TRIALS or len(result.curve) > MAX_POINTS:
        return f"send 1 to {MAX_TRIALS} trials, and at most {MAX_POINTS:,} points of the curve"
    sizes = [trial.batch_size for trial in result.trials]
    if len(set(sizes)) < len(sizes):
        return "a batch size appears twice"
    for trial in [*result.trials, *result.curve]:
        if problem := next(of_a_trial(trial), ""):
            return f"batch {trial.batch_size:,}: {problem}"
    return ""


def _of_today(request: AnyRequest, today: Trial | None) -> str:
    """The error in the trial of the current batch without the moves; empty if there is none."""
    if today is None:
        return ""
    if today.batch_size != request.current_batch_size:
        return "it is not of the current batch"
    return next(of_a_trial(today), "")


def _of_the_limit(result: AnalysisResult) -> str:
    largest, following = result.largest_batch_size, result.next_batch_size
    fitting = [trial.batch_size for trial in result.trials if trial.fits]
    if largest < 1 or largest != max(fitting, default=0):
        return "it is the largest trial that fits"
    if following <= largest:
        return "next_batch_size is larger"
    beyond = _trial(result, following)
    if result.next_batch_size_fails and (beyond is None or beyond.fits):
        return "there is no trial of next_batch_size that does not fit"
    return ""


def _of_the_recommendation(request: AnyRequest, result: AnalysisResult) -> str:
    recommended = result.recommended_batch_size
    if not 0 < recommended <= result.largest_batch_size:
        return "it is not larger than the largest batch"
    if recommended % request.batch_multiple:
        return f"it is not a multiple of {request.batch_multiple}"
    return "" if _trial(result, recommended) else "there is no trial of it"


def _of_the_current(request: AnyRequest, result: AnalysisResult) -> str:
    size = result.current_batch_size
    if size != request.current_batch_size:
        return "it differs from the request"
    if size is None:
        known = result.current_headroom_bytes is not None
        return "without it, there is no current_headroom_bytes" if known else ""
    current = _today(result)
    if current is None:
        return "there is no trial of it"
    if (result.current_headroom_bytes is None) == current.fits:
        return "current_headroom_bytes belongs to a batch that fits, and only to one"
    return ""


def _of_the_speedup(result: AnalysisResult) -> str:
    ratio, low, high = result.speedup, result.speedup_low, result.speedup_high
    current = _today(result)
    recommended = _trial(result, result.recommended_batch_size)
    if ratio is None:
        return "" if low is None and high is None else "there is an interval without a speedup"
    if current is None or recommended is None or not current.fits:
        return "there is no speedup without a current batch that fits"
    if low is None or high is None or not rises(low, ratio, high):
        return "it lies within its interval"
    if compared := result.comparison:
        rounds = (compared.current_samples_per_second, compared.recommended_samples_per_second)
        if not rounds[0] or len(rounds[0]) != len(rounds[1]) or not all(map(all, rounds)):
            return "the comparison has rounds, each with two speeds"
        again = speedup_in_turn(compared)
        same = _same([ratio, low, high], [again.ratio, again.low, again.high])
        return "" if same else "it does not follow from the comparison"
    speeds = (current.samples_per_second, recommended.samples_per_second)
    if not (speeds[0] and speeds[1]):
        return "its two trials have no speed"
    same = _same([ratio], [speeds[1] / speeds[0]])
    return "" if same else "it does not follow from the trials"


def _today(result: AnalysisResult) -> Trial | None:
    """The trial of the current batch, with moves the one without them; ``None`` without either."""
    return result.today or _trial(result, result.current_batch_size)


def _trial(result: AnalysisResult, batch_size: int | None) -> Trial | None:
    return next((trial for trial in result.trials if trial.batch_size == batch_size), None)


def _same(given: Iterable[float], computed: Iterable[float]) -> bool:
    pairs = zip(given, computed, strict=True)
    return all(math.isclose(one, other, rel_tol=_TOLERANCE) for one, other in pairs)
