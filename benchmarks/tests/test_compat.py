"""The matrix of releases: which builds, what of their answers is wrong, and what explains it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compat import __main__ as command
from benchmarks.compat import builds, rows
from benchmarks.compat.builds import Build
from benchmarks.compat.cases import CASES, Case
from benchmarks.compat.rows import Difference, Row
from benchmarks.results.compat_tables import compat
from benchmarks.results.files import Machine, Result
from engine.core.errors import EngineError
from engine.versions import environments, software

REFERENCE = Row("3.11", "2.13.0", "5.23.0", "2.13.0+cpu", "", "2026-11-26", {"BERT": {"peak": 100}})
BUILD = replace(REFERENCE, torch="2.9.1", installed="2.9.1+cu128", cuda="12.8")
KNOWN = Difference(["BERT"], "its attention takes more", torch="<2.10", transformers=">=5")


def _says(line: str) -> Case:
    return Case("says", ("-c", line), ("peak",))


def test_the_matrix_has_every_release_with_every_other() -> None:
    groups = builds.matrix(["2.6.0", "2.15.0"], ["4.44.2", "5.23.0"], ["3.11", "3.13"])
    assert len(groups) == 4
    assert len({build for group in groups for build in group}) == 8
    assert all(len({(one.python, one.torch) for one in group}) == 1 for group in groups)


def test_the_pinned_transformers_is_in_the_matrix() -> None:
    assert software.installed()["transformers"] in builds.TRANSFORMERS


def test_equal_numbers_need_no_explanation() -> None:
    assert rows.unequal(BUILD, REFERENCE) == {}


@pytest.mark.parametrize(
    ("build", "shown"),
    [
        (replace(BUILD, answers={"BERT": {"peak": 107}}), "peak +7"),
        (replace(BUILD, answers={}, failures={"BERT": "ImportError: no"}), "ImportError: no"),
    ],
)
def test_a_byte_more_or_a_failure_is_a_difference(build: Row, shown: str) -> None:
    assert rows.unequal(build, REFERENCE) == {"BERT": shown}


@pytest.mark.parametrize(
    ("torch", "transformers", "case", "explained"),
    [
        ("2.9.1", "5.17.0", "BERT", True),
        ("2.10.0", "5.17.0", "BERT", False),
        ("2.9.1", "4.57.6", "BERT", False),
        ("2.9.1", "5.17.0", "ResNet-50", False),
    ],
)
def test_a_release_explains_only_its_own_cases(
    torch: str, transformers: str, case: str, *, explained: bool
) -> None:
    found = rows.explanation(case, Build("3.11", torch, transformers), [KNOWN])
    assert (found is KNOWN) is explained


def test_every_listed_difference_names_known_cases_and_releases() -> None:
    names = {case.name for case in CASES}
    for known in rows.known_differences():
        assert set(known.cases) <= names
        assert known.reason
        assert any(
            known.explains(known.cases[0], Build("3.11", torch, transformers))
            for torch in builds.TORCH
            for transformers in builds.TRANSFORMERS
        )


@pytest.mark.slow
def test_a_case_that_ends_in_an_error_is_told_by_its_last_line() -> None:
    raising = _says("raise ValueError('no such kernel')")
    right = _says("print('{\"peak\": 5}')")
    row = rows.answer(Path(sys.executable), BUILD.build, [raising])
    assert row.failures == {"says": "ValueError: no such kernel"}
    row = rows.answer(Path(sys.executable), BUILD.build, [right])
    assert row.answers == {"says": {"peak": 5}}


def test_newer_rows_take_the_place_of_older_ones_in_the_order_of_releases() -> None:
    old = [replace(BUILD, torch="2.10.0"), BUILD]
    new = [replace(BUILD, made_on="2026-12-01")]
    found = rows.merged(old, new)
    assert [(row.torch, row.made_on) for row in found] == [
        ("2.9.1", "2026-12-01"),
        ("2.10.0", "2026-11-26"),
    ]


def test_the_newest_release_is_the_one_that_pip_lists_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "torch (2.15.0+cu130)\nAvailable versions: 2.15.0+cu130, 2.14.1\n"
    monkeypatch.setattr(builds, "_run", lambda *_: said)
    assert builds.resolved("torch", ["2.6.0", builds.NEWEST]) == ["2.6.0", "2.15.0"]
    with pytest.raises(EngineError, match="pip lists no releases of transformers"):
        builds.resolved("transformers", [builds.NEWEST])


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match=r"python3\.99 is not on the PATH"):
        builds.interpreter("3.99")


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.slow
def test_an_environment_is_deleted_unless_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool
) -> None:
    made: list[str] = []

    def pip(python: Path, *arguments: str) -> None:
        made.extend(arguments)

    monkeypatch.setattr(builds, "_pip", pip)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    build = Build(python, "2.9.1", "5.23.0")
    for _ in range(2):
        with builds.environment(tmp_path, build, keep=keep) as interpreter:
            assert interpreter.exists()
        assert interpreter.exists() is keep
    assert made == ["torch==2.9.1"] * (1 if keep else 2)


def test_the_reference_answers_with_the_same_wheel_under_every_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, ...]] = []

    def create(home: Path, *installed: str) -> Path:
        made.append(installed)
        return home / "bin" / "python"

    monkeypatch.setattr(environments, "create", create)
    wheel = tmp_path / "memorymark.whl"
    for release in ("4.57.6", software.installed()["transformers"]):
        with builds.reference(tmp_path, release, wheel) as python:
            assert python.is_relative_to(tmp_path)
        assert made.pop() == (f"transformers=={release}", str(wheel))


@pytest.mark.parametrize(
    ("numbers", "status"), [({"peak": 100}, 0), ({"peak": 101}, 1)], ids=["equal", "not equal"]
)
def test_the_status_says_whether_each_difference_is_explained(
    numbers: dict[str, int],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def made(*_: object, **__: object) -> Iterator[Path]:
        yield Path(sys.executable)

    def answer(python: Path, build: Build, cases: list[Case]) -> Row:
        is_reference = build.torch != "2.9.1"
        return REFERENCE if is_reference else replace(BUILD, answers={"BERT": numbers})

    monkeypatch.setattr(builds, "environment", made)
    monkeypatch.setattr(builds, "reference", made)
    monkeypatch.setattr(builds, "install", lambda *_: None)
    monkeypatch.setattr(command, "answer", answer)
    given = [
        "--wheel",
        "no.whl",
        "--torch",
        "2.9.1",
        "--transformers",
        "5.23.0",
        "--python",
        "3.11",
    ]
    assert command.main(given) == status
    assert ("! BERT: peak +1" in capsys.readouterr().out) is bool(status)


def _result(*found: Row) -> Callable[[str], Result]:
    figures = {"rows": [vars(row) for row in found], "references": [vars(REFERENCE)]}
    result = Result("", "", 0.0, 0, Machine("", 1, 1, 0.0), {}, json.loads(json.dumps(figures)))
    return lambda name: result


def test_the_table_counts_equal_answers_and_says_what_is_not_explained() -> None:
    shown = compat(_result(BUILD, replace(BUILD, failures={"plan": "no answer"})))
    assert "| 2.9.1+cu128 | 5.23.0 | 3.11 | 2026-11-26 | 1 of 1 | - |" in shown
    assert "1 of 2 | plan: not explained: no answer |" in shown
