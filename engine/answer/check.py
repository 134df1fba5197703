"""The check of a training run, described by a file in its repository: does it fit, is it fast?"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..core.border import read_json
from ..core.errors import DoesNotFit, InvalidInput
from ..core.parsing import positive_number, shown
from ..core.sizes import gib, gib_number
from ..interface.assumptions import Assumptions
from ..interface.request import AnalysisRequest
from ..interface.result import AnalysisResult, StepProfile
from ..interface.trial import Source, Trial
from ..interface.workload import Workload
from ..models.config_text import read_config_file

_TABLE = "check"


@dataclass(frozen=True)
class Limits:
    """Limits that a training run must meet, besides fitting.

    Attributes:
        min_share_of_recommended_speed: The least speed at the current batch, as a share of the
            speed at the recommended batch; ``None`` for no minimum.

    Raises:
        InvalidInput: On construction.
    """

    min_share_of_recommended_speed: float | None = None

    def __post_init__(self) -> None:
        name = "min_share_of_recommended_speed"
        if (share := self.min_share_of_recommended_speed) is not None:
            wrong: dict[str, str] = {}
            number = positive_number(f"{_TABLE}.{name}", share, 1, wrong)
            if wrong:
                raise InvalidInput(wrong)
            object.__setattr__(self, name, number)


@dataclass(frozen=True)
class Description:
    """A training run as its file describes it.

    Attributes:
        given: Fields of an :class:`~engine.interface.request.AnalysisRequest`, not checked yet.
        script: Names of a custom step or a script, by key of the file; empty for a model.
    """

    given: Mapping[str, object]
    script: Mapping[str, object]
    limits: Limits


@dataclass(frozen=True)
class Check:
    """Whether a training run passes, and why.

    Attributes:
        verdict: The result in one sentence.
        source: Source of the numbers; ``None`` where no batch fits at all.
        current_batch_size: The batch size that was checked.
        recommended_batch_size: The analysis's recommended batch; ``None`` where no batch fits.
        device_used_bytes, device_used_high_bytes: Memory that the current batch needs, and the
            high end of its prediction.
        total_bytes: Memory of the GPU, or the memory limit.
        share_of_recommended_speed: Samples per second at the current batch over those at the
            recommended batch; ``None`` where the current batch does not fit.
        largest_batch_size: The largest batch that fits; ``None`` where none does.
        step_seconds: Time of a step at the current batch; ``None`` where it does not fit.
        software: Versions by package.
        profile: Parts of the step at the current batch, to compare with another check.
    """

    passed: bool
    verdict: str
    current_batch_size: int
    source: Source | None = None
    recommended_batch_size: int | None = None
    device_used_bytes: int | None = None
    device_used_high_bytes: int | None = None
    total_bytes: int | None = None
    share_of_recommended_speed: float | None = None
    largest_batch_size: int | None = None
    step_seconds: float | None = None
    software: dict[str, str] = field(default_factory=dict)
    profile: StepProfile | None = None

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def read_description(path: Path) -> Description:
    """Read a file that describes a training run.

    Args:
        path: A TOML file: the fields of a request, with ``batch_size`` for the current one, or
            ``factory`` for a custom step, or a ``script`` with its ``arguments`` and its
            ``batch_flag`` or ``batch_env``, and a table ``check`` with the fields of
            :class:`Limits`. ``config`` and ``script`` name files next to it.

    Raises:
        InvalidInput: If there is no such file (for ``file``), or with a message for each key that
            is unknown or missing.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput({"file": f"{path} cannot be read: {error.strerror}"}) from error
    except ValueError as error:  # no UTF-8, or no TOML: the message has the line
        raise InvalidInput({"file": f"{path} is not valid TOML: {error}"}) from error
    wrong = _unknown(table.keys() - {"current_batch_size"}, _KEYS, "")
    limits = table.pop(_TABLE, {})
    if isinstance(limits, dict):
        wrong |= _unknown(limits.keys(), _LIMITS, f"{_TABLE}.")
    else:
        wrong[_TABLE] = f"{shown(limits)} is not a table; write [check] with its keys below it"
    if table.pop("current_batch_size", None) is not None:
        wrong["batch_size"] = "write batch_size, not current_batch_size"
    elif "batch_size" not in table:
        wrong["batch_size"] = "add the batch size of the training run"
    if wrong:
        raise InvalidInput(wrong)
    if isinstance(config := table.get("config"), str):
        table["config"] = read_config_file(path.parent / config)
    script = {name: table.pop(name) for name in _OF_A_SCRIPT if name in table}
    if "script" in script:
        script["script"] = str(path.parent / str(script["script"]))
    table["current_batch_size"] = table.pop("batch_size")
    return Description(table, script, Limits(**limits))


def read_check(path: Path) -> Check:
    """Read the check that ``check --json`` has written into a file.

    Raises:
        InvalidInput: For ``base``, if there is none in it.
    """
    known = {each.name for each in fields(Check)}
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        return read_json(Check, {name: given[name] for name in given if name in known})
    except OSError as error:
        raise InvalidInput({"base": f"{path} cannot be read: {error.strerror}"}) from error
    except (InvalidInput, ValueError, TypeError) as error:
        message = f"{path} is not what `memorymark check --json` prints"
        raise InvalidInput({"base": message}) from error


def _unknown(keys: Any, known: set[str], prefix: str) -> dict[str, str]:
    message = f"unknown key; known are {', '.join(sorted(known))}"
    return dict.fromkeys((f"{prefix}{key}" for key in sorted(keys - known)), message)


def check(result: AnalysisResult, limits: Limits, *, optimistic: bool = False) -> Check:
    """Check the current batch of an analysis against its GPU and the limits.

    Args:
        result: The analysis.
        limits: Limits that the training run must meet.
        optimistic: Whether to check predicted memory itself, instead of its high end.
    """
    current = _current(result)
    share = None if result.speedup is None else 1 / result.speedup
    failure = _too_large(result, current, optimistic) or _too_slow(result, share, limits)
    return Check(
        passed=failure is None,
        verdict=failure or _passes(result, current, share),
        current_batch_size=current.batch_size,
        source=result.source,
        recommended_batch_size=result.recommended_batch_size,
        device_used_bytes=current.device_used_bytes,
        device_used_high_bytes=current.device_used_high_bytes,
        total_bytes=result.gpu.total_bytes,
        share_of_recommended_speed=share,
        largest_batch_size=result.largest_batch_size,
        step_seconds=current.step_seconds if current.fits else None,
        software=result.software,
        profile=result.profile,
    )


def nothing_fits(error: DoesNotFit, current_batch_size: int) -> Check:
    """The check of a training run that does not fit at any batch size."""
    return Check(passed=False, verdict=str(error), current_batch_size=current_batch_size)


def _too_large(result: AnalysisResult, current: Trial, optimistic: bool) -> str | None:
    where = f"{_subject(result)} {{}} on {result.gpu.name}: {_needs(result, current)}"
    if not current.fits:
        largest = f"Batch {result.largest_batch_size:,} does."
        return f"{where.format('does not fit')} ({current.source}). {largest}"
    high = current.device_used_high_bytes
    if optimistic or high is None or high <= result.gpu.total_bytes:
        return None
    safe = result.safe_batch_size
    instead = f"Batch {safe:,} is safe even then." if safe else "No batch is certain to fit."
    return f"{where.format('may not fit')} ({current.source}). {instead}"


def _too_slow(result: AnalysisResult, share: float | None, limits: Limits) -> str | None:
    least = limits.min_share_of_recommended_speed
    if least is None or share is None:
        return None
    # The whole interval must lie below: noise must not fail a check.
    highest = share if result.speedup_low is None else 1 / result.speedup_low
    if highest >= least:
        return None
    return (
        f"{_subject(result)} is too slow on {result.gpu.name}: {_speed(result, share)} "
        f"({result.source}). At least {100 * least:.0f}% is required."
    )


def _passes(result: AnalysisResult, current: Trial, share: float | None) -> str:
    speed = "" if share is None else f", and is {_speed(result, share)}"
    where = f"{_subject(result)} fits on {result.gpu.name}"
    return f"{where}: {_needs(result, current)}{speed} ({result.source})."


def _subject(result: AnalysisResult) -> str:
    return f"Batch {result.current_batch_size:,} of {result.model_name}"


def _needs(result: AnalysisResult, current: Trial) -> str:
    used = current.device_used_bytes
    if used is None:  # a CPU under a memory limit counts tensors alone
        used = current.peak_allocated_bytes
    if used is None:
        return f"it needs more than {gib(result.gpu.total_bytes)}"
    high = current.device_used_high_bytes
    at_most = "" if high is None else f" (at most {gib_number(high)})"
    return f"it needs {gib_number(used)}{at_most} of {gib(result.gpu.total_bytes)}"


def _speed(result: AnalysisResult, share: float) -> str:
    batch = f"{result.recommended_batch_size:,}"
    return f"{100 * share:.0f}% as fast as the recommended batch {batch}"


def _current(result: AnalysisResult) -> Trial:
    size = result.current_batch_size
    return next(trial for trial in result.trials if trial.batch_size == size)


_LIMITS = {each.name for each in fields(Limits)}
_OF_A_REQUEST = {
    each.name for kind in (AnalysisRequest, Assumptions, Workload) for each in fields(kind)
} - {"workload", "assumptions", "current_batch_size"}
_OF_A_SCRIPT = ("factory", "script", "arguments", "batch_flag", "batch_env")
_KEYS = _OF_A_REQUEST | {"batch_size", *_OF_A_SCRIPT, _TABLE}
KEYS = {name: name for name in (*_OF_A_REQUEST, *_OF_A_SCRIPT)}
KEYS |= {"current_batch_size": "batch_size"}
"""The key of each field of a request, for messages."""
