"""Mutation testing: how many small random faults in the code do its tests notice?

``make mutants`` copies the index of git to ``var/mutants``, where cosmic-ray changes one place at a
time. ``mutants.toml`` lists the modules with their tests. All mutants would take days, so a random
sample of each target is tried, determined by the seed. The sample is of places, not of mutants: one
``+`` has eleven mutants, nine of which any test would notice.

Annotations are left out, since nothing evaluates them, and so are the options of data classes
(``frozen=True``), which guard against mistakes that no test makes.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
TARGETS = Path(__file__).with_suffix(".toml")
FOLDER = ROOT / "var" / "mutants"

Position = tuple[int, int]


@dataclass(frozen=True)
class Target:
    """Modules or folders, and the tests that should notice faults in them."""

    name: str
    modules: list[str]
    tests: list[str]


@dataclass
class Outcome:
    """The results for the mutants of a target.

    Attributes:
        killed: Number that made a test fail or time out.
        survivors: The diffs that no test noticed.
    """

    killed: int = 0
    survivors: list[str] = field(default_factory=list)


def read_targets(path: Path) -> list[Target]:
    return [Target(name, **fields) for name, fields in tomllib.loads(path.read_text()).items()]


def try_target(target: Target, tree: Path, cosmic_ray: str, size: int, seed: int) -> Outcome:
    """Run a target's tests on a sample of its mutants.

    Raises:
        subprocess.CalledProcessError: If the tests fail without a mutant, or cosmic-ray fails.
    """
    tests = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    # For speed: no schema tests, tables created from the models, stop at the first failure.
    tests += ["-p", "no:schemathesis", "--no-migrations", "--hypothesis-profile=no-shrinking"]
    tests += ["-m", "not slow and not full and not e2e", *target.tests]
    begun = monotonic()
    subprocess.run(tests, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    config, session = FOLDER / f"{target.name}.toml", FOLDER / f"{target.name}.sqlite"
    settings = {
        "module-path": target.modules,
        "timeout": 30 + 3 * (monotonic() - begun),
        "excluded-modules": [f"{module}/tests/*" for module in target.modules],
        "test-command": shlex.join(tests),
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    distributor = ["[cosmic-ray.distributor]", 'name = "local"']
    config.write_text("\n".join(["[cosmic-ray]", *lines, *distributor]))
    subprocess.run([cosmic_ray, "init", "--force", config, session], cwd=tree, check=True)
    with sqlite3.connect(session) as rows:
        keep_sample(rows, tree, size, seed)
    subprocess.run([cosmic_ray, "exec", config, session], cwd=tree, check=True)
    with sqlite3.connect(session) as rows:
        return outcome(rows)


def keep_sample(rows: sqlite3.Connection, tree: Path, size: int, seed: int) -> None:
    """Remove all mutants from a cosmic-ray session except a random sample."""
    places: dict[tuple[str, int, int, str], list[str]] = defaultdict(list)
    silent: dict[str, list[tuple[Position, Position]]] = {}
    specs = rows.execute(
        "SELECT job_id, module_path, start_pos_row, start_pos_col, operator_name"
        " FROM mutation_specs ORDER BY module_path, operator_name, occurrence"
    )
    for job, module, row, column, operator in specs:
        if module not in silent:
            silent[module] = list(without_effect(ast.parse((tree / module).read_text())))
        if not any(start <= (row, column) <= end for start, end in silent[module]):
            kind = operator.rsplit("_", 2)[0]  # core/ReplaceBinaryOperator_Add_Sub
            places[module, row, column, kind].append(job)
    generator = random.Random(seed)  # noqa: S311  # a sample, no secret
    drawn = generator.sample(sorted(places), min(size, len(places)))
    kept = [generator.choice(places[place]) for place in drawn]
    marks = ", ".join("?" * len(kept))
    for table in ("mutation_specs", "work_items"):
        rows.execute(f"DELETE FROM {table} WHERE job_id NOT IN ({marks})", kept)  # noqa: S608  # two names of ours


def without_effect(tree: ast.Module) -> Iterator[tuple[Position, Position]]:
    """The spans of annotations and of data class decorators, which tests cannot notice."""
    for node in ast.walk(tree):
        found: Sequence[ast.expr | None] = ()
        if isinstance(node, ast.arg | ast.AnnAssign):
            found = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [node.returns]
        elif isinstance(node, ast.ClassDef):
            found = [one for one in node.decorator_list if "dataclass" in ast.unparse(one)]
        for one in found:
            if one is not None and one.end_lineno and one.end_col_offset:
                yield (one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)


def outcome(rows: sqlite3.Connection) -> Outcome:
    found = Outcome()
    for result, diff in rows.execute("SELECT test_outcome, diff FROM work_results"):
        if result == "SURVIVED":
            found.survivors.append(diff)
        else:
            found.killed += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="targets to try; default all")
    parser.add_argument("--cosmic-ray", default=str(FOLDER / "venv/bin/cosmic-ray"))
    parser.add_argument("--targets", type=Path, default=TARGETS, help="file that lists the targets")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the sources to try")
    parser.add_argument("--sample", type=int, default=30, help="mutants to try per target")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tree = FOLDER / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    copying = ["git", "checkout-index", "--all", f"--prefix={tree}/"]
    subprocess.run(copying, cwd=options.checkout, check=True)
    table = []
    for target in read_targets(options.targets):
        if not options.names or target.name in options.names:
            found = try_target(target, tree, options.cosmic_ray, options.sample, options.seed)
            tried = found.killed + len(found.survivors)
            share = 100 * found.killed / tried
            table.append(f"{target.name:<16} {found.killed:>3} of {tried:>3} killed {share:>4.0f}%")
            print("\n".join(chain([table[-1]], found.survivors)), flush=True)  # noqa: T201  # a command
    print("\n".join(["", *table]))  # noqa: T201  # a command


if __name__ == "__main__":
    main()
