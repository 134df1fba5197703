from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.mutants import ROOT, TARGETS, Outcome, keep_sample, outcome, read_targets

_SOURCE = """\
def total(first: int | None) -> int:
    return first + 1
"""


@pytest.fixture
def rows(tmp_path: Path) -> sqlite3.Connection:
    """A cosmic-ray session on a module with three places, one of them an annotation."""
    (tmp_path / "module.py").write_text(_SOURCE)
    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE TABLE work_items (job_id)")
    rows.execute("CREATE TABLE work_results (job_id, test_outcome, diff)")
    rows.execute(
        "CREATE TABLE mutation_specs"
        " (job_id, module_path, operator_name, occurrence, start_pos_row, start_pos_col)"
    )
    operators = ["Add_Sub", "Add_Mul", "Add_Div"]
    specs = [(f"core/ReplaceBinaryOperator_{name}", 2, 17) for name in operators]
    specs += [("core/NumberReplacer", 2, 19), ("core/ReplaceBinaryOperator_BitOr_Sub", 1, 21)]
    for job, (operator, row, column) in enumerate(specs):
        rows.execute("INSERT INTO work_items VALUES (?)", [job])
        spec = [job, "module.py", operator, 0, row, column]
        rows.execute("INSERT INTO mutation_specs VALUES (?, ?, ?, ?, ?, ?)", spec)
    rows.commit()
    return rows


def test_every_target_has_existing_modules_and_tests() -> None:
    for target in read_targets(TARGETS):
        missing = [path for path in target.modules + target.tests if not (ROOT / path).exists()]
        assert not missing, target.name


def test_the_sample_has_one_mutant_per_place_and_none_of_annotations(
    rows: sqlite3.Connection, tmp_path: Path
) -> None:
    keep_sample(rows, tmp_path, size=30, seed=1)
    kept = rows.execute("SELECT start_pos_row, start_pos_col FROM mutation_specs").fetchall()
    assert sorted(kept) == [(2, 17), (2, 19)]
    assert len(rows.execute("SELECT * FROM work_items").fetchall()) == 2


def test_the_same_seed_draws_the_same_sample(tmp_path: Path, rows: sqlite3.Connection) -> None:
    copy = sqlite3.connect(":memory:")
    rows.backup(copy)
    for session in (rows, copy):
        keep_sample(session, tmp_path, size=1, seed=7)
    jobs = "SELECT job_id FROM work_items"
    assert rows.execute(jobs).fetchall() == copy.execute(jobs).fetchall()


def test_survivors_are_counted_and_shown(rows: sqlite3.Connection) -> None:
    for result, diff in [("KILLED", "-a\n+b"), ("SURVIVED", "-c\n+d"), ("KILLED", "timeout")]:
        rows.execute("INSERT INTO work_results VALUES (1, ?, ?)", [result, diff])
    assert outcome(rows) == Outcome(killed=2, survivors=["-c\n+d"])
