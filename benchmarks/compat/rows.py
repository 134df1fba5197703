"""The answers of builds, their checks, and the differences that a release explains."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from benchmarks.compat.builds import Build
from benchmarks.compat.cases import CASES, Case

AT_ONCE = 2
"""Processes that answer side by side; each takes one core and up to 1 GiB."""
MAX_SECONDS = 900.0
_FILE = Path(__file__).with_name("differences.toml")
_VERSIONS = (
    "import torch, transformers, json;"
    "print(json.dumps([torch.__version__, torch.version.cuda or '', transformers.__version__]))"
)


@dataclass(frozen=True)
class Row:
    """The answers of one build, or of the pinned environment that it is compared with.

    Attributes:
        python, torch, transformers: Versions of the build.
        installed: PyTorch's whole version, such as ``2.11.0+cu130``.
        cuda: The CUDA version it was built for; empty of a build for the CPU.
        made_on: The UTC date.
        answers: The numbers of each case.
        failures: The last line that each failed case printed instead.
    """

    python: str
    torch: str
    transformers: str
    installed: str
    cuda: str
    made_on: str
    answers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def build(self) -> Build:
        return Build(self.python, self.torch, self.transformers)


@dataclass(frozen=True)
class Difference:
    """Why some builds answer otherwise.

    Attributes:
        cases: Names of cases.
        reason: The difference and its release, in a sentence.
        torch, transformers: The releases that it holds of, such as ``<2.9``; empty for all.
    """

    cases: Sequence[str]
    reason: str
    torch: str = ""
    transformers: str = ""

    def explains(self, case: str, build: Build) -> bool:
        return (
            case in self.cases
            and build.torch in SpecifierSet(self.torch)
            and build.transformers in SpecifierSet(self.transformers)
        )


def known_differences() -> list[Difference]:
    tables = tomllib.loads(_FILE.read_text(encoding="utf-8")).get("difference", [])
    return [Difference(**table) for table in tables]


def answer(python: Path, build: Build, cases: Iterable[Case] = CASES) -> Row:
    """Let a build answer the cases, each in a process of its own in an empty folder."""
    answers, failures = {}, {}
    asked = list(cases)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        all_found = list(pool.map(lambda case: _ask(python, case), asked))
    for case, found in zip(asked, all_found, strict=True):
        if isinstance(found, str):
            failures[case.name] = found
        else:
            answers[case.name] = found
    versions = subprocess.run(
        [python, "-c", _VERSIONS], capture_output=True, text=True, check=True, env=_environ()
    )
    installed, cuda, _ = json.loads(versions.stdout)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return Row(
        build.python, build.torch, build.transformers, installed, cuda, today, answers, failures
    )


def _ask(python: Path, case: Case) -> dict[str, int] | str:
    """A case's numbers, or the last line of what it said instead."""
    with tempfile.TemporaryDirectory() as folder:
        command = [os.fspath(python), *case.words]
        try:
            ran = subprocess.run(
                command, cwd=folder, env=_environ(), capture_output=True, text=True, check=False,
                timeout=MAX_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no answer in {MAX_SECONDS:.0f} s"
    if ran.returncode:
        return (ran.stderr.strip().splitlines() or ["without a message"])[-1][:300]
    try:
        return case.read(json.loads(ran.stdout))
    except (ValueError, KeyError) as error:
        return f"its answer lacks {error}"[:300]


def _environ() -> dict[str, str]:
    """Without our own packages and kept traces, which would answer in the build's place."""
    here = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return here | {"ENGINE_TRACES": "", "HF_HUB_OFFLINE": "1"}


def unequal(row: Row, reference: Row) -> dict[str, str]:
    """A row's differences from the reference, by case, in bytes or as the text of its failure."""
    found = dict(row.failures)
    for name, numbers in row.answers.items():
        expected = reference.answers.get(name, {})
        apart = [f"{key} {value - expected[key]:+,}" for key, value in numbers.items()
                 if key in expected and value != expected[key]]  # fmt: skip
        if apart:
            found[name] = ", ".join(apart)
    return found


def explanation(case: str, build: Build, known: Iterable[Difference]) -> Difference | None:
    return next((one for one in known if one.explains(case, build)), None)


def reference_of(row: Row, references: Iterable[Row]) -> Row:
    """The reference with the same transformers."""
    return next(one for one in references if one.transformers == row.transformers)


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """All rows, the new ones in place of old ones of the same build, in order."""
    by_build = {row.build: row for row in (*old, *new)}

    def order(row: Row) -> tuple[Any, ...]:
        return tuple(
            tuple(map(int, text.split("."))) for text in (row.torch, row.transformers, row.python)
        )

    return sorted(by_build.values(), key=order)
