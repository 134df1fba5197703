"""Runs the matrix: ``python -m benchmarks.compat``, or ``make compat``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.compat import builds
from benchmarks.compat.builds import Build
from benchmarks.compat.cases import CASES, Case
from benchmarks.compat.rows import (
    Row,
    answer,
    explanation,
    known_differences,
    merged,
    reference_of,
    unequal,
)
from benchmarks.results import files
from benchmarks.results.documents import fill_all
from engine.core.errors import EngineError
from engine.versions import software

NAME = "compat"


@dataclass(frozen=True)
class Options:
    """Options of one run of the matrix.

    Attributes:
        wheel: MemoryMark's wheel.
        cases: Cases to run.
        folder: Folder for environments.
        keep: Whether to keep the environments of builds.
    """

    wheel: Path
    cases: Sequence[Case]
    folder: Path
    keep: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Let builds answer, one environment after another.

    Returns:
        The exit status: 1 if a build could not be made, failed, or differs without a reason.
    """
    chosen = _parser().parse_args(arguments)
    cases = [case for case in CASES if not chosen.case or case.name in chosen.case]
    options = Options(chosen.wheel.resolve(), cases, chosen.folder, chosen.keep)
    transformers = builds.resolved("transformers", chosen.transformers)
    groups = builds.matrix(builds.resolved("torch", chosen.torch), transformers, chosen.python)
    references = [_reference(release, options) for release in transformers]
    rows: list[Row] = []
    failed = False
    for group in groups:
        try:
            for row in _answers(group, options):
                rows.append(row)
                failed |= not _is_right(row, reference_of(row, references))
                if chosen.store:
                    _store(references, rows)
        except EngineError as error:
            _print(f"! {group[0]}: {error}")
            failed = True
    if chosen.store:
        for changed in fill_all():
            _print(f"{changed.name}: tables updated")
    return int(failed)


def _reference(transformers: str, options: Options) -> Row:
    here = software.installed()["torch"].partition("+")[0]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    with builds.reference(options.folder, transformers, options.wheel) as interpreter:
        row = answer(interpreter, Build(python, here, transformers), options.cases)
    _print(f"reference: {row.build} ({row.installed})")
    for case, said in row.failures.items():
        _print(f"  {case}: {said}")
    return row


def _answers(group: Sequence[Build], options: Options) -> Iterator[Row]:
    """The rows of builds that share an environment, as they come."""
    with builds.environment(options.folder, group[0], keep=options.keep) as python:
        for build in group:
            begun = perf_counter()
            builds.install(python, build, options.wheel)
            row = answer(python, build, options.cases)
            _print(f"{build} ({row.installed}): {perf_counter() - begun:.0f} s")
            yield row


def _is_right(row: Row, reference: Row) -> bool:
    """Print how a row differs; returns whether each difference is explained."""
    right = True
    for case, how in unequal(row, reference).items():
        known = explanation(case, row.build, known_differences())
        right &= known is not None
        _print(f"  {'!' if known is None else ' '} {case}: {how} {known.reason if known else ''}")
    return right


def _store(references: Iterable[Row], rows: Iterable[Row]) -> None:
    """Put rows into the result file, in place of older ones of the same builds."""
    try:
        old = files.read(NAME).figures
    except FileNotFoundError:
        old = {"references": [], "rows": []}
    figures = {
        key: [asdict(row) for row in merged([Row(**row) for row in old[key]], new)]
        for key, new in (("references", references), ("rows", rows))
    }
    result = files.Result(
        command="make compat",
        made_on=max(row["made_on"] for row in figures["rows"]),
        seconds=0.0,
        exit_status=0,
        machine=files.Machine.here(),
        versions=files.versions(),
        figures=figures,
    )
    files.write(NAME, result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compat", description=__doc__)
    releases = {
        "torch": builds.TORCH,
        "transformers": builds.TRANSFORMERS,
        "python": builds.PYTHON,
    }
    for name, known in releases.items():
        about = f"releases to try, or newest; default {', '.join(known)}"
        parser.add_argument(f"--{name}", nargs="+", default=known, metavar="RELEASE", help=about)
    parser.add_argument("--case", nargs="+", metavar="NAME", help="cases to try; default all")
    parser.add_argument("--wheel", type=Path, required=True, help="MemoryMark, by `make dist`")
    parser.add_argument("--keep", action="store_true", help="keep the environments, 5 GB each")
    parser.add_argument("--folder", type=Path, default=builds.cache_folder(), help="for them")
    parser.add_argument("--store", action="store_true", help="write the rows into the docs' table")
    return parser


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a command


if __name__ == "__main__":
    sys.exit(main())
