"""The catalogue's GPUs as this machine and its lab know them, by self-checks.

Predictions for a GPU take what a self-check of such a GPU measured in place of the catalogue's
values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import EngineError, InvalidInput
from ..core.process import state_folder
from ..versions import software
from . import GPUS, Gpu, SelfChecked
from .checked import Identity, SelfCheck, read_self_check

FILE_VARIABLE = "ENGINE_SELF_CHECK"
"""Environment variable with the file of this machine's self-check, for :func:`own_file`."""

OF_LARGER_MODELS = 1.0, 1.6, 2.2
"""The launch time in steps of real models over that in the narrow model of a self-check: lowest,
middle and highest. Sixteen steps that their hosts bound on two H200 machines took 1.32 to 2.11
times what one's self-check found, 1.56 in the median (``python -m benchmarks.h200``); three checks
found 28, 34 and 41 µs."""


def on_checked(gpu: Gpu, check: SelfCheck) -> Gpu:
    """A catalogue GPU with what the self-check of such a GPU measured in place of its values.

    What could not be measured stays the catalogue's.

    Args:
        gpu: The catalogue GPU.
        check: Self-check of a machine with that kind of GPU.
    """
    if check.device is None:
        raise ValueError("the device did not answer, so nothing of it was measured")
    where = f"measured by a self-check of this GPU on {check.when[:10]}"
    context, measured = check.context_bytes, ["total_bytes"]
    if context is not None:
        measured.append("context_bytes")
    found = SelfChecked(
        where=where,
        cudnn_bytes=check.cudnn_bytes,
        cublas_workspace_bytes=check.cublas_workspace_bytes,
    )
    return replace(
        gpu,
        total_bytes=check.device.total_bytes,
        context_bytes=gpu.context_bytes if context is None else context,
        sources=gpu.sources | dict.fromkeys(measured, where),
        checked=found,
        **_launch_time(check.step_launch_seconds),
    )


def _launch_time(seconds: float | None) -> dict[str, Any]:
    """The fields of a GPU for the launch time that its self-check found in a narrow model."""
    if seconds is None:
        return {"launch_seconds": None, "launch_range": None}
    low, middle, high = (times * seconds for times in OF_LARGER_MODELS)
    return {"launch_seconds": middle, "launch_range": (low, high)}


def own_file() -> Path:
    """The file of this machine's self-check, outside what is installed; it need not exist."""
    return Path(os.environ.get(FILE_VARIABLE) or state_folder() / "selfcheck.json")


def write_own(check: SelfCheck) -> Path:
    """Store the self-check of this machine, in place of an earlier one.

    Raises:
        EngineError: If the file cannot be written.
    """
    path = own_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(check.to_dict(), indent=2) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise EngineError(f"the self-check was not stored in {path}: {error}") from error
    return path


def own_check() -> SelfCheck | None:
    """The stored self-check of this machine; ``None`` if there is none that still holds."""
    path = own_file()
    if not path.exists():
        return None
    try:
        check = read_self_check(path.read_text(encoding="utf-8"))
    except (OSError, InvalidInput):
        return None  # of another version; `memorymark selfcheck` replaces it
    return check if check.identity == Identity.here() else None


_OF_THE_LAB: ContextVar[tuple[SelfCheck, ...]] = ContextVar("lab self-checks", default=())


@contextmanager
def using(checks: Sequence[SelfCheck]) -> Iterator[None]:
    """Predict with the self-checks of a lab's nodes, beside this machine's own, for a while."""
    before = _OF_THE_LAB.set(tuple(checks))
    try:
        yield
    finally:
        _OF_THE_LAB.reset(before)


def in_use() -> dict[str, SelfCheck]:
    """The self-checks that predictions use here, by the catalogue's name of their GPU.

    One made with another torch is left out, since context and libraries differ by its CUDA. Of
    several for one kind of GPU the last one counts, and a lab's before this machine's own.
    """
    own = own_check()
    known = [*([own] if own else []), *_OF_THE_LAB.get()]
    torch = software.installed().get("torch", "")
    return {one.gpu_name: one for one in known if one.gpu_name and one.identity.torch == torch}


def known_gpus(launch_microseconds: float | None = None) -> dict[str, Gpu]:
    """The catalogue, with what self-checks measured in place of its values.

    Args:
        launch_microseconds: Launch time of the hosts, as the caller knows it.
    """
    checks = in_use()
    found = {
        name: on_checked(gpu, checks[name]) if name in checks else gpu for name, gpu in GPUS.items()
    }
    if launch_microseconds is None:
        return found
    seconds = launch_microseconds / 1e6
    return {
        name: replace(gpu, launch_seconds=seconds, launch_range=None) for name, gpu in found.items()
    }
