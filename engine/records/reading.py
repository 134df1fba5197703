"""Reads recorded training runs back, for what is to be predicted in the machine where they ran.

A recorder writes a line for each training run (:func:`~engine.recording.to_file`), and
``memorymark measure --json`` an object for one batch size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from ..core.border import read_json
from ..core.errors import InvalidInput
from ..gpus import GPUS, HOW_TO_LIST
from ..interface.request import Request
from ..interface.result import MeasuredOn
from ..interface.trial import Trial
from ..interface.workload import Workload
from .comparison import RecordedFile, RecordedStep
from .record import TrainingRecord

FIELD = "recorded"
"""The key of messages about the file."""

_MEASURED_ON = "measured_on"
_WORKLOAD = "workload"


def recorded_for(request: Request, path: str | Path | None) -> RecordedFile | None:
    """The file that gives the launch time of a request's machine; ``None`` if no path is given.

    Raises:
        InvalidInput: For ``recorded``, if it is no such file, the launch time is given too, or the
            request is of no certain GPU.
    """
    if path is None:
        return None
    if request.launch_microseconds is not None:
        raise InvalidInput({FIELD: "launch_microseconds is given too; give one of them"})
    if request.gpu not in GPUS:
        wanted = f"it is of one kind of GPU: choose that as gpu, not {request.gpu}; {HOW_TO_LIST}"
        raise InvalidInput({FIELD: wanted})
    return read_recorded(Path(path))


def read_recorded(path: Path) -> RecordedFile:
    """Read what a recorder wrote, or what ``memorymark measure --json`` prints.

    Raises:
        InvalidInput: For ``recorded``, if it is neither.
    """
    text = _text_of(path)
    steps: list[RecordedStep] = []
    for place, given in enumerate(_objects(path.name, text), 1):
        with _named(f"{path.name}, record {place}"):
            steps.append(_measured(given) if _MEASURED_ON in given else _trained(given))
    if not steps:
        raise InvalidInput({FIELD: f"{path.name} has no record in it"})
    return RecordedFile(path.name, steps[::-1])


def read_records(path: Path) -> list[TrainingRecord]:
    """Read the file that a recorder wrote, in its order.

    Raises:
        InvalidInput: For ``recorded``, if it is no such file.
    """
    return parse_records(path.name, _text_of(path))


def parse_records(name: str, text: str) -> list[TrainingRecord]:
    """The training runs in the text of a file; ``name`` is that of the file, for messages.

    Raises:
        InvalidInput: For ``recorded``, if there is none, or something else.
    """
    records = []
    for place, given in enumerate(_objects(name, text), 1):
        with _named(f"{name}, record {place}"):
            records.append(TrainingRecord.parse(given))
    if not records:
        raise InvalidInput({FIELD: f"{name} has no record in it"})
    return records


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Say where in a file something is wrong."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput({FIELD: f"{place}: {error}"}) from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput({FIELD: f"{path.name} cannot be read: {error}"}) from error


def _objects(name: str, text: str) -> Iterator[Mapping[str, object]]:
    """The JSON objects of a file, each on a line of its own or on several."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        try:
            found, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError) as error:
            line = 1 + text.count("\n", 0, text.rfind(rest))
            message = f"{name} is not JSON where an object begins in line {line:,}: {error}"
            raise InvalidInput({FIELD: message}) from error
        if not isinstance(found, dict):
            raise InvalidInput({FIELD: f"{name} has something in it that is not a JSON object"})
        yield found
        rest = rest[end:].lstrip()


def _trained(given: Mapping[str, object]) -> RecordedStep:
    record = TrainingRecord.parse(given)
    return RecordedStep(
        batch_size=record.batch_size,
        step_seconds=record.step_seconds,
        device_name=record.device_name,
        gradient_accumulation=record.gradient_accumulation,
        world_size=record.world_size,
        precision=record.precision,
        model_name=record.model_name,
    )


def _measured(given: Mapping[str, object]) -> RecordedStep:
    known = {field.name: given[field.name] for field in fields(Trial) if field.name in given}
    trial, on, trained = read_json(Trial, known), given[_MEASURED_ON], given.get(_WORKLOAD)
    if not isinstance(trained, dict):
        raise InvalidInput({_WORKLOAD: "is missing; measure again with this version"})
    workload = Workload.parse(trained)
    return RecordedStep(
        batch_size=trial.batch_size,
        step_seconds=trial.step_seconds,
        device_name="" if on is None else read_json(MeasuredOn, on).device,
        gradient_accumulation=workload.gradient_accumulation,
        world_size=workload.world_size,
        precision=workload.precision,
        workload=workload,
    )
