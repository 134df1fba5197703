"""``compare``: the same step with several releases, each traced in an environment that has them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answer.figures import DEVICE_USED, LARGEST_BATCH, PEAK_ALLOCATED, STEP_TIME
from ..answer.release_comparison import (
    ReleaseAnswer,
    ReleaseComparison,
    compare_releases,
    find_release,
    release_answer,
    sides,
    why_not_comparable,
)
from ..answer.step_differences import MemoryDifference, TimeDifference
from ..core.border import read_json
from ..core.errors import EngineError, InvalidInput
from ..core.numbers import milliseconds, signed, whole
from ..core.sizes import gib, gib_number
from ..events import Emit, Log
from ..gpus import HOW_TO_LIST, LOCAL
from ..interface.result import AnalysisResult
from ..versions import environments, software
from .flags import (
    ALLOCATOR,
    CATALOGUE_GPU,
    CURRENT_BATCH_SIZE,
    GLOBAL_BATCH,
    LAUNCH_TIME,
    MEMORY_LIMIT,
    WORKLOAD,
)
from .terminal import OK, answer, bullets, progress, section, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_FLAG, _JSON, _SCRIPT = "--software", "--json", "--"
_PACKAGE = __name__.partition(".")[0]
_ANSWERED = {field.name for field in fields(AnalysisResult)}

COMPARE = (
    CATALOGUE_GPU,
    CURRENT_BATCH_SIZE,
    *(flag for flag in WORKLOAD if flag.flag != _FLAG),
    *GLOBAL_BATCH,
    MEMORY_LIMIT,
    ALLOCATOR,
    LAUNCH_TIME,
)


def add_software_flag(parser: Any) -> None:
    parser.add_argument(
        _FLAG,
        metavar="VERSIONS",
        action="append",
        help="versions to compare, such as transformers=4.46.3, from the oldest to the newest; "
        "repeat it, or give it once to compare with what is installed here. What is not "
        "installed is, in an environment of its own",
    )
    parser.set_defaults(names=parser.get_default("names") | {"software": _FLAG})


def compare(options: argparse.Namespace) -> int:
    """Compare two releases; of several, the two neighbours between which a step changes."""
    releases = _releases(options.software or [])
    if options.gpu == LOCAL:
        wanted = f"{LOCAL} is measured, not predicted; choose a catalogue GPU; {HOW_TO_LIST}"
        raise InvalidInput({"gpu": wanted})
    words = _without_ours(options.words)
    with progress() as emit:

        @cache
        def at(number: int) -> AnalysisResult:
            tried.add(number)
            return _answered(releases[number], words, options.script_arguments, emit)

        tried: set[int] = set()
        before, after = map(at, find_release(len(releases), at))
    if why := why_not_comparable(before, after):
        raise EngineError(f"nothing to compare: {why}")
    compared = compare_releases(before, after)
    answers = [release_answer(at(number)) for number in sorted(tried)]
    plain = {"tried": [asdict(one) for one in answers], "comparison": compared.to_dict()}
    answer(options, plain, lambda: _rendered(compared, answers))
    return OK


def _releases(given: Sequence[str]) -> list[str]:
    """The versions to compare, as text; what is installed here stands for a missing second."""
    wanted = list(dict.fromkeys(software.as_text(software.parse(one)) for one in given))
    if not wanted:
        raise InvalidInput({"software": "name the versions to compare"})
    return wanted if len(wanted) > 1 else [*wanted, ""]


def _without_ours(words: Sequence[str]) -> list[str]:
    """The words of the command line that ``analyze`` takes too."""
    kept, rest = [], iter(words)
    for word in rest:
        if word == _FLAG:
            next(rest)
        elif word != _JSON and not word.startswith(f"{_FLAG}="):
            kept.append(word)
    return kept


def _answered(
    release: str, words: Sequence[str], scripts: Sequence[str], emit: Emit
) -> AnalysisResult:
    """The analysis with one release, in a process of its own.

    Raises:
        EngineError: If there is no such release, or it has no answer.
    """
    pins = software.parse(release)
    python = _python(pins, emit)
    named = software.format_versions(pins) or "the versions here"
    emit(Log(f"Tracing with {named}"))
    command = [os.fspath(python), "-m", _PACKAGE, "analyze", *words, _JSON]
    command += [_FLAG, release] if release else []
    command += [_SCRIPT, *scripts] if scripts else []
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        said = ran.stderr.strip().rpartition("\n")[2].removeprefix("error: ")
        raise EngineError(f"with {named}: {said or f'exit status {ran.returncode}'}")
    given = {name: one for name, one in json.loads(ran.stdout).items() if name in _ANSWERED}
    return read_json(AnalysisResult, given)


def _python(pins: dict[str, str], emit: Emit) -> Path:
    """The interpreter of an environment with these versions; a new one if there is none."""
    if software.is_offered(pins, software.installed()):
        return Path(sys.executable)
    folder = environments.of_user()
    for one in environments.offered(folder):
        if software.is_offered(pins, one.versions):
            return one.python
    emit(Log(f"Installing {software.format_versions(pins)} into {folder}"))
    return environments.make(folder, pins).python


def _rendered(compared: ReleaseComparison, answers: Sequence[ReleaseAnswer]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    fitted, fits = compared.before.fits, compared.after.fits
    style = "bold red" if fitted and not fits else "bold green"
    parts: list[RenderableType] = [
        Text(compared.verdict, style=style),
        section(f"Releases tried on {compared.gpu}", _answers(answers)),
    ]
    old, new = sides(compared.before.software, compared.after.software)
    heads = (old, new)
    if compared.tensors:
        parts.append(section("Memory at the peak, by operation", _memory(compared.tensors, heads)))
    if compared.modules:
        parts.append(section("Memory at the peak, by module", _memory(compared.modules, heads)))
    if compared.operations:
        parts.append(section("Kernel time, by operation", _times(compared.operations, heads)))
    if compared.caveats:
        parts.append(section("About these numbers", bullets(compared.caveats)))
    return Group(*parts)


def _answers(answers: Sequence[ReleaseAnswer]) -> Table:
    listed = table()
    listed.add_column("Software")
    batch = f"Batch {answers[0].batch_size:,}"
    for heading in (batch, PEAK_ALLOCATED.label, DEVICE_USED.label, STEP_TIME.label,
                    LARGEST_BATCH.label):  # fmt: skip
        listed.add_column(heading, justify="right")
    for one in answers:
        listed.add_row(
            software.format_versions(one.software),
            "fits" if one.fits else "does not fit",
            PEAK_ALLOCATED.with_unit(one.peak_allocated_bytes),
            DEVICE_USED.with_unit(one.device_used_bytes),
            STEP_TIME.with_unit(one.step_seconds if one.fits else None),
            LARGEST_BATCH.text(one.largest_batch_size),
        )
    return listed


def _memory(differences: Sequence[MemoryDifference], heads: tuple[str, str]) -> Table:
    of_modules = not any(one.category for one in differences)
    listed = table()
    listed.add_column("Module (* is every layer)", overflow="fold")
    if not of_modules:
        listed.add_column("Operation", overflow="fold")
        listed.add_column("Category")
    for heading in (*heads, "GiB added"):
        listed.add_column(heading, justify="right")
    for one in differences:
        named = [] if of_modules else [one.operation, one.category.replace("_", " ")]
        listed.add_row(
            one.module or "(none)",
            *named,
            _tensors(one.before_count, one.before_bytes),
            _tensors(one.after_count, one.after_bytes),
            signed(one.added_bytes, gib_number),
        )
    return listed


def _tensors(count: int, size: int) -> str:
    return f"{whole(count)} of {gib(size)}" if count else "none"


def _times(differences: Sequence[TimeDifference], heads: tuple[str, str]) -> Table:
    listed = table()
    listed.add_column("Operation", overflow="fold")
    for heading in (*heads, "ms added"):
        listed.add_column(heading, justify="right")
    for one in differences:
        listed.add_row(
            one.operation,
            _kernels(one.before_count, one.before_seconds),
            _kernels(one.after_count, one.after_seconds),
            signed(one.added_seconds, milliseconds),
        )
    return listed


def _kernels(count: int, seconds: float) -> str:
    return f"{whole(count)} in {milliseconds(seconds)} ms" if count else "none"
